"""The store: the database of jobs, and the single source of truth about them.

Each method is one complete operation: it takes effect completely or not at all, and uses the
store's own clock. Every write for a claimed job carries its lease token; one that no longer
matches changes nothing and is reported.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol

from holdfast.core.jobs.job import Claim, End, Event, Job, JobFilter, Receipt, Signal, Submission
from holdfast.core.jobs.stages import StageRow
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Transition
from holdfast.ports.dead_letters import DeadLetterStore, ReplayPlanStore, RetentionStore, TicketStore
from holdfast.ports.fleets import DispatchStore
from holdfast.ports.messages.announcements import AnnouncementStore
from holdfast.ports.messages.inbox import InboxStore
from holdfast.ports.messages.outbox import OutboxStore
from holdfast.ports.providers import ProviderStore
from holdfast.ports.queues import QueueStore
from holdfast.ports.schedules import ScheduleStore
from holdfast.ports.schema import APPLY_LIMIT, LockWait, SchemaState


class HintKind(StrEnum):
    """What a hint is about."""

    READY = "ready"
    FINISHED = "finished"
    CANCEL = "cancel"
    TAKEN = "taken"
    MESSAGE = "message"
    """Messages were stored in the outbox. The subject is empty."""


class Hint(NamedTuple):
    """A notification that may shorten a wait. Hints get lost: nothing may depend on one."""

    kind: HintKind
    subject: str
    by: str = ""
    """Which worker has taken the jobs, if they are taken."""
    listeners: int = 1
    """How many processes listen for hints, as far as that worker knows."""


class Promotion(NamedTuple):
    """How many parked jobs became ready, and how long until the next one is due.

    Jobs that are due and were left out by the limit are not the next one: promote again.
    """

    promoted: int
    next_due: timedelta | None


class Extension(NamedTuple):
    """What a worker learns when it extends its leases."""

    lost: frozenset[str]
    cancel_requested: frozenset[str]
    timed_out: frozenset[str] = frozenset()
    """Jobs whose deadline has passed under this very lease, whether it has ended them already or not."""
    locked: frozenset[str] = frozenset()
    """Jobs whose lease is not lost, but was not extended either: another session has locked them."""


class Leased(NamedTuple):
    """A job that a worker has leased, as the store knows it."""

    id: str
    token: int
    attempt: int
    """The attempt that the claim counted."""


class LeaseExtender(Protocol):
    """Extends leases without the event loop, on a connection of its own. One thread uses it."""

    def extend(self, worker: str, *, lease: timedelta) -> int:
        """Push all leases of *worker* forward, and count them; it connects if it has to, and blocks meanwhile.

        A lease that was lost stays lost. One that another session is writing to at this moment may be left out.
        Raises `StoreUnavailable`.
        """
        ...

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        ...


class Settled(IntEnum):
    """How the store settled a transition."""

    FENCED = 0
    """The lease was lost: nothing was changed."""
    WRITTEN = 1
    LATE = 2
    """The job had timed out before, and its result is kept as late."""
    TIMED_OUT = 3
    """The job's deadline had passed: with this write it has timed out, and a result is kept as late."""
    OVER = 4
    """The deadline had ended this very lease before: nothing was changed, and there was no result to keep."""
    EARLY = 5
    """The write was to time the job out, and its deadline has not passed: nothing was changed, and the lease goes on."""
    LOCKED = 6
    """Another session has locked the job, and did not release it in time: nothing was changed. Send the transition again, apart from others."""


class SubmissionRefusal(NamedTuple):
    """A submission that was refused, while others of its batch were stored."""

    error: Exception


