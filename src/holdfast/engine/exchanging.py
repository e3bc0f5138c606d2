"""Changing what all workers share of a provider: read, decide, write if nobody was quicker, and else again."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.core.providers import ProviderState, written_quota
from holdfast.ports import Dice, Store
from holdfast.ports.providers import KeyWrite

T = TypeVar("T")


class Told(NamedTuple):
    """An entry in a provider's history."""

    kind: str
    meta: Mapping[str, Any]


Step = Callable[[ProviderState, float], tuple[ProviderState, T, Sequence[Told]]]
"""A decision by the state and the store's time: the new state, an answer, and what is to be told of it."""


LONGEST_REST = 0.05
"""Seconds that somebody rests at most who has lost a race for a provider's row."""


class Read(NamedTuple):
    """What is shared of a provider, as of when: by the store's clock, and by this process's, before it asked."""

    state: ProviderState
    version: int
    now: float
    asked_at: float


class Swapped(NamedTuple, Generic[T]):
    """What is shared now, and what came of the decision."""

    read: Read
    answer: T
    told: Sequence[Told]
    lost: int
    """How often somebody else was quicker."""


async def swap(
    store: Store,
    name: str,
    step: "Step[T]",
    *,
    dice: Dice,
    keys: Callable[[ProviderState], Iterable[str]] = lambda _: (),
) -> "Swapped[T]":
    """Decide by the state as it is, and write what follows, all of it or nothing. Raises `StoreUnavailable`.

    *keys* names those whose limits the decision needs, by what stands in the provider's row.

    After that it is not known whether it was written: whoever says it again has to be able to.
    """
    loop, lost = asyncio.get_running_loop(), 0
    while True:
        asked_at = loop.time()
        now, rows = await store.providers([name])
        row = rows.get(name)
        version = 0 if row is None else row.version
        before = ProviderState() if row is None else ProviderState.load(row.state)
        wanted = sorted(keys(before))
        found = await store.provider_keys(name, wanted) if wanted else {}
        before = before.with_keys(wanted, {key: stored.state for key, stored in found.items()})
        after, answer, told = step(before, now)
        changed = after.changed_keys(before, now)
        same = after.without_keys() == before.without_keys()
        if same and not changed:
            return Swapped(Read(after, version, now, asked_at), answer, (), lost)
        events = [(entry.kind, json.dumps(entry.meta)) for entry in told]
        writes = [
            KeyWrite(key, found[key].version if key in found else 0, written_quota(quota), quota.expires)
            for key, quota in sorted(changed.items())
        ]
        if await store.swap_provider(name, version, None if same else after.dump(), events, keys=writes):
            return Swapped(Read(after, version + (not same), now, asked_at), answer, told, lost)
        lost += 1
        # Many who are quick one after the other come through; many who try at the same time do not.
        await asyncio.sleep(dice.roll() * min(0.001 * 2.0**lost, LONGEST_REST))
