"""An auditor: it reads the tables after every commit, and checks each change against what is allowed.

It knows who committed, and when by the database's clock; it asks no process what it believes. A commit
may batch several operations, so a rule says where a row may go, not in which single steps.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import ErrorClass
from holdfast.core.messages.dead_message import INTERNAL_JOBS
from tests.simulation.account import LOST, Account, NewEvent
from tests.simulation.dead_letter_oracle import DeadLetterOracle, Jobs
from tests.simulation.files import Tables
from tests.simulation.fleet_oracle import FleetOracle
from tests.simulation.message_oracle import MessageOracle
from tests.simulation.provider_oracle import ProviderOracle
from tests.simulation.timing_oracle import TICK, Notices, TimingOracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_JOBS = """
SELECT id, name, queue, priority, status, attempt, generation, lease_token, leased_by, lease_expires_at,
       retry_after, cancel_requested, NULL AS result, losses, waiting, signals, pending, deadline_at,
       NULL AS timed_out_at, NULL AS late_result, held_by, let_out_by, suspicion, excused
  FROM holdfast_jobs
"""
_ENDED = """
SELECT id, name, queue, priority, status, attempt, generation, lease_token, leased_by, NULL, NULL, 0,
       coalesce(result, failure), losses, 0, 0, 0, deadline_at, timed_out_at, late_result, NULL, NULL, 0, 0
  FROM holdfast_finished
"""
_STAGES = """
SELECT job_id, name, call, status, attempt, result, coalesce(failure, ''), lease_token FROM holdfast_stages
"""
_EVENTS = "SELECT seq, job_id, kind, meta FROM holdfast_job_events WHERE seq > ? ORDER BY seq"
_LAST_EVENT = "SELECT coalesce(max(seq), 0) FROM holdfast_job_events"

_AWAITED_ENDS = "SELECT child_id FROM holdfast_awaited_ends"
_PAUSED = "SELECT queue, paused_at FROM holdfast_paused_queues"
_PROVIDERS = "SELECT name, version, state FROM holdfast_providers"
_KEYS = "SELECT name, key, expires_at FROM holdfast_provider_keys"
_MARKS = "SELECT name, last_at FROM holdfast_schedules"

_STEPS = {
    "queued": {"processing", "failed", "cancelled"},
    "processing": {"queued", "completed", "failed", "cancelled"},
    "failed": {"queued", "completed"},
}


MOST_JOBS = 400
"""Jobs beyond which a world is given up: something submits itself again and again, and no schedule does."""


class Row(NamedTuple):
    """A job as its row stores it."""

    id: str
    name: str
    queue: str
    priority: int
    status: str
    attempt: int
    generation: int
    token: int
    worker: str | None
    lease_ends: int | None
    retry_after: int | None
    cancel_requested: int
    result: str | None
    losses: int
    waiting: int
    signals: int
    pending: int
    deadline: int | None
    timed_out_at: int | None
    late_result: str | None
    held_by: str | None = None
    let_out_by: str | None = None
    suspicion: int = 0
    excused: int = 0

    @property
    def timed_out(self) -> bool:
        """Whether its deadline ended it."""
        return self.timed_out_at is not None

    @property
    def ready(self) -> bool:
        """Whether a claim may take it."""
        return self.status == "queued" and self.retry_after is None

    @property
    def ended(self) -> bool:
        """Whether it is out of every worker's reach."""
        return self.status in ("completed", "failed", "cancelled")


class StageRow(NamedTuple):
    """What is stored of a stage."""

    job_id: str
    name: str
    call: str
    status: str
    attempt: int
    result: str | None
    failure: str
    token: int


class Commit(NamedTuple):
    """Who committed, and when by the database's clock, in microseconds."""

    worker: str
    at: int


class Leased(NamedTuple):
    """When a lease was last written: by the database's clock, and in seconds that no clock can be set by."""

    at: int
    seconds: float


class Books(NamedTuple):
    """All that the tables hold after a commit, and the events that it wrote, by job."""

    jobs: dict[str, Row]
    stages: dict[tuple[str, str, str], StageRow]
    events: dict[str, list[NewEvent]]
    notices: Notices
    providers: dict[str, tuple[int, str]]
    keys: dict[tuple[str, str], int]
    """When what is given out of each key's limit means nothing any more."""


