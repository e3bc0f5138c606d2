"""The releaser: releases jobs that are held for a provider, as fast as the provider can take them, and jobs that
wait for a worker which knows their name, if this one does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta

from holdfast.core.providers.breaker_state import calls_for_backup, lets_through
from holdfast.core.providers.holder import Holder
from holdfast.core.providers.limits import LIMIT_RELEASE_EVERY
from holdfast.core.providers.provider_state import ProviderState
from holdfast.core.providers.ramp import seconds_to_next_release
from holdfast.engine.providers.admission import Admission
from holdfast.engine.providers.provider_link import ProviderLink
from holdfast.engine.providers.shared_state import HistoryEntry, SharedState
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service

BATCH = 1_000

SHORTEST_REST = 0.1
"""The least seconds between two runs."""


class Releaser(Service):
    """Releases held jobs. Every worker has one; the first that writes the next step to the provider's state takes it.

    A worker that dies between that write and the release costs the jobs one step: the next step releases them.
    """

    name = "releaser"
    shortest_rest = SHORTEST_REST

    def __init__(
        self,
        runtime: Runtime,
        poll: timedelta,
        admission: Admission,
        *,
        queues: Collection[str],
        wake_worker: Callable[[], None],
        free_slots: Callable[[], int],
    ) -> None:
        self._poll = poll.total_seconds()
        super().__init__(runtime, store_pause=self._poll)
        self._queues = queues
        self._admission = admission
        self._registry = runtime.registry
        self._wake_worker = wake_worker
        self._free_slots = free_slots
        self.lacks_slots = False
        """Whether jobs of known names are held that found no free slot: the next free slot is worth a run."""

    async def run_once(self) -> float:
        """Release the jobs that may go; return the seconds until the next run."""
        self.lacks_slots = False
        pauses = [self._jittered(self._poll)]
        holders: defaultdict[str, list[Holder]] = defaultdict(list)
        for holder in await self._store.providers.holders():
            if holder.provider is not None:
                holders[holder.provider].append(holder)
            elif self._can_run(holder.job, holder.queue) and await self._release_known(holder):
                pauses.append(SHORTEST_REST)
        links = await self._refresh_links({*holders, *self._registry.providers})
        for link in links:
            link.limits.set_held(_keys(holders[link.name]))
            if holders[link.name]:
                pauses.append(await self._release_held(link, holders[link.name]))
            elif link.state.breaker.ramp is not None:
                await link.end_release()
        return min(pauses)

    def _can_run(self, name: str, queue: str | None) -> bool:
        """Whether this worker knows the name and serves the queue; if not, released jobs would wait, or be held again."""
        return self._registry.get(name) is not None and (not queue or queue in self._queues)

    async def _release_known(self, holder: Holder) -> bool:
        """Release jobs that waited for a worker which knows their name; return whether more may be released now.

        Only workers that know the name claim them from now on. The others skip them in the queue, so no more are
        released than this worker can take. One is released even if all slots are busy: an endless supply of ready
        jobs would otherwise keep the held ones waiting for ever.
        """
        free = self._free_slots()
        limit = max(1, min(free, BATCH))
        jobs = await self._store.providers.release(holder, limit=limit)
        if jobs:
            self._wake_worker()
            self._logger.info("jobs released", name=holder.job, queue=holder.queue or None, jobs=jobs)
        if free < 1:
            self.lacks_slots = True
            return False
        return jobs == limit

    async def _refresh_links(self, names: set[str]) -> list[ProviderLink]:
        """Return the links to these providers, with their state read again."""
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

    async def _release_held(self, link: ProviderLink, holders: Sequence[Holder]) -> float:
        """Take the next step of a release, if it is time for it; return the seconds until there may be another."""
        spec = self._registry.providers.get(link.name)
        backups = self._registry.backups_of(link.name)
        has_backup = any(self._admission.link(backup).takes_calls for backup in backups)

        def step(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, dict[Holder, int], Sequence[HistoryEntry]]:
            to_backup = calls_for_backup(state.breaker) and has_backup
            after, counts = state.plan_release(
                link.name, spec, holders, now, limit=BATCH, to_backup=to_backup
            )
            return after, counts, ()

        counts = await link.change(step, keys=lambda state: state.keys_to_release(spec, holders))
        jobs = {holder: await self._release_batches(holder, size) for holder, size in counts.items()}
        # Where all held jobs are released, new jobs need not wait behind them.
        link.limits.released(_keys(holder for holder, size in counts.items() if jobs[holder] < size))
        if any(jobs.values()):
            self._wake_worker()
            self._logger.info("held jobs released", provider=link.name, jobs=sum(jobs.values()))
        breaker = Holder(link.name)
        if jobs.get(breaker, 0) < counts.get(breaker, 0) and lets_through(link.state.breaker):
            # All are released. Jobs that came meanwhile, and were held, would otherwise prolong it without end.
            await link.end_release()
        if holders != [breaker] or has_backup:
            return LIMIT_RELEASE_EVERY
        soon = seconds_to_next_release(link.state.breaker, link.now)
        return self._poll if soon is None else max(soon, LIMIT_RELEASE_EVERY)

    async def _release_batches(self, holder: Holder, size: int) -> int:
        """Release up to *size* jobs, a batch at a time; return how many there were."""
        released = 0
        while released < size:
            batch = min(size - released, BATCH)
            count = await self._store.providers.release(holder, limit=batch)
            released += count
            if count < batch:
                break
        return released


def _keys(holders: Iterable[Holder]) -> set[str]:
    """Return the keys for whose limits jobs are held."""
    return {holder.key for holder in holders if holder.key is not None}
