"""Fleets: Celery or arq workers that run the jobs of a queue, and the dispatches that tell them which.

A dispatch names a job, and carries nothing else. It is a request to run the job now, if it is still ready: one that
arrives twice or late does nothing, and one that got lost is sent again.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.core.jobs.job import Claim


class Dispatch(NamedTuple):
    """A ready job that a fleet is to run."""

    job_id: str
    name: str
    number: int
    """How often it was dispatched since it became ready, this time included."""


class DispatchBatch(NamedTuple):
    """What a queue's fleet is to be sent now."""

    dispatches: list[Dispatch]
    outstanding: int
    """How many dispatches the fleet has, these included: sent, and not arrived as far as is known."""


class DispatchStore(Protocol):
    """The operations of a store on dispatches."""

    async def take(self, queue: str, *, limit: int, resend: timedelta) -> DispatchBatch:
        """Record ready jobs of *queue* as dispatched, by priority, then oldest first, and return them.

        At most *limit* dispatches are outstanding. One that has not arrived after *resend* counts as lost, and is
        returned again; each further time after twice as long, up to eight times. A paused queue has none.
        """
        ...

    async def withdraw(self, job_ids: Sequence[str]) -> None:
        """Forget dispatches that could not be sent: the jobs are to be dispatched again."""
        ...

    async def claim(
        self, worker: str, job_ids: Sequence[str], *, lease: timedelta, knows: Sequence[str] | None = None
    ) -> list[Claim]:
        """Take those of *job_ids* that are ready and whose queue is not paused, as `Store.claim` does.

        Their dispatches have arrived, whether the job was taken or not.
        """
        ...

    async def expire_lease(self, job_id: str, worker: str) -> bool:
        """Let the lease that *worker* has on a job expire now, because its process is dead; return whether it had it."""
        ...


class DispatchSender(Protocol):
    """A connection to the broker of a fleet. It connects when it is first used."""

    async def send(self, queue: str, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        """Send dispatches, and return the ids of those that the broker has confirmed. Bounded in time.

        Raises `BrokerUnavailable` if none was sent, or it is not known which.
        """
        ...

    async def check(self) -> str:
        """Connect, and return what `holdfast doctor` displays: product and version. Raises `BrokerUnavailable`."""
        ...

    async def close(self) -> None:
        """Disconnect. A later call connects again."""
        ...


@runtime_checkable
class CheckedSender(DispatchSender, Protocol):
    """A sender that knows how its broker should be configured."""

    async def warnings(self) -> Sequence[str]:
        """Return what may lose dispatches, each with what to do about it. Raises `BrokerUnavailable`."""
        ...


class Transport(Protocol):
    """How the jobs of a queue reach the fleet that runs them."""

    @property
    def kind(self) -> str:
        """Its name for people: `celery` or `arq`."""
        ...

    @property
    def slots(self) -> int:
        """How many jobs the fleet runs at a time, all its workers together."""
        ...

    @property
    def resend(self) -> timedelta:
        """After which time a dispatch that has not arrived counts as lost."""
        ...

    def open(self) -> DispatchSender:
        """Make a connection to the broker, without connecting yet."""
        ...