class Auditor:
    """Compares the tables before and after each commit, and reports what may not happen."""

    def __init__(self, path: str, report: Callable[[str], None], *, time: Callable[[], float]) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._tables = Tables(self._connection)
        self._report = report
        self._time = time
        self._last_event = 0
        self._leased: dict[str, Leased] = {}
        self._claimed_at: dict[str, float] = {}
        self._account = Account()
        self.timing_oracle = TimingOracle()
        self.provider_oracle = ProviderOracle(report, time=time)
        self.dead_letter_oracle = DeadLetterOracle()
        self.message_oracle = MessageOracle(report)
        self.fleet_oracle = FleetOracle()
        self.at_work = False
        self._live: dict[str, Row] = {}
        self._ended: dict[str, Row] = {}
        self.jobs: dict[str, Row] = {}
        self.stages: dict[tuple[str, str, str], StageRow] = {}
        self.untroubled: Callable[[str, float], bool] = lambda worker, since: False
        """Whether a worker has run without a fault since some moment."""
        self.is_dead: Callable[[str], bool] = lambda worker: False
        """Whether the process of a worker has ended."""

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def look(self, commit: Commit) -> list[Row]:
        """Check all that has changed since the last look; return the jobs that did."""
        if not self.at_work or not self._tables.changed():
            return []
        books = self._read()
        changed = self._changed(books.jobs)
        for text in self._complaints(books, changed, commit):
            self._report(text)
        self._remember(books, changed, commit)
        return changed

    def claimed_at(self, job_id: str) -> float:
        """Return when the present lease of a job began."""
        return self._claimed_at[job_id]

    def left_by(self, worker: str) -> list[Row]:
        """Return the jobs that a worker still holds though it met no fault since it claimed or extended them."""
        return [
            row
            for row in self.jobs.values()
            if row.worker == worker
            and row.status == "processing"
            and self.untroubled(worker, self._leased[row.id].seconds)
        ]

    def _changed(self, jobs: dict[str, Row]) -> list[Row]:
        before = self.jobs
        if jobs is before:
            return []
        return [row for row in jobs.values() if (old := before.get(row.id)) is not row and old != row]

    def _read(self) -> Books:
        read = self._tables.read
        live, ended = read(_JOBS, self._job_rows), read(_ENDED, self._job_rows)
        if live is not self._live or ended is not self._ended:
            self._live, self._ended, jobs = live, ended, live | ended
        else:
            jobs = self.jobs
        return Books(
            jobs,
            read(_STAGES, lambda rows: {row[:3]: StageRow._make(row) for row in rows}),
            self._read_events(),
            Notices(
                read(_AWAITED_ENDS, lambda rows: {child_id for (child_id,) in rows}),
                read(_PAUSED, dict),
                read(_MARKS, dict),
            ),
            read(_PROVIDERS, lambda rows: {name: (version, state) for name, version, state in rows}),
            read(_KEYS, lambda rows: {(name, key): expires for name, key, expires in rows}),
        )

    def _job_rows(self, rows: Iterable[tuple[Any, ...]]) -> dict[str, Row]:
        """Take rows as they were known before, where they have not changed."""
        before = self.jobs
        return {row[0]: old if (old := before.get(row[0])) == row else Row._make(row) for row in rows}

    def _read_events(self) -> dict[str, list[NewEvent]]:
        events: defaultdict[str, list[NewEvent]] = defaultdict(list)
        if self._tables.may_differ("holdfast_job_events"):
            for _, job_id, kind, meta in self._connection.execute(_EVENTS, [self._last_event]):
                events[job_id].append(NewEvent(kind, json.loads(meta).get("reason")))
            # Numbers are given again once the last events have been deleted, as those of archived jobs are.
            [self._last_event] = self._connection.execute(_LAST_EVENT).fetchone()
        return events

    def _remember(self, books: Books, changed: list[Row], commit: Commit) -> None:
        for row in changed:
            old = self.jobs.get(row.id)
            if old is None or (old.lease_ends, old.token) != (row.lease_ends, row.token):
                self._leased[row.id] = Leased(commit.at, self._time())
            if old is None or old.token != row.token:
                self._claimed_at[row.id] = self._time()
        self.jobs, self.stages = books.jobs, books.stages

    def _complaints(self, books: Books, changed: list[Row], commit: Commit) -> Iterator[str]:
        before, after = Jobs(self.jobs, self.stages), Jobs(books.jobs, books.stages)
        back = {
            row.id for row in changed if row.id not in self.jobs and self.dead_letter_oracle.came_back(row)
        }
        yield from self.dead_letter_oracle.complaints(self._tables, before, after)
        seen = [(self.jobs.get(row.id), row) for row in changed if row.id not in back]
        yield from self.message_oracle.complaints(
            self._tables, after, commit, pairs=seen, events=books.events
        )
        for row in changed:
            old = self.jobs.get(row.id)
            if row.id in back:
                continue  # the dead letter oracle knows how it was when it was archived
            for text in _first(row) if old is None else self._step_complaints(old, row, books, commit):
                yield f"{text}: job {row.id} ({row.name}) {old or 'new'} -> {row} by {commit.worker}"
        yield from self._stage_complaints(books)
        yield from self._order_complaints(books.jobs, changed)
        yield from self.fleet_oracle.complaints(self._tables, books.jobs, commit)
        pairs = [(self.jobs.get(row.id), row) for row in changed]
        yield from self.timing_oracle.complaints(pairs, books.notices, commit)
        yield from self.provider_oracle.look(books.providers, pairs, commit)
        yield from self.provider_oracle.look_at_keys(books.keys, commit)
        if len(books.jobs) > MOST_JOBS:
            submitted = sum(row.name != TICK for row in books.jobs.values())
            if submitted > MOST_JOBS:
                yield f"there are {submitted} jobs, more than the people submit"

    def _step_complaints(self, old: Row, new: Row, books: Books, commit: Commit) -> Iterator[str]:
        """Name what is wrong with a change of one row."""
        yield from step(old, new, commit, leased_at=self._leased[old.id].at)
        events = books.events[old.id]
        stage_ended = any(
            stage.job_id == old.id and stage.token == old.token and stage.status != "started"
            for stage in books.stages.values()
        )
        yield from self._account.complaints(old, new, stage_ended=stage_ended, events=events)
        if new.waiting and new.name == "listener" and new.signals > _taken(new.id, books):
            yield "a job waits for a signal that is there"
        shortened = new.token == old.token and (new.lease_ends or 0) < (old.lease_ends or 0)
        if shortened and commit.worker != old.worker and not self.is_dead(old.worker or ""):
            yield "a lease was ended although the process of its worker is alive"
        lost = any(event.reason == LOST for event in events)
        if lost and self.untroubled(old.worker or "", self._leased[old.id].seconds):
            yield "a lease expired though its worker met no fault"

    def _stage_complaints(self, books: Books) -> Iterator[str]:
        if books.stages is self.stages:
            return
        for place, old in self.stages.items():
            new = books.stages.get(place)
            runs_again = old.job_id in self.dead_letter_oracle.restarted or old.job_id not in books.jobs
            if old.status == "done" and new != old and not runs_again:
                yield f"a finished stage changed: {old} -> {new}"

    def _order_complaints(self, jobs: dict[str, Row], changed: list[Row]) -> Iterator[str]:
        """A job that was ready before and after may not have been passed over by one of lower priority.

        In a fleet it may, by those few that were dispatched before it.
        """
        taken = [
            row
            for row in changed
            if row.status == "processing"
            and _was_ready(self.jobs.get(row.id))
            and not (row.worker or "").startswith("fleet")
        ]
        for row in taken:
            for left in jobs.values():
                stood = self.jobs.get(left.id)
                if left.queue == row.queue and left.ready and stood == left and left.priority > row.priority:
                    yield f"job {left.id} of priority {left.priority} was passed over by {row}"