class Store(Protocol):
    """The operations of a store on jobs, and its parts for everything else. One contract suite tests every store."""

    @property
    def queues(self) -> QueueStore:
        """Operations on queues."""
        ...

    @property
    def dispatches(self) -> DispatchStore:
        """Operations on the dispatches of jobs to fleets."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """Operations on schedules of recurring jobs."""
        ...

    @property
    def providers(self) -> ProviderStore:
        """Operations on providers, and on the jobs that are held for one."""
        ...

    @property
    def dead_letters(self) -> DeadLetterStore:
        """Operations on dead letters."""
        ...

    @property
    def replay_plans(self) -> ReplayPlanStore:
        """Operations on replay plans."""
        ...

    @property
    def tickets(self) -> TicketStore:
        """Operations on tickets and alarms."""
        ...

    @property
    def retention(self) -> RetentionStore:
        """Operations that archive, delete and restore."""
        ...

    @property
    def inbox(self) -> InboxStore:
        """Operations on messages that were received."""
        ...

    @property
    def outbox(self) -> OutboxStore:
        """Operations on the outbox of messages."""
        ...

    @property
    def announcements(self) -> AnnouncementStore:
        """Operations on the announcements of jobs."""
        ...

    async def open(self) -> None:
        """Connect. Raises `StoreUnavailable` or `SchemaError` whose message states what to do."""
        ...

    async def close(self) -> None:
        """Disconnect, after the operations in flight have ended."""
        ...

    async def apply_schema(
        self, *, limit: timedelta = APPLY_LIMIT, blocked: Callable[[LockWait], object] | None = None
    ) -> SchemaState:
        """Bring the database to this code's schema, and return what it was before.

        While other sessions hold locks on the tables, it retries for up to *limit*, lets all other
        sessions proceed between two tries, and calls *blocked* after each. Raises `StoreUnavailable` then: nothing was changed.
        """
        ...

    async def schema_state(self) -> SchemaState:
        """Return which schema the database has."""
        ...

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        """Store *batch* durably; return an answer for each, in order, as if they were submitted one after the other.

        After `StoreUnavailable` the outcome is unknown; sent *again*, the same submissions make
        no second job, whether or not the first try was committed.
        """
        ...

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        """Store *batch* in the transaction that *connection* is in: durable when its owner commits."""
        ...

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        """Take up to *limit* ready jobs, by priority, then oldest first, and spend an attempt of each.

        A job that has lost its worker before is suspected (`Claim.suspected`): `begin` spends its attempt. Jobs that
        were released for workers which know their name are left to those: taken only if it is in *knows*.
        """
        ...

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        """Write the transitions of claimed jobs; return for each how it was settled.

        Stages are written before the ends of their jobs, in any order of *batch*. A lease ends
        once: of two ends for one lease in the same batch, none may be sent. A job that ends after its
        deadline has timed out, regardless of its transition. A result under the lease that the deadline
        ended is kept as late. A job that another session has locked keeps no other from being written.
        """
        ...

    async def settle_within(self, connection: Any, end: Finish) -> Settled:
        """End a claimed job with a result, in the transaction that *connection* is in: it has ended when its owner commits.

        Returns `WRITTEN`, or `TIMED_OUT` or `LATE` if its deadline has passed, and `FENCED` if the lease was lost.
        """
        ...

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        """Push the leases of these (job, token) pairs forward, in one statement, and return what became of the others.

        It does not wait for jobs that another session has locked, but names them.
        """
        ...

    async def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
        """Spend the attempts of suspected jobs, as (job, token), before they run; return whether each token matched."""
        ...

    async def leased_to(self, worker: str) -> list[Leased]:
        """List the jobs that *worker* has leased, after all that it had sent before."""
        ...

    def lease_extender(self) -> LeaseExtender:
        """Make an extender of leases for a blocked event loop. It is not connected yet."""
        ...

    async def cancel_requests(self, worker: str) -> list[str]:
        """List the jobs of *worker* whose cancellation was requested."""
        ...

    async def promote(self, *, limit: int) -> Promotion:
        """Make parked jobs ready whose time has come."""
        ...

    async def reclaim(self, *, limit: int) -> list[str]:
        """Requeue jobs whose lease has expired, and return their ids.

        Each has lost its worker once more. If a suspected job was running in that worker, the others are excused, and
        their next claims give the attempts back; each job is excused once in a row. A suspected job that was not begun
        has lost nothing.
        """
        ...

    async def expire(self, *, limit: int) -> list[str]:
        """End jobs whose deadline has passed, in any live state, and return their ids."""
        ...

    async def accept_late(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        meta: str,
        then: Submission | None = None,
        late_at: datetime | None = None,
    ) -> Job:
        """Accept the late result of a job, note *meta* in its history, and submit *then* with it.

        With *late_at*, only the result that came at that time: *then* was made of it, and of no other.
        Raises `StateRefused` if the job has no late result, `JobNotFound` if it is not *owner*'s.
        """
        ...

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        """Leave a signal with a live job, note it in its history, and wake it if it waits.

        Raises `StateRefused` if the job has ended, or was sent `MOST_SIGNALS` before, `JobNotFound` if it is not
        *owner*'s.
        """
        ...

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        """Read the signals of these jobs, in order."""
        ...

    async def await_jobs(self, job_id: str, token: int, others: Sequence[str]) -> bool:
        """Register the leased job to be woken once *others* have ended; return false if its token does not match.

        Idempotent.
        """
        ...

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        """Read how these jobs ended, or that they live, as of one moment; one that does not exist is left out."""
        ...

    async def wake(self, *, limit: int) -> int:
        """Deliver ends to the jobs that wait for them, and make those ready; return the number of ends."""
        ...

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        """End a queued job, or ask the worker of a running one to stop.

        Returns `cancelled`, or `processing` if the request was stored for the worker.
        Raises `StateRefused` if the job had ended, `JobNotFound` if it is not *owner*'s.
        """
        ...

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        """Bring a failed job back as a new generation, its attempts zeroed, its finished stages kept.

        Its dead letter is closed, as retried by its owner. With the *generation* in which it was seen to fail, a job
        that has failed in another one is not changed. Raises `StateRefused` if the job has not failed, or not in that
        generation, `JobNotFound` if it is not *owner*'s.
        """
        ...

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        """Read one job. Raises `JobNotFound` if it is absent or not *owner*'s.

        Of a job that was purged while its key is taken, the end is left: it has `purged_at`, and no arguments.
        """
        ...

    async def find(self, job_filter: JobFilter) -> list[Job]:
        """List jobs, newest first."""
        ...

    async def events(self, job_id: str) -> list[Event]:
        """Read a job's history, in order."""
        ...

    async def ids_between(self, low: str, high: str, *, limit: int) -> list[str]:
        """Return job ids from *low* to *high*, in order."""
        ...

    async def keys_of(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the idempotency keys of those of these jobs that have one."""
        ...

    async def reasons(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return why these jobs were last requeued; one that was not is left out."""
        ...

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        """Read what is stored of the stages of these jobs."""
        ...

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        """Return those of *job_ids* that have ended, and request a hint when the others end."""
        ...

    async def now(self) -> datetime:
        """Return the time by which everything in this store is decided."""
        ...

    async def redaction_key(self) -> bytes:
        """Return the key of this store's redaction tags: made at random with its schema, and never changed."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return what `holdfast doctor` reports: version, durability settings, connections, and its own time as `now`."""
        ...

    def notify_taken(self, worker: str, queue: str) -> None:
        """Notify other workers, soon, that *worker* has taken what they were hinted at, and that nothing is left of it.

        It may get lost like every hint. A store whose hints reach a single process may do nothing.
        """
        ...

    def listen(
        self, receive: Callable[[Hint], None], kinds: Collection[HintKind] = tuple(HintKind)
    ) -> Callable[[], None]:
        """Pass hints of these *kinds* to *receive* until the returned function is called."""
        ...
