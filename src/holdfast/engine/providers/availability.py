"""Which providers refuse calls, for code that only reads their state."""

from collections.abc import Iterable

from holdfast.core.providers.breaker_state import BreakerState, lets_through, state_name
from holdfast.core.providers.provider_state import ProviderState
from holdfast.ports import Store


async def unavailable_providers(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Return which of these providers let no calls through, each with the reason as a sentence."""
    requested = sorted({name for name in names if name})
    if not requested:
        return {}
    now, rows = await store.providers.read(requested)
    breakers = {name: ProviderState.load(row.state).breaker for name, row in rows.items()}
    return {
        name: f"provider {name!r} is {state_name(breaker, now)}"
        for name, breaker in breakers.items()
        if _refuses_trials(breaker, now)
    }


def _refuses_trials(breaker: BreakerState, now: float) -> bool:
    """Whether not even a trial goes through.

    A replayed job may be that trial: where no other job is left, nothing else would show that the provider is back.
    """
    is_half_open = (
        breaker.override is None and breaker.open_period is not None and breaker.open_period.is_over(now)
    )
    return not (lets_through(breaker) or is_half_open)