def _taken(job_id: str, books: Books) -> int:
    """The number of the last signal that a job has taken."""
    results = [stage.result or "{}" for stage in books.stages.values() if stage.job_id == job_id]
    return max((json.loads(result).get("number", 0) for result in results), default=0)


def _was_ready(row: Row | None) -> bool:
    return row is not None and row.ready


def _first(row: Row) -> Iterator[str]:
    """A job begins queued, with nothing spent; one that stands for a message begins as failed, and has not run."""
    if row.name in INTERNAL_JOBS and (row.status, row.attempt, row.generation, row.token) == (
        "failed",
        0,
        1,
        0,
    ):
        return
    if (row.status, row.attempt, row.generation, row.token) not in (
        ("queued", 0, 1, 0),
        ("processing", 1, 1, 1),
    ):
        yield "a job began oddly"


def step(old: Row, new: Row, commit: Commit, *, leased_at: int) -> Iterator[str]:
    """Name what is wrong with a change of one row, whose lease was written at *leased_at* by the database's clock."""
    yield from _always(old, new)
    if old.ended:
        yield from _late(old, new) if old.generation == new.generation else _revived(old, new)
        return
    yield from _ended_in_time(new, commit)
    if old.status == "processing":
        yield from _from_processing(old, new, commit, leased_at)
    else:
        yield from _from_queued(old, new, commit)


def _always(old: Row, new: Row) -> Iterator[str]:
    if new.token < old.token:
        yield "the lease token fell"
    if new.generation < old.generation or (new.generation > old.generation and old.status != "failed"):
        yield "the generation changed without a retry"
    if (new.status == "processing") != (new.token % 2 == 1) and not new.ended:
        yield "a lease without a token of its own"
    if new.status != old.status and new.token == old.token and new.status not in _STEPS.get(old.status, ()):
        yield "a step that is not in the graph"
    if old.cancel_requested and not new.cancel_requested and not new.ended:
        yield "a wish to cancel was forgotten"
    if new.deadline != old.deadline and new.generation == old.generation:
        yield "a deadline moved"
    if new.waiting and new.status != "queued":
        yield "a job waits and holds a slot"
    if new.waiting and new.signals > old.signals and new.token == old.token:
        yield "a job waits on, though a signal came"


