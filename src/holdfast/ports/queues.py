"""Queues: which are paused, and how many jobs are in each."""

from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from holdfast.core.jobs.states import Status


class Pause(NamedTuple):
    """A queue that was paused, by whom and why."""

    queue: str
    at: datetime
    actor: str
    reason: str


class Depth(NamedTuple):
    """How many jobs of a queue are in one state, and how long the first of them has been in it.

    *state* is `ready`, `scheduled` for a later time, `waiting` for something, `held` because its provider cannot be
    called, or `processing`.
    """

    queue: str
    state: str
    jobs: int
    oldest: timedelta


class QueueStore(Protocol):
    """The operations of a store on queues."""

    async def pause(self, queue: str, *, actor: str, reason: str) -> bool:
        """Pause *queue*: no worker claims from it until it is resumed. Return false if it was paused before."""
        ...

    async def resume(self, queue: str) -> bool:
        """Resume *queue*: workers claim from it again. Return false if it was not paused."""
        ...

    async def paused(self) -> list[Pause]:
        """List the queues that are paused."""
        ...

    async def counts(self) -> dict[tuple[str, Status], int]:
        """Count live jobs by queue and state, and ended ones by state under the queue's name.

        Exact; the cost grows with the number of all jobs: for tests, not for repeated use.
        """
        ...

    async def depths(self) -> list[Depth]:
        """Count live jobs by queue and state. The cost grows with their number, and not with that of ended jobs."""
        ...

    async def recent(self, *, limit: int) -> list[str]:
        """Return the queues of the *limit* newest jobs that have ended."""
        ...
