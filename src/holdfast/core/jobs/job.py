"""A job: as submitted, as claimed, and as displayed.

The values that pass through a worker's hot path are named tuples, because making
one costs a fifth of what a frozen dataclass costs; the others are dataclasses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.core.durations import Duration, duration
from holdfast.core.errors import JobNotFound
from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.states import Status
from holdfast.core.providers.holder import Holder
from holdfast.core.strict_json import ensure_storable


def known_id(job_id: str) -> str:
    """Return a job's id in the one spelling that is stored. Raises `JobNotFound` if it is not an id.

    >>> known_id("01900000-0000-7000-8000-00000000000A")
    '01900000-0000-7000-8000-00000000000a'
    """
    try:
        return str(UUID(job_id))
    except ValueError:
        raise JobNotFound(f"there is no job {job_id!r}; a job's id is a UUID") from None


class Submission(NamedTuple):
    """One call of a job function, ready to be stored.

    *args* is strict JSON. *delay* is a duration, *run_at* an instant; at most one is set. So are *deadline* and
    *deadline_at*.
    """

    id: str
    name: str
    queue: str
    owner: str
    args: str
    priority: int = 0
    delay: timedelta | None = None
    run_at: datetime | None = None
    key: str | None = None
    subject: str | None = None
    version: int | None = None
    rerun: bool = False
    strict_keys: bool = False
    fingerprint: str | None = None
    trace: str | None = None
    deadline: timedelta | None = None
    deadline_at: datetime | None = None
    announces: int = 0
    """What it announces: the bits of `AnnouncementKind`."""

    @property
    def unique(self) -> bool:
        """Whether an earlier job may be the answer to it."""
        return self.key is not None or self.subject is not None


class Receipt(NamedTuple):
    """The store's answer to a submission: which job stands for it."""

    id: str
    existing: bool = False
    payload_differs: bool = False


class Claim(NamedTuple):
    """A lease on one job: what a worker may run, and the token that lets it write.

    *attempt* counts claims since the last stored stage result, this one included.
    *losses* counts leases lost in a row, and *excused* says that one more was lost, for which another job is held
    responsible. *failed_runs* counts those of this generation that failed or lost their worker.
    *time_left* is the time from the claim to the job's deadline, in seconds.
    *held_by* is what held the job before, if it was released since it last went back to its queue.
    """

    id: str
    name: str
    queue: str
    owner: str
    args: str
    attempt: int
    generation: int
    token: int
    losses: int
    stages: int
    cancel_requested: bool
    trace: str | None
    time_left: float | None = None
    signals: int = 0
    held_by: Holder | None = None
    failed_runs: int = 0
    excused: bool = False

    @property
    def suspected(self) -> bool:
        """Whether the job may have crashed its workers. Its claim has spent no attempt yet: `Store.begin` does."""
        return self.losses > 0 or self.excused


MOST_SIGNALS = 10_000
"""Most signals of one job over its life: all are read each time the job waits for one."""


class Signal(NamedTuple):
    """A signal that was sent to a job. Its number is its place among all signals of the job."""

    job_id: str
    number: int
    name: str
    data: str


class End(NamedTuple):
    """How a job ended; of one that has not, that it lives."""

    id: str
    name: str
    status: Status
    result: str | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its row describes it, live or ended.

    `waiting` says that it sleeps, or waits for a signal or for other jobs, `pending` for how many of those. `held_by`
    names its holder, as long as it is held. With `purged_at`, its arguments, stages and history were deleted then, and
    only its end is left, for as long as its key is taken.
    """

    id: str
    name: str
    queue: str
    owner: str
    status: Status
    priority: int
    attempt: int
    generation: int
    lease_token: int
    losses: int
    created_at: datetime
    queued_at: datetime
    updated_at: datetime
    args: str = ""
    started_at: datetime | None = None
    last_attempt: int = 0
    last_attempt_at: datetime | None = None
    retry_after: datetime | None = None
    leased_by: str | None = None
    lease_expires_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    timed_out_at: datetime | None = None
    late_at: datetime | None = None
    late_result: str | None = None
    cancel_requested: bool = False
    waiting: bool = False
    pending: int = 0
    held_by: str | None = None
    subject: str | None = None
    version: int | None = None
    trace: str | None = None
    result: str | None = None
    failure: Failure | None = None
    stage: str | None = None
    purged_at: datetime | None = None


class EventKind(StrEnum):
    """What can happen to a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    STAGE = "stage"
    RETRY = "retry"
    PARKED = "parked"
    """It waits for a time, a signal or other jobs."""
    HELD = "held"
    """It waits until its provider can be called, or for a worker that knows its name.

    Earlier versions wrote this for parked jobs, too.
    """
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"
    WARNING = "warning"
    """Nothing changed, but an operator may want to know: the job's key was used again with another payload."""
    ACCEPTED = "accepted"
    """An operator accepted a result that had come after the deadline."""
    SIGNALLED = "signalled"
    """A signal was sent to the job."""
    PURGED = "purged"
    """The job's arguments, stages and history were deleted: only its end is left, for as long as its key is taken."""


@dataclass(frozen=True, slots=True)
class Event:
    """An entry in a job's history."""

    kind: EventKind
    at: datetime
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list, newest first. `None` means any.

    *at_risk* is how close the deadline of a job that has not ended may be; those come with the nearest deadline
    first, so there is no page *before* a job.
    """

    status: Status | None = None
    name: str | None = None
    owner: str | None = None
    queue: str | None = None
    limit: int = 50
    before: str | None = None
    at_risk: Duration | None = None
    key: str | None = None
    subject: str | None = None
    version: int | None = None

    @property
    def by_key(self) -> bool:
        """Whether it asks for an idempotency key, or for a subject or a version."""
        return (self.key, self.subject, self.version) != (None, None, None)

    def __post_init__(self) -> None:
        ensure_storable(
            name=self.name, owner=self.owner, queue=self.queue, key=self.key, subject=self.subject
        )
        if self.limit < 1:
            raise ValueError(f"limit={self.limit} shows nothing; ask for at least one job")
        if self.before is not None:
            UUID(self.before)  # raises ValueError: a page ends at a job's id
        if self.at_risk is not None:
            duration(self.at_risk)  # raises ValueError
            self._ensure_at_risk_allowed()

    def _ensure_at_risk_allowed(self) -> None:
        if self.by_key:
            raise ValueError("jobs at risk are not found by key, subject or version; leave at_risk= out")
        if self.before is not None:
            raise ValueError(
                "jobs at risk come by deadline, without pages; raise limit= instead of giving before="
            )
        if self.status is not None and self.status.ended:
            raise ValueError(
                f"a job that is {self.status} has ended, and none of those is at risk of its deadline"
            )
