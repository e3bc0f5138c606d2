"""Compare-and-swap of the state that all workers share of a provider: read, decide, write if unchanged, or repeat."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.core.providers.provider_state import ProviderState, dump_quota
from holdfast.ports import Random, Store
from holdfast.ports.providers import KeyWrite

T = TypeVar("T")


class HistoryEntry(NamedTuple):
    """An entry in a provider's history."""

    kind: str
    meta: Mapping[str, Any]


Step = Callable[[ProviderState, float], tuple[ProviderState, T, Sequence[HistoryEntry]]]
"""A decision by the state and the store's time: the new state, an answer, and the entries for the history."""


LONGEST_REST = 0.05
"""The longest pause, in seconds, after a lost race for a provider's row."""


class SharedState(NamedTuple):
    """The shared state of a provider, with the store's time, and this process's before it asked."""

    state: ProviderState
    version: int
    now: float
    asked_at: float


class Swapped(NamedTuple, Generic[T]):
    """The shared state now, and the result of the decision."""

    read: SharedState
    answer: T
    history: Sequence[HistoryEntry]
    lost: int
    """How often another worker was faster."""


async def swap(
    store: Store,
    name: str,
    step: "Step[T]",
    *,
    random: Random,
    keys: Callable[[ProviderState], Iterable[str]] = lambda _: (),
) -> "Swapped[T]":
    """Apply *step* to the stored state, and write the result, all of it or nothing.

    *keys* returns the keys whose limits the step needs, from the provider's row. Raises `StoreUnavailable`: then it is
    unknown whether the result was written, and the caller repeats it only if that is safe.
    """
    loop, lost = asyncio.get_running_loop(), 0
    while True:
        asked_at = loop.time()
        now, rows = await store.providers.read([name])
        row = rows.get(name)
        version = 0 if row is None else row.version
        before = ProviderState() if row is None else ProviderState.load(row.state)
        requested = sorted(keys(before))
        found = await store.providers.read_keys(name, requested) if requested else {}
        before = before.with_keys(requested, {key: stored.state for key, stored in found.items()})
        after, answer, history = step(before, now)
        changed = after.changed_keys(before, now)
        same = after.without_keys() == before.without_keys()
        if same and not changed:
            return Swapped(SharedState(after, version, now, asked_at), answer, (), lost)
        events = [(entry.kind, json.dumps(entry.meta)) for entry in history]
        writes = [
            KeyWrite(key, found[key].version if key in found else 0, dump_quota(quota), quota.expires)
            for key, quota in sorted(changed.items())
        ]
        if await store.providers.swap(name, version, None if same else after.dump(), events, keys=writes):
            return Swapped(SharedState(after, version + (not same), now, asked_at), answer, history, lost)
        lost += 1
        # Writers that come one after the other succeed; many that try at the same time do not.
        await asyncio.sleep(random.random() * min(0.001 * 2.0**lost, LONGEST_REST))
