"""What a job is: as submitted, as claimed, and as seen by a person.

The values that pass through a worker's hot path are named tuples, because making
one costs a fifth of what a frozen dataclass costs; the others are dataclasses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.core.failures import Failure
from holdfast.core.states import Status


class Submission(NamedTuple):
    """One call of a job function, ready to be stored.

    *args* is strict JSON. *delay* is a length of time, *run_at* an instant; at most one is set.
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

    @property
    def unique(self) -> bool:
        """Whether an earlier job may stand in for this one."""
        return self.key is not None or self.subject is not None


class Receipt(NamedTuple):
    """The store's answer to a submission: which job stands for it."""

    id: str
    existing: bool = False
    payload_differs: bool = False


class Claim(NamedTuple):
    """A lease on one job: what a worker may run, and the token that lets it write.

    *attempt* counts claims since the last stored stage result, this one included.
    *losses* counts leases lost in a row: a job that lost two is run alone.
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


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its row tells it, live or ended."""

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
    cancel_requested: bool = False
    subject: str | None = None
    version: int | None = None
    trace: str | None = None
    result: str | None = None
    failure: Failure | None = None
    stage: str | None = None


class EventKind(StrEnum):
    """What can happen to a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    STAGE = "stage"
    RETRY = "retry"
    HELD = "held"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"
    WARNING = "warning"
    """Nothing changed, but somebody should know: the job's key was used again with another payload."""


@dataclass(frozen=True, slots=True)
class Event:
    """An entry in a job's history."""

    kind: EventKind
    at: datetime
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a person wants to see, newest first. `None` means any."""

    status: Status | None = None
    name: str | None = None
    owner: str | None = None
    queue: str | None = None
    limit: int = 50
    before: str | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"limit={self.limit} shows nothing; ask for at least one job")
        if self.before is not None:
            UUID(self.before)  # raises ValueError: a page ends at a job's id