def _late(old: Row, new: Row) -> Iterator[str]:
    """After its end a job may get one late result, which an operator may accept; nothing else changes."""
    if new.token != old.token or not old.timed_out:
        yield "an end was undone"
    elif old.late_result is not None and new.late_result != old.late_result:
        yield "a late result was replaced"
    elif new.status == "completed" and (old.status, new.result) != ("failed", old.late_result):
        yield "a job completed after its end, and not with the late result that was there"
    elif new.status != "completed" and (new.status, new.result) != (old.status, old.result):
        yield "a late result was applied without being accepted"


def _revived(old: Row, new: Row) -> Iterator[str]:
    if old.status != "failed":
        yield "an end was undone"
    elif new.token < old.token + old.token % 2 or new.generation != old.generation + 1:
        yield "a failed job came back without a new generation, or with the token of a lease"
    elif new.status == "queued" and new.attempt != 0:
        yield "a failed job came back with attempts spent"


def _ended_in_time(new: Row, commit: Commit) -> Iterator[str]:
    """A job times out once its deadline has passed, and then it comes to no other end, save by a person."""
    overdue = new.deadline is not None and new.deadline <= commit.at
    if new.timed_out and not overdue:
        yield "a job timed out before its deadline"
    if new.timed_out and new.status != "failed":
        yield "a late result was applied without being accepted"
    if new.status == "failed" and not new.timed_out and _blames_deadline(new):
        yield "a job blames a deadline without having timed out"
    if new.status in ("completed", "failed") and overdue and not new.timed_out:
        yield f"a job {new.status} after its deadline"


def _blames_deadline(row: Row) -> bool:
    return bool(json.loads(row.result or "{}").get("error_class") == ErrorClass.TIMEOUT)


def _from_processing(old: Row, new: Row, commit: Commit, leased_at: int) -> Iterator[str]:
    by_holder = commit.worker == old.worker
    ran_out = old.lease_ends is not None and old.lease_ends <= commit.at
    set_back = commit.at < leased_at  # then a lease of the same length ends earlier
    kept = new.status == "processing" and new.token == old.token
    if kept and new.worker != old.worker:
        yield "a lease changed hands without a new token"
    ends_now = new.lease_ends is not None and new.lease_ends < commit.at
    if kept and new.lease_ends != old.lease_ends and not by_holder and not ends_now:
        yield "a lease was extended by another worker"
    if kept and _earlier(new.lease_ends, old.lease_ends) and not set_back and (by_holder or not ends_now):
        yield "a lease was shortened"
    if not kept and not by_holder and not ran_out and not new.timed_out:
        yield "a lease was taken from a worker before it ran out"
    if not kept and not new.ended and new.token <= old.token:
        yield "a lease ended, and its token lives on"
    if new.ended:
        yield from _ended_by_right(old, new, by_holder=by_holder)


def _ended_by_right(old: Row, new: Row, *, by_holder: bool) -> Iterator[str]:
    """The holder ends a job under its own token; a sweep that ends one takes the token away."""
    swept = new.timed_out and new.token > old.token
    if new.token != old.token and not swept:
        yield "a job was ended under a token that is not its own"
    if not by_holder and not swept:
        yield "a job was ended by a worker that did not hold it"


def _from_queued(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if new.status == "processing" and new.token == old.token + 1:
        # A suspected job spends its attempt when it begins; one that another job's crash has cost is given back.
        spends = new.suspicion != 1
        if new.attempt != old.attempt - (old.excused == 1) + spends:
            yield "a claim that spent no attempt, or several"
        if new.worker != commit.worker:
            yield "a claim in another's name"
        if (new.suspicion > 0) != (old.losses > 0 or old.excused > 0):
            yield "a job that lost its worker was claimed without suspicion, or another one with it"
        if new.lease_ends is None or new.lease_ends <= commit.at:
            yield "a lease that had run out when it began"
    too_early = _earlier(commit.at, old.retry_after) and not new.cancel_requested and not _arrived(old, new)
    too_early = too_early and not (old.held_by and new.let_out_by == old.held_by)
    if too_early and (new.status == "processing" or new.ready):
        yield "a job was made ready before its time"
    if new.ended and new.status != "cancelled" and not new.timed_out and new.token == old.token:
        yield "a job ended without having run"


def _arrived(old: Row, new: Row) -> bool:
    """Whether something came that a job was waiting for."""
    return bool(old.waiting) and (new.signals > old.signals or new.pending < old.pending)


def _earlier(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other
