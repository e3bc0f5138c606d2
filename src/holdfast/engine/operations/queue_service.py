"""The queue service: list, pause and resume queues."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import ConfigError
from holdfast.core.names import ensure_name
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.operations.store_access import OperatorService, in_sync
from holdfast.ports.queues import Depth, Pause

if TYPE_CHECKING:
    import builtins

RECENT = 10_000
"""An empty queue is listed if one of this number of last ended jobs was in it."""


class QueueStatus(NamedTuple):
    """A queue, the number of its live jobs, and its pause, if it is paused."""

    queue: str
    queued: int
    processing: int
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str | None = None
    held: int = 0
    """How many of the queued jobs are held for a provider."""


class QueueService(OperatorService):
    """Lists, pauses and resumes queues, for operators. Reached as `hold.queues`."""

    async def list(self) -> "builtins.list[QueueStatus]":
        """Return every queue that is paused, has a live job, or had one of the last 10,000 jobs that ended."""
        jobs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for depth in await self.depths():
            jobs[depth.queue][depth.state] = depth.jobs
        pauses = {pause.queue: pause for pause in await self.pauses()}
        recent = await self._store.queues.recent(limit=RECENT)
        return [_status(name, jobs[name], pauses.get(name)) for name in sorted({*jobs, *pauses, *recent})]

    async def depths(self) -> "builtins.list[Depth]":
        """Return the number of live jobs by queue and state."""
        await self._access.open()
        return await self._store.queues.depths()

    async def pauses(self) -> "builtins.list[Pause]":
        """Return the queues that are paused, with the actor, the time and the reason."""
        await self._access.open()
        return await self._store.queues.paused()

    async def ensure_known(self, queue: str, *, served: Iterable[str]) -> None:
        """Raise `ConfigError` for a queue without jobs and pause that no declaration names and no worker serves.

        Without declarations only jobs and pauses are known. Ended jobs are counted last: there may be many.
        """
        known = {"default", *served, *(spec.queue for spec in self._runtime.registry)}
        known |= {depth.queue for depth in await self.depths()}
        known |= {pause.queue for pause in await self.pauses()}
        if queue not in known:
            known |= {name for name, _ in await self._store.queues.counts()}
        if queue not in known:
            raise ConfigError(f"there is no queue {queue!r}; known queues: {', '.join(sorted(known))}")

    async def pause(self, queue: str, *, actor: str, reason: str = "") -> bool:
        """Pause a queue: within a poll, workers start no more of its jobs. Return False if it was paused before.

        Running jobs go on.
        """
        ensure_storable(actor=actor, reason=reason)
        await self._access.open_for_change()
        paused = await self._store.queues.pause(ensure_name(queue, "queue"), actor=actor, reason=reason)
        if paused:
            self._runtime.logger.info("queue paused", queue=queue, actor=actor, reason=reason)
        return paused

    async def resume(self, queue: str, *, actor: str) -> bool:
        """Resume a queue: workers start its jobs again. Return False if it was not paused."""
        ensure_storable(queue=queue, actor=actor)
        await self._access.open_for_change()
        resumed = await self._store.queues.resume(queue)
        if resumed:
            self._runtime.logger.info("queue resumed", queue=queue, actor=actor)
        return resumed

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    depths_sync = in_sync(depths)
    pauses_sync = in_sync(pauses)
    ensure_known_sync = in_sync(ensure_known)
    pause_sync = in_sync(pause)
    resume_sync = in_sync(resume)


def _status(name: str, jobs: Mapping[str, int], pause: Pause | None) -> QueueStatus:
    processing = jobs.get("processing", 0)
    found = QueueStatus(name, sum(jobs.values()) - processing, processing, held=jobs.get("held", 0))
    if pause is None:
        return found
    return found._replace(paused_by=pause.actor, paused_at=pause.at, reason=pause.reason)
