"""What a store promises, in plain Python: dictionaries, and a history for each job.

It was written from the port and the pages about it, and knows no table, no index and no transaction. A
store may work in any way, as long as its answers are the same. Two shortcuts that a store takes are
deliberately not taken here: nothing is derived when it is read (each change writes its event at once), and a
job stays in the same place when it ends.

The methods have the names of the `Store` port. Where a store's choice is not determined (which jobs a
limit leaves out, of several that are due at the same instant), the machine does not ask.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.errors import JobNotFound, KeyReused, StateRefused, VersionRefused
from holdfast.core.failures.failure import deadline_passed
from holdfast.core.jobs.job import Claim, Event, EventKind, Job, JobFilter, Receipt, Signal, Submission
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.states import Status, allowed
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.core.providers.holder import Holder
from holdfast.ports.queues import Pause
from holdfast.ports.store import Extension, Promotion, Settled, SubmissionRefusal

START = datetime(2030, 1, 1, tzinfo=UTC)

Scope = tuple[str, str, str | None]
"""Owner, job name, and a key or a subject: what a submission has to share to be the same."""


@dataclass
class Model:
    """A store without a database. *now* is what its clock says, and moves when the machine moves it."""

    now: datetime = START
    jobs: dict[str, Job] = field(default_factory=dict)
    histories: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    stage_rows: defaultdict[str, dict[StageKey, StageRow]] = field(default_factory=lambda: defaultdict(dict))
    staged: set[str] = field(default_factory=set)
    keys: dict[Scope, str] = field(default_factory=dict)
    versions: defaultdict[Scope, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    fingerprints: dict[str, str | None] = field(default_factory=dict)
    cut_off: dict[str, int] = field(default_factory=dict)
    """The lease that a job's deadline ended."""
    sent_signals: defaultdict[str, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    pauses: dict[str, Pause] = field(default_factory=dict)
    released_by: dict[str, Holder] = field(default_factory=dict)
    """The former holder of a job, from its release until it is requeued."""
    quarantine: Counter[str] = field(default_factory=Counter)
    """1 for a job that was leased after a loss and has not begun, 2 for one that has begun."""
    excused: Counter[str] = field(default_factory=Counter)
    """1 for a job whose last loss was caused by another job, 2 once its attempt was given back."""
    failed_runs: Counter[str] = field(default_factory=Counter)
    lost_workers: dict[str, datetime] = field(default_factory=dict)
    """Workers that were lost with a quarantined job, and when; they are remembered for an hour."""

    def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        """Decide on each submission in turn: one may deduplicate those behind it."""
        answers = [
            Receipt(item.id) if again and item.id in self.jobs else self._answered(item) for item in batch
        ]
        jobs_with_reused_keys = {
            answer.id for answer in answers if isinstance(answer, Receipt) and answer.payload_differs
        }
        for job_id in jobs_with_reused_keys:
            self._record(job_id, EventKind.WARNING, reason="key reused with another payload")
        return answers

    def _answered(self, item: Submission) -> Receipt | SubmissionRefusal:
        """Find the job that *item* duplicates, by its key and then by its version, or create one."""
        earlier = self.keys.get(_by_key(item)) if item.key is not None else None
        if earlier is not None:
            return self._deduplicated(item, earlier)
        known = self.versions[_by_subject(item)] if item.subject is not None else {}
        if known and item.version is not None:
            latest = max(known)
            if item.version == latest:
                return self._deduplicated(item, known[latest])
            if item.version < latest or not item.rerun:
                return SubmissionRefusal(VersionRefused())
        return self._made(item)

    def _deduplicated(self, item: Submission, earlier: str) -> Receipt | SubmissionRefusal:
        differs = self.fingerprints[earlier] != item.fingerprint
        if differs and item.strict_keys:
            return SubmissionRefusal(KeyReused())
        return Receipt(earlier, existing=True, payload_differs=differs)

    def _made(self, item: Submission) -> Receipt:
        self.jobs[item.id] = Job(
            id=item.id,
            name=item.name,
            queue=item.queue,
            owner=item.owner,
            status=Status.QUEUED,
            priority=item.priority,
            attempt=0,
            generation=1,
            lease_token=0,
            losses=0,
            created_at=self.now,
            queued_at=self.now,
            updated_at=self.now,
            args=item.args,
            retry_after=self._due(item),
            deadline_at=item.deadline_at or (None if item.deadline is None else self.now + item.deadline),
            subject=item.subject,
            version=item.version,
        )
        self.fingerprints[item.id] = item.fingerprint
        if item.key is not None:
            self.keys[_by_key(item)] = item.id
        if item.subject is not None and item.version is not None:
            self.versions[_by_subject(item)][item.version] = item.id
        self._record(item.id, EventKind.QUEUED)
        return Receipt(item.id)

    def _due(self, item: Submission) -> datetime | None:
        """Say until when a submission waits: an instant in the past is no wait, a delay of nothing is one."""
        if item.run_at is not None:
            return item.run_at if item.run_at > self.now else None
        return None if item.delay is None else self.now + item.delay

    def claim(self, worker: str, queue: str, *, limit: int, lease: timedelta) -> list[Claim]:
        """Lease the first in line: those of the highest priority, and of them the oldest."""
        ready = [job for job in self._live(Status.QUEUED) if (job.queue, job.retry_after) == (queue, None)]
        ready.sort(key=lambda job: (-job.priority, job.created_at, job.id))
        return [self._leased(job, worker, lease) for job in ready[:limit]]

    def _leased(self, job: Job, worker: str, lease: timedelta) -> Claim:
        """Spend an attempt and raise the token, whatever the outcome; a quarantined job spends it when it begins."""
        given_back, quarantined = self.excused[job.id] == 1, bool(job.losses or self.excused[job.id])
        number = max(job.attempt - given_back, 0) + 1
        self.excused[job.id] = 2 if self.excused[job.id] else 0
        self.quarantine[job.id] = int(quarantined)
        job = self._move(
            job,
            Status.PROCESSING,
            attempt=number - quarantined,
            losses=max(job.losses - given_back, 0),
            lease_token=job.lease_token + 1,
            leased_by=worker,
            lease_expires_at=self.now + lease,
            started_at=job.started_at or self.now,
            last_attempt=number,
            last_attempt_at=self.now,
            waiting=False,
        )
        self._record(job.id, EventKind.PROCESSING, attempt=number, worker=worker)
        return Claim(
            id=job.id,
            name=job.name,
            queue=job.queue,
            owner=job.owner,
            args=job.args,
            attempt=number,
            generation=job.generation,
            token=job.lease_token,
            losses=job.losses,
            stages=int(job.id in self.staged),
            cancel_requested=job.cancel_requested,
            trace=job.trace,
            time_left=None if job.deadline_at is None else (job.deadline_at - self.now).total_seconds(),
            signals=len(self.sent_signals[job.id]),
            held_by=self.released_by.get(job.id),
            failed_runs=self.failed_runs[job.id],
            excused=self.excused[job.id] > 0,
        )

    def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        """Write what the token allows: the stages first, since a job that has ended takes no more of them."""
        held = [self.holds(change.id, change.token) for change in batch]
        answers: dict[int, Settled] = {}
        for place in sorted(range(len(batch)), key=lambda place: not isinstance(batch[place], StageWrite)):
            change = batch[place]
            answers[place] = self._written(change) if held[place] else self._kept_as_late(change)
        return [answers[place] for place in range(len(batch))]

    def _written(self, change: Transition) -> Settled:
        match change:
            case Finish(if_overdue=True) if not self._is_late(change):
                return Settled.EARLY
            case StageWrite():
                self._store_stage(change)
            case Requeue():
                self._requeue(change)
            case Finish() if self._is_late(change):
                self._time_out(self.jobs[change.id], change.token)
                self._keep(change)
                return Settled.TIMED_OUT
            case Finish():
                self._finish(change)
        return Settled.WRITTEN

    def _is_late(self, change: Finish) -> bool:
        """Whether a job ends after its deadline; a cancellation is one at any time."""
        deadline = self.jobs[change.id].deadline_at
        return deadline is not None and deadline <= self.now and change.status is not Status.CANCELLED

    def _kept_as_late(self, change: Transition) -> Settled:
        """Keep the first result under the lease that the deadline ended, and nothing else."""
        job = self.jobs.get(change.id)
        if job is None or not self.cut_off_under(change.id, change.token):
            return Settled.FENCED
        if not isinstance(change, Finish) or change.status is not Status.COMPLETED:
            return Settled.OVER
        if job.status is not Status.FAILED or job.late_at:
            return Settled.FENCED
        self._keep(change)
        return Settled.LATE

    def _keep(self, change: Finish) -> None:
        if change.result is not None:
            job = self.jobs[change.id]
            self.jobs[job.id] = replace(job, late_at=self.now, late_result=change.result)
            history = self.histories[job.id]
            [last] = [place for place, event in enumerate(history) if event.kind is EventKind.EXPIRED][-1:]
            history[last] = replace(history[last], meta={"late": True})

    def _time_out(self, job: Job, token: int | None, **changes: Any) -> None:
        """End a job by its deadline; *token* is the lease that goes with it, if it was under one."""
        self.cut_off.pop(job.id, None)
        if token is not None:
            self.cut_off[job.id] = token
        self._end(job, Status.FAILED, failure=deadline_passed(job.name), timed_out_at=self.now, **changes)
        self._record(job.id, EventKind.EXPIRED)

    def expire(self, *, limit: int) -> list[str]:
        """End what is past its deadline; the lease of one that runs goes with it."""
        late = self.late()[:limit]
        for job in late:
            leased = job.status is Status.PROCESSING
            self._time_out(job, job.lease_token if leased else None, lease_token=job.lease_token + leased)
        return [job.id for job in late]

    def late(self) -> list[Job]:
        """Give the jobs whose deadline has passed, the longest first."""
        live = [job for job in self.jobs.values() if not job.status.ended]
        late = sorted(
            (job.deadline_at, job.id) for job in live if job.deadline_at and job.deadline_at <= self.now
        )
        return [self.jobs[job_id] for _, job_id in late]

    def accept_late(self, job_id: str, *, owner: str | None = None, meta: str) -> Job:
        """Accept a late result, once."""
        job = self.get(job_id, owner=owner)
        if job.status is not Status.FAILED or job.late_at is None:
            raise StateRefused
        self._record(job_id, EventKind.ACCEPTED, **json.loads(meta))
        job = self._move(
            job, Status.COMPLETED, result=job.late_result, failure=None, stage=None, finished_at=self.now
        )
        self._record(job_id, EventKind.COMPLETED, attempt=job.last_attempt)
        return job

    def signal(self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = "") -> None:
        """Store a signal for a job that has not ended; a job that waits is ready at once."""
        job = self.get(job_id, owner=owner)
        if job.status.ended:
            raise StateRefused
        self.sent_signals[job_id].append(Signal(job_id, len(self.sent_signals[job_id]) + 1, name, data))
        self._change(job, waiting=False, retry_after=None if job.waiting else job.retry_after)
        self._record(job_id, EventKind.SIGNALLED, signal=name, **({"actor": actor} if actor else {}))

    def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        """Return the signals that were sent to these jobs."""
        return [signal for job_id in job_ids for signal in self.sent_signals[job_id]]

    def pause(self, queue: str, *, actor: str, reason: str) -> bool:
        """Pause a queue; the first pause counts."""
        return self.pauses.setdefault(queue, pause := Pause(queue, self.now, actor, reason)) is pause

    def resume(self, queue: str) -> bool:
        """Resume a queue."""
        return self.pauses.pop(queue, None) is not None

    def paused(self) -> list[Pause]:
        """List the paused queues."""
        return list(self.pauses.values())

    def _store_stage(self, change: StageWrite) -> None:
        """Keep a stage that ended as it is; an end also gives the next stage its attempts."""
        ended = change.status is not StageStatus.STARTED
        self.staged.add(change.id)
        self._change(self.jobs[change.id], **({"attempt": 1} if ended else {}))
        known = self.stage_rows[change.id].get(change.key)
        if known is not None and known.status is not StageStatus.STARTED:
            return
        self.stage_rows[change.id][change.key] = StageRow(
            job_id=change.id,
            key=change.key,
            status=change.status,
            attempt=change.attempt,
            fingerprint=change.fingerprint,
            result=change.result,
            failure=change.failure,
        )
        if ended:
            name, status = str(change.key), change.status.value
            by = {"provider": change.provider} if change.provider else {}
            self._record(change.id, EventKind.STAGE, stage=name, attempt=change.attempt, status=status, **by)

    def _requeue(self, change: Requeue) -> None:
        """Requeue the job. One with a request to cancel does not wait: the next claim ends it."""
        job = self.jobs[change.id]
        begun = self.quarantine[job.id] != 1
        keeps_losses = not begun or change.keeps_losses
        self.failed_runs[job.id] += change.event is EventKind.RETRY
        self.excused[job.id] *= keeps_losses
        self.quarantine[job.id] = 0
        signalled = change.seen is not None and len(self.sent_signals[job.id]) > change.seen
        waits = change.delay is not None and not job.cancel_requested and not signalled
        self.released_by.pop(job.id, None)
        self._end_lease(
            job,
            attempt=job.attempt - (change.gives_back and begun),
            losses=job.losses if keeps_losses else 0,
            retry_after=self.now + (change.delay or timedelta(0)) if waits else None,
            waiting=waits and change.seen is not None,
            held_by=change.held_by.text if waits and change.held_by else None,
        )
        self._record(job.id, change.event, **_why(change))

    def _finish(self, change: Finish) -> None:
        job = self._end(
            self.jobs[change.id],
            change.status,
            result=change.result,
            failure=change.failure,
            stage=change.stage,
        )
        match change.status:
            case Status.COMPLETED:
                self._record(job.id, EventKind.COMPLETED, attempt=job.last_attempt)
            case Status.FAILED:
                self._record(job.id, EventKind.FAILED, **_what_failed(change))
            case _:
                self._record(job.id, EventKind.CANCELLED)

    def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        """Extend the leases that are still held, and report the others."""
        kept = {job_id for job_id, token in held if self.holds(job_id, token)}
        for job_id in kept:
            self._change(self.jobs[job_id], lease_expires_at=self.now + lease)
        ended = {job_id for job_id, token in held if job_id not in kept and self.cut_off_under(job_id, token)}
        return Extension(
            lost=frozenset(job_id for job_id, _ in held) - kept - ended,
            cancel_requested=frozenset(job_id for job_id in kept if self.jobs[job_id].cancel_requested),
            timed_out=frozenset(job.id for job in self.late() if job.id in kept) | ended,
        )

    def cut_off_under(self, job_id: str, token: int) -> bool:
        """Whether the job has ended by its deadline, and this lease with it."""
        job = self.jobs.get(job_id)
        return job is not None and job.status.ended and self.cut_off.get(job_id) == token

    def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
        """Spend the attempts that claims have left unspent, and hold the jobs responsible for what follows."""
        matched = [self.holds(job_id, token) for job_id, token in held]
        for job_id in [job_id for (job_id, _), holds in zip(held, matched, strict=True) if holds]:
            job = self.jobs[job_id]
            self.quarantine[job_id] = 2
            self._change(job, attempt=job.last_attempt)
        return matched

    def cancel_requests(self, worker: str) -> list[str]:
        """List the jobs of *worker* that have a request to cancel."""
        return [
            job.id
            for job in self._live(Status.PROCESSING)
            if job.leased_by == worker and job.cancel_requested
        ]

    def promote(self, *, limit: int) -> Promotion:
        """Make ready what is due; the next one is the first of those that are not."""
        due, later = self.parked()
        for job in due[:limit]:
            self._change(job, retry_after=None)
        waits = [job.retry_after - self.now for job in later if job.retry_after is not None]
        return Promotion(len(due[:limit]), min(waits, default=None))

    def parked(self) -> tuple[list[Job], list[Job]]:
        """Give the jobs that wait for their time: those that are due, the longest first, and the others."""
        parked = [(job.retry_after, job) for job in self._live(Status.QUEUED) if job.retry_after is not None]
        due = sorted((at, job.id) for at, job in parked if at <= self.now)
        return [self.jobs[job_id] for _, job_id in due], [job for at, job in parked if at > self.now]

    def release(self, holder: Holder, *, limit: int) -> int:
        """Make ready the jobs of *holder*; the next claim names the former holder."""
        out = self.held_by(holder)[:limit]
        for job in out:
            self.released_by[job.id] = holder
            self._change(job, held_by=None, retry_after=None)
        return len(out)

    def held_by(self, holder: Holder) -> list[Job]:
        """Return the jobs of *holder*, the longest held first: all are held for the same duration."""
        held = [(job.retry_after, job.id) for job in self.jobs.values() if job.held_by == holder.text]
        return [self.jobs[job_id] for _, job_id in sorted((at, job_id) for at, job_id in held if at)]

    def holders(self) -> list[Holder]:
        """List the holders."""
        return list(self.count_held())

    def count_held(self) -> dict[Holder, int]:
        """Count the jobs of each holder."""
        return dict(
            Counter(Holder.parse(job.held_by) for job in self.jobs.values() if job.held_by is not None)
        )

    def reclaim(self, *, limit: int) -> list[str]:
        """Requeue jobs that lost their worker. The attempt stays spent: whatever happened, it happened in it.

        If a quarantined job ran in that worker, it is held responsible, and the others are excused, once in a row.
        """
        lost = self.overdue()[:limit]
        leased = {job.id: job.leased_by or "" for job in self._live(Status.PROCESSING)}
        suspected_workers = {by for by, at in self.lost_workers.items() if at > self.now - timedelta(hours=1)}
        suspected_workers |= {by for job_id, by in leased.items() if self.quarantine[job_id] == 2}
        self.lost_workers |= {leased[job.id]: self.now for job in lost if self.quarantine[job.id] == 2}
        for job in lost:
            kind, blameless = self.quarantine[job.id], leased[job.id] in suspected_workers
            excused = kind == 0 and blameless and not self.excused[job.id]
            if excused:
                self.excused[job.id] = 1
            self.failed_runs[job.id] += kind == 2 or (kind == 0 and not blameless)
            losses = job.losses + (kind != 1)
            self.quarantine[job.id] = 0
            self._end_lease(job, losses=losses)
            meta = {"excused": True} if excused else {}
            self._record(job.id, EventKind.QUEUED, reason="lease lost", losses=losses, **meta)
        return [job.id for job in lost]

    def overdue(self) -> list[Job]:
        """Give the jobs whose lease has run out, the longest lost first. At its last instant it still holds."""
        leased = [(job.lease_expires_at, job) for job in self._live(Status.PROCESSING)]
        lost = sorted((at, job.id) for at, job in leased if at is not None and at < self.now)
        return [self.jobs[job_id] for _, job_id in lost]

    def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        """End a job that waits, leave a request with the worker of one that runs."""
        job = self.get(job_id, owner=owner)
        match job.status:
            case Status.QUEUED:
                self._end(job, Status.CANCELLED)
                self._record(job_id, EventKind.CANCELLED)
                return Status.CANCELLED
            case Status.PROCESSING:
                self._change(job, cancel_requested=True)
                return Status.PROCESSING
            case _:
                raise StateRefused

    def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        """Begin a new generation of a failed job: done stages stay, the token goes on, and late results are refused."""
        job = self.get(job_id, owner=owner)
        if job.status is not Status.FAILED:
            raise StateRefused
        self.cut_off.pop(job_id, None)
        self.released_by.pop(job_id, None)
        for counter in (self.quarantine, self.excused, self.failed_runs):
            counter.pop(job_id, None)
        rows = self.stage_rows[job_id]
        self.stage_rows[job_id] = {key: row for key, row in rows.items() if row.status is StageStatus.DONE}
        self._record(job_id, EventKind.REPLAYED, generation=job.generation + 1)
        return self._move(
            job,
            Status.QUEUED,
            attempt=0,
            losses=0,
            generation=job.generation + 1,
            lease_token=job.lease_token + job.lease_token % 2,
            queued_at=self.now,
            deadline_at=job.deadline_at and self.now + (job.deadline_at - job.queued_at),
            timed_out_at=None,
            late_at=None,
            late_result=None,
            last_attempt=0,
            last_attempt_at=None,
            leased_by=None,
            finished_at=None,
            failure=None,
            stage=None,
        )

    def get(self, job_id: str, *, owner: str | None = None) -> Job:
        """Show a job to its owner, or to a caller that names no owner."""
        job = self.jobs.get(job_id)
        if job is None or owner not in (None, job.owner):
            raise JobNotFound
        return job

    def find(self, job_filter: JobFilter) -> list[Job]:
        """List jobs, the newest first, without what may be long: arguments and results."""
        fitting = [job for job in self.jobs.values() if _fits(job, job_filter)]
        fitting.sort(key=lambda job: job.id, reverse=True)
        return [replace(job, args="", result=None, late_result=None) for job in fitting[: job_filter.limit]]

    def events(self, job_id: str) -> list[Event]:
        """Return the history of a job."""
        return self.histories[job_id]

    def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        """Give what is known of the stages of these jobs."""
        return [row for job_id in job_ids for row in self.stage_rows[job_id].values()]

    def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        """Name those that have ended."""
        return [job_id for job_id in job_ids if job_id in self.jobs and self.jobs[job_id].status.ended]

    def counts(self) -> dict[tuple[str, Status], int]:
        """Count all jobs, by queue and state."""
        return dict(Counter((job.queue, job.status) for job in self.jobs.values()))

    def holds(self, job_id: str, token: int) -> bool:
        """Say whether *token* is that of the lease that the job is under: nothing else lets a worker write."""
        job = self.jobs.get(job_id)
        return job is not None and (job.status, job.lease_token) == (Status.PROCESSING, token)

    def _end_lease(self, job: Job, **changes: Any) -> None:
        """End a lease, but not the job: the raised token fences off its former holder."""
        token = job.lease_token + 1
        self._move(job, Status.QUEUED, lease_token=token, leased_by=None, lease_expires_at=None, **changes)

    def _end(self, job: Job, status: Status, **changes: Any) -> Job:
        """End a job. Who ran it last stays known, nothing is left to wait for or to ask for."""
        return self._move(
            job,
            status,
            finished_at=self.now,
            lease_expires_at=None,
            retry_after=None,
            cancel_requested=False,
            waiting=False,
            held_by=None,
            **changes,
        )

    def _move(self, job: Job, status: Status, **changes: Any) -> Job:
        assert allowed(job.status, status), f"the model itself left the graph: {job.status} to {status}"
        return self._change(job, status=status, **changes)

    def _change(self, job: Job, **changes: Any) -> Job:
        self.jobs[job.id] = replace(job, updated_at=self.now, **changes)
        return self.jobs[job.id]

    def _record(self, job_id: str, kind: EventKind, **meta: Any) -> None:
        self.histories[job_id].append(Event(kind, self.now, meta))

    def _live(self, status: Status) -> Iterator[Job]:
        return (job for job in list(self.jobs.values()) if job.status is status)


def _by_key(item: Submission) -> Scope:
    return item.owner, item.name, item.key


def _by_subject(item: Submission) -> Scope:
    return item.owner, item.name, item.subject


def _why(change: Requeue) -> dict[str, Any]:
    """Return why a job was requeued: what failed and how long it waits, or the reason that was given."""
    meta = _what_failed(change)
    if change.reason is not None:
        meta["reason"] = change.reason
    if change.held_by is not None:
        meta["held_by"] = change.held_by.label
    if change.event is EventKind.RETRY and change.delay is not None:
        meta["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return meta


def _what_failed(change: Requeue | Finish) -> dict[str, Any]:
    meta = {} if change.failure is None else change.failure.summary()
    return meta if change.stage is None else meta | {"stage": change.stage}


def _fits(job: Job, job_filter: JobFilter) -> bool:
    asked = [
        (job_filter.status, job.status),
        (job_filter.name, job.name),
        (job_filter.owner, job.owner),
        (job_filter.queue, job.queue),
    ]
    fits = all(expected in (None, actual) for expected, actual in asked)
    return fits and (job_filter.before is None or job.id < job_filter.before)
