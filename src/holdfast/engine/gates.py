"""How providers stand, for those who only want to know whether they let calls through."""

from collections.abc import Iterable

from holdfast.core.breakers import Gate, lets_through, state_of
from holdfast.core.providers import ProviderState
from holdfast.ports import Store


async def shut_providers(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Tell which of these providers let no calls through, and why, as a sentence."""
    wanted = sorted({name for name in names if name})
    if not wanted:
        return {}
    now, rows = await store.providers(wanted)
    gates = {name: ProviderState.load(row.state).gate for name, row in rows.items()}
    return {
        name: f"provider {name!r} is {state_of(gate, now)}"
        for name, gate in gates.items()
        if _turns_all_away(gate, now)
    }


def _turns_all_away(gate: Gate, now: float) -> bool:
    """Whether not even a trial goes through.

    A job that is replayed may be that trial: where no other is left, nobody else would find out that all is well again.
    """
    waits_for_a_trial = gate.order is None and gate.shut is not None and gate.shut.is_over(now)
    return not (lets_through(gate) or waits_for_a_trial)
