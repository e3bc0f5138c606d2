"""The releaser: releases jobs that are held for a provider, as fast as the provider can take them, and jobs that
wait for a worker which knows their name, if this one does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from holdfast.core.errors import StoreUnavailable
from holdfast.core.providers.breaker import calls_for_backup, lets_through, seconds_to_next_release
from holdfast.core.providers.limits import LIMIT_RELEASE_EVERY
from holdfast.core.providers.provider import (
    ProviderState,
    awaited_name,
    awaited_queue,
    limited_key,
    provider_of,
)
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.admission import Admission
from holdfast.engine.providers.link import ProviderLink
from holdfast.engine.providers.shared_state import Announcement, SharedState
from holdfast.engine.registry import Registry
from holdfast.engine.store_availability import StoreAvailability
from holdfast.ports import Dice, Logger, Store

BATCH = 1_000

SHORTEST_REST = 0.1
"""The least seconds between two runs."""


class Releaser:
    """Releases held jobs. Every worker has one; the first that writes the next step to the provider's state takes it.

    A worker that dies between that write and the release costs the jobs one step: the next step releases them.
    """

    def __init__(
        self,
        store: Store,
        admission: Admission,
        registry: Registry,
        options: WorkerOptions,
        wake_worker: asyncio.Event,
        *,
        dice: Dice,
        logger: Logger,
        free_slots: Callable[[], int],
    ) -> None:
        self._store = store
        self._admission = admission
        self._registry = registry
        self._options = options
        self._wake_worker = wake_worker
        self._dice = dice
        self._logger = logger
        self._free_slots = free_slots
        self.lacks_slots = False
        """Whether jobs of known names are held that found no free slot: the next free slot is worth a run."""
        self._woken = asyncio.Event()

    async def run(self, availability: StoreAvailability) -> None:
        """Run when the next step is due, and at every poll."""
        while True:
            try:
                pause = await self.run_once()
                availability.answered("releaser")
            except StoreUnavailable as error:
                availability.failed("releaser", error)
                pause = self._options.poll.total_seconds()
            await self._rest(pause)

    async def run_once(self) -> float:
        """Release the jobs that may go; return the seconds until the next run."""
        self._woken.clear()
        self.lacks_slots = False
        pauses = [self._options.poll.total_seconds() * (0.5 + self._dice.roll())]
        holders: defaultdict[str, list[str]] = defaultdict(list)
        for holder in await self._store.providers.holders():
            name = awaited_name(holder)
            if name is None:
                holders[provider_of(holder)].append(holder)
            elif self._can_run(name, awaited_queue(holder)) and await self._release_known(name, holder):
                pauses.append(SHORTEST_REST)
        links = await self._refresh_links({*holders, *self._registry.providers})
        for link in links:
            link.held_keys = _keys(holders[link.name])
            if holders[link.name]:
                pauses.append(await self._release_held(link, holders[link.name]))
            elif link.state.breaker.ramp is not None:
                await link.end_release()
        return min(pauses)

    def _can_run(self, name: str, queue: str | None) -> bool:
        """Whether this worker knows the name and serves the queue; if not, released jobs would wait, or be held again."""
        return self._registry.get(name) is not None and (queue is None or queue in self._options.queues)

    async def _release_known(self, name: str, holder: str) -> bool:
        """Release jobs that waited for a worker which knows their name; return whether more may be released now.

        Only workers that know the name claim them from now on. The others skip them in the queue, so no more are
        released than this worker can take. One is released even if all slots are busy: an endless supply of ready
        jobs would otherwise keep the held ones waiting for ever.
        """
        free = self._free_slots()
        limit = max(1, min(free, BATCH))
        jobs = await self._store.providers.release(holder, limit=limit)
        if jobs:
            self._wake_worker.set()
            self._logger.info("jobs released", name=name, queue=awaited_queue(holder), jobs=jobs)
        if free < 1:
            self.lacks_slots = True
            return False
        return jobs == limit

    async def _refresh_links(self, names: set[str]) -> list[ProviderLink]:
        """Return the links to these providers, with their state read anew."""
        if not names:
            return []
        asked_at = asyncio.get_running_loop().time()
        now, rows = await self._store.providers.read(sorted(names))
        links = [self._admission.link_named(name) for name in sorted(names)]
        for link in links:
            row = rows.get(link.name)
            if row is None:
                link.update(SharedState(ProviderState(), 0, now, asked_at))
            else:
                link.update(SharedState(ProviderState.load(row.state), row.version, now, asked_at))
        return links

    async def _release_held(self, link: ProviderLink, holders: Sequence[str]) -> float:
        """Take the next step of a release, if it is time for it; return the seconds until there may be another."""
        spec = self._registry.providers.get(link.name)

        has_backup = self._has_backup(link.name)

        def step(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, dict[str, int], Sequence[Announcement]]:
            elsewhere = calls_for_backup(state.breaker) and has_backup
            after, counts = state.plan_release(
                link.name, spec, holders, now, limit=BATCH, elsewhere=elsewhere
            )
            return after, counts, ()

        counts = await link.change(step, keys=lambda state: state.keys_to_release(link.name, spec, holders))
        jobs = {holder: await self._release_batches(holder, size) for holder, size in counts.items()}
        # Where all held jobs are released, new jobs need not wait behind them.
        link.held_keys -= _keys(holder for holder, size in counts.items() if jobs[holder] < size)
        if any(jobs.values()):
            self._wake_worker.set()
            self._logger.info("held jobs released", provider=link.name, jobs=sum(jobs.values()))
        if jobs.get(link.name, 0) < counts.get(link.name, 0) and lets_through(link.state.breaker):
            # All are released. Jobs that came meanwhile, and were held, would otherwise prolong it without end.
            await link.end_release()
        if holders != [link.name] or has_backup:
            return LIMIT_RELEASE_EVERY
        soon = seconds_to_next_release(link.state.breaker, link.now)
        return self._options.poll.total_seconds() if soon is None else max(soon, LIMIT_RELEASE_EVERY)

    async def _release_batches(self, holder: str, size: int) -> int:
        """Release up to *size* jobs, a batch at a time; return how many there were."""
        released = 0
        while released < size:
            batch = min(size - released, BATCH)
            count = await self._store.providers.release(holder, limit=batch)
            released += count
            if count < batch:
                break
        return released

    def _has_backup(self, name: str) -> bool:
        """Whether a backup of the provider takes calls now, as far as is known."""
        return any(self._admission.link(backup).takes_calls for backup in self._registry.backups_of(name))

    def wake(self) -> None:
        """Run again soon: a breaker has changed, or a limit has room."""
        self._woken.set()

    async def _rest(self, pause: float) -> None:
        await asyncio.sleep(min(pause, SHORTEST_REST))  # however often it is woken
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()


def _keys(holders: Iterable[str]) -> set[str]:
    """Return the keys for whose limits jobs are held."""
    return {key for holder in holders if (key := limited_key(holder)) is not None}
