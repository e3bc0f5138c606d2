"""Jobs in a SQLite file: writes gather in one thread, reads go through another.

A batch travels as one JSON text and is taken apart in SQL. The interpreter's lock is then free
while SQLite works, and taken once per batch instead of once per row.
"""

import json
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.durations import duration
from holdfast.core.errors import JobNotFound, StateRefused
from holdfast.core.jobs.history import StageMark, history
from holdfast.core.jobs.job import (
    MOST_SIGNALS,
    Claim,
    End,
    Event,
    EventKind,
    Job,
    JobFilter,
    Receipt,
    Signal,
    Submission,
    known_id,
)
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports import Clock, Depth, Executor, Hint, HintKind, Promotion, SchemaState
from holdfast.ports.store import APPLY_LIMIT, Extension, Leased, LockWait, Pause, Settled, SubmissionRefusal
from holdfast.stores.finding import find_statement
from holdfast.stores.rows import (
    TIMEOUT,
    Lease,
    Row,
    cannot_retry,
    claims_from,
    end_from,
    failure_text,
    fates,
    job_from,
    no_signal,
    refused,
    requeue_meta,
    settled,
    signal_meta,
    stage_from,
)
from holdfast.stores.schema_version import ensure_fit
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.lease_extender import SqliteLeaseExtender
from holdfast.stores.sqlite.letters import SqliteLetters
from holdfast.stores.sqlite.providers import SqliteProviders
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.replaying import bring_back, close_letters
from holdfast.stores.sqlite.submitting import SQL, submit
from holdfast.stores.sqlite.times import instant, micros, micros_of
from holdfast.stores.sqlite.within import Runs, lend
from holdfast.stores.sqlite.writer import Writer

T = TypeVar("T")

_ENDED = (Settled.WRITTEN, Settled.LATE, Settled.TIMED_OUT)


Held = TypeVar("Held", bound=Sequence[Any])


class SqliteStore(SqliteProviders, SqliteLetters):
    """The `Store` port on one SQLite file. *clock* is the database's clock: it decides."""

    def __init__(self, path: str, *, clock: Clock, writing: Executor, reading: Executor) -> None:
        self._path = path
        self._clock = clock
        self._executors = (writing, reading)
        self._writer = Writer(path, writing)
        self._reader = Reader(path, reading)
        super().__init__()

    async def open(self) -> None:
        """Open the file, and make the schema in a new one: the embedded store needs no operator."""
        # Read, not written: the caller may hold the file's write lock, to submit in its own transaction.
        if (await self.schema_state()).found == 0:
            await self.apply_schema()
        ensure_fit(await self.schema_state())

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()
        for executor in self._executors:
            executor.close()

    async def apply_schema(
        self, *, limit: timedelta = APPLY_LIMIT, blocked: Callable[[LockWait], object] | None = None
    ) -> SchemaState:
        """Wait for the file's lock as every write does; readers are in nobody's way here."""
        await self._writer.open()
        return await self._writer.write(schema.apply)

    async def schema_state(self) -> SchemaState:
        await self._writer.open()
        await self._reader.open()
        return await self._reader.read(schema.state)

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        answers = await self._writer.write(
            lambda connection: submit(connection, batch, now=self._clock.now(), again=again)
        )
        for queue in {item.queue for item in batch}:
            self._reader.tell(Hint(HintKind.READY, queue))
        return answers

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        return await lend(connection, self._path, lambda runs: self._submit_there(runs, batch))

    def _submit_there(self, runs: Runs, batch: Sequence[Submission]) -> list[Receipt | SubmissionRefusal]:
        runs.execute(SQL["take_lock"])
        return submit(runs, batch, now=self._clock.now())

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        values = {
            "worker": worker,
            "queue": queue,
            "limit": limit,
            "lease": micros_of(lease),
            "knows": None if knows is None else json.dumps(list(knows)),
        }
        text = await self._at_lock(_claim, values)
        return claims_from(json.loads(text))

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        answers = await self._writer.write(lambda connection: _settle(connection, batch, self._now()))
        self._tell_ends(
            change.id
            for change, done in zip(batch, answers, strict=True)
            if done in _ENDED and isinstance(change, Finish)
        )
        return answers

    def _tell_ends(self, job_ids: Iterable[str]) -> None:
        if not self._reader.subscriptions.exist_for(HintKind.FINISHED):
            return  # nearly always: a hint for each job would cost as much as a part of its write
        for job_id in job_ids:
            self._reader.tell(Hint(HintKind.FINISHED, job_id))

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        return await self._at_lock(partial(_extend, held=held), {"lease": micros_of(lease)})

    async def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
        matched = frozenset(await self._at_lock(partial(_begin, held=held), {}))
        return [lease in matched for lease in held]

    async def leased_to(self, worker: str) -> list[Leased]:
        # By the writer, after what it has under way: a claim whose caller has gone may be among that.
        text = await self._writer.write(
            lambda connection: connection.execute(SQL["leased_to"], {"worker": worker}).fetchone()[0]
        )
        return [Leased(*row) for row in json.loads(text)]

    def lease_extender(self) -> SqliteLeaseExtender:
        return SqliteLeaseExtender(self._path, self._clock)

    async def cancel_requests(self, worker: str) -> list[str]:
        return list(await self._reader.json(SQL["cancel_requests"], {"worker": worker}))

    async def promote(self, *, limit: int) -> Promotion:
        return await self._at_lock(_promote, {"limit": limit})

    async def reclaim(self, *, limit: int) -> list[str]:
        return await self._at_lock(_reclaim, {"limit": limit})

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        values = {"id": known_id(job_id), "owner": owner, "name": name, "data": data, "most": MOST_SIGNALS}
        if not await self._at_lock(partial(_signal, meta=signal_meta(name, actor)), values):
            raise StateRefused(no_signal(await self.get(job_id, owner=owner)))
        self._reader.tell(Hint(HintKind.READY, ""))

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        rows = await self._reader.rows(SQL["signals"], {"ids": json.dumps(list(job_ids))})
        return [Signal(*row) for row in rows]

    async def await_jobs(self, job_id: str, token: int, others: Sequence[str]) -> bool:
        return await self._at_lock(partial(_await_jobs, held=(job_id, token), others=list(others)), {})

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        rows = await self._reader.rows(SQL["ends"], {"ids": json.dumps(list(job_ids))})
        return [end_from(row) for row in rows]

    async def wake(self, *, limit: int) -> int:
        if not await self._reader.json(SQL["untold_ends"], {"limit": 1}):
            return 0
        ends = await self._at_lock(_wake, {"limit": limit})
        self._reader.tell(Hint(HintKind.READY, ""))
        return ends

    async def expire(self, *, limit: int) -> list[str]:
        expired = await self._at_lock(_expire, {"limit": limit})
        self._tell_ends(expired)
        return expired

    async def accept_late(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        meta: str,
        then: Submission | None = None,
        late_at: datetime | None = None,
    ) -> Job:
        seen = None if late_at is None else micros(late_at)
        values = {"id": known_id(job_id), "owner": owner, "meta": meta, "late_at": seen}
        accepted = await self._at_lock(partial(_accept_late, then=then, at=self._clock.now), values)
        job = await self.get(job_id, owner=owner)
        if not accepted:
            raise StateRefused(f"job {job_id} is {job.status} and has no late result that could be accepted")
        if then is not None:
            self._reader.tell(Hint(HintKind.READY, then.queue))
        return job

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        outcome = await self._at_lock(_cancel, {"id": known_id(job_id), "owner": owner})
        if outcome is None:
            job = await self.get(job_id, owner=owner)
            raise StateRefused(f"job {job_id} is {job.status}, so it cannot be cancelled")
        if outcome is Status.CANCELLED:
            self._tell_ends([known_id(job_id)])
        else:
            self._reader.tell(Hint(HintKind.CANCEL, known_id(job_id)))
        return outcome

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        brought_back = await self._at_lock(
            _retry, {"id": known_id(job_id), "owner": owner, "generation": generation}
        )
        job = await self.get(job_id, owner=owner)
        if not brought_back:
            raise StateRefused(cannot_retry(job, generation))
        self._reader.tell(Hint(HintKind.READY, job.queue))
        return job

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        rows = await self._reader.rows(SQL["get"], {"id": known_id(job_id)})
        if not rows or owner not in (None, rows[0]["owner"]):
            raise JobNotFound(f"there is no job {job_id}")
        return _job(rows[0])

    async def find(self, wanted: JobFilter) -> list[Job]:
        values: dict[str, Any] = {}
        if wanted.at_risk is None:
            sql = find_statement(
                SQL, wanted, partial(_bind, values), before="id < {}", keys="holdfast_job_keys"
            )
            return [_job(row) for row in await self._reader.rows(sql, values)]
        values = {name: getattr(wanted, name) for name in ("status", "name", "owner", "queue", "limit")}
        near = {"now": self._now(), "at_risk": micros_of(duration(wanted.at_risk))}
        return [_job(row) for row in await self._reader.rows(SQL["at_risk"], values | near)]

    async def events(self, job_id: str) -> list[Event]:
        job = await self.get(job_id)
        stored = await self._reader.rows(SQL["events"], {"id": job.id})
        stages = await self._reader.rows(SQL["stage_events"], {"id": job.id})
        return history(
            job,
            [Event(EventKind(row["kind"]), _instant(row["at"]), json.loads(row["meta"])) for row in stored],
            [
                StageMark(
                    _instant(row["stored_at"]),
                    StageKey(row["name"], row["call"]),
                    row["attempt"],
                    StageStatus(row["status"]),
                    row["provider"],
                    row["lease_token"],
                    row["number"],
                )
                for row in stages
            ],
        )

    async def ids_between(self, low: str, high: str, *, limit: int) -> list[str]:
        rows = await self._reader.rows(SQL["ids_between"], {"low": low, "high": high, "limit": limit})
        return [row["id"] for row in rows]

    async def keys_of(self, job_ids: Sequence[str]) -> dict[str, str]:
        rows = await self._reader.rows(SQL["keys_of"], {"ids": json.dumps(list(job_ids))})
        return {row["job_id"]: row["key"] for row in rows}

    async def reasons(self, job_ids: Sequence[str]) -> dict[str, str]:
        rows = await self._reader.rows(SQL["reasons"], {"ids": json.dumps(list(job_ids))})
        return {row["job_id"]: row["reason"] for row in rows if row["reason"]}

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        wanted = {"ids": json.dumps(list(job_ids)), "now": self._now()}
        rows = await self._reader.rows(SQL["stages"], wanted)
        return [stage_from(row) for row in rows]

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        ended: list[str] = await self._reader.json(SQL["ended"], {"ids": json.dumps(list(job_ids))})
        return ended

    async def pause_queue(self, queue: str, *, actor: str, reason: str) -> bool:
        values = {"queue": queue, "actor": actor, "reason": reason}
        return bool(await self._at_lock(partial(_changed, statement="pause_queue"), values))

    async def resume_queue(self, queue: str) -> bool:
        resumed = await self._writer.write(
            lambda connection: connection.execute(SQL["resume_queue"], {"queue": queue}).rowcount
        )
        self._reader.tell(Hint(HintKind.READY, queue))
        return bool(resumed)

    async def paused_queues(self) -> list[Pause]:
        rows = await self._reader.rows(SQL["paused_queues"], {})
        return [Pause(row["queue"], _instant(row["paused_at"]), row["actor"], row["reason"]) for row in rows]

    async def now(self) -> datetime:
        return self._clock.now()

    async def schedule_marks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        rows = await self._reader.rows(SQL["schedules"], {"names": json.dumps(list(names))})
        return self._clock.now(), {name: _instant(last) for name, last in rows}

    async def begin_schedules(self, names: Sequence[str]) -> None:
        await self._at_lock(
            partial(_changed, statement="begin_schedules"), {"names": json.dumps(list(names))}
        )

    async def advance_schedule(
        self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]
    ) -> bool:
        mark = {"name": name, "old": micros(old), "new": micros(new)}
        moved = await self._writer.write(
            lambda connection: _advance(connection, mark, batch, self._clock.now())
        )
        if moved and batch:
            self._reader.tell(Hint(HintKind.READY, batch[0].queue))
        return moved

    async def counts(self) -> dict[tuple[str, Status], int]:
        return {
            (queue, Status(status)): count
            for queue, status, count in await self._reader.rows(SQL["counts"], {})
        }

    async def depths(self) -> list[Depth]:
        rows = await self._reader.rows(SQL["depths"], {"now": self._now()})
        return [
            Depth(queue, state, jobs, timedelta(microseconds=oldest)) for queue, state, jobs, oldest in rows
        ]

    async def recent_queues(self, *, limit: int) -> list[str]:
        return [row["queue"] for row in await self._reader.rows(SQL["recent_queues"], {"limit": limit})]

    async def facts(self) -> dict[str, str]:
        found = await self._reader.read(lambda connection: _facts(connection) | _file_facts(self._path))
        return {**found, "now": self._clock.now().isoformat()}

    def notify_taken(self, worker: str, queue: str) -> None:
        """Processes on a file look at it every 100 ms, whoever has taken what: there is nothing to spare them."""

    def listen(
        self, hear: Callable[[Hint], None], kinds: Collection[HintKind] = tuple(HintKind)
    ) -> Callable[[], None]:
        return self._reader.listen(hear, kinds)

    async def _at_lock(self, operation: Callable[..., T], values: dict[str, Any]) -> T:
        """Run *operation* with the time at which the write lock is held.

        A time taken before that may be long past: a lease made of it could have run out already, and
        the history would tell of things in an order in which they did not happen.
        """
        return await self._writer.write(
            lambda connection: operation(connection, values={**values, "now": self._now()})
        )

    def _now(self) -> int:
        return micros(self._clock.now())


def _bind(values: dict[str, Any], name: str, value: Any) -> str:
    values[name] = value
    return f":{name}"


def _claim(connection: sqlite3.Connection, values: dict[str, Any]) -> str:
    claimable = {name: values[name] for name in ("queue", "limit", "now", "knows")}
    ids, rows = connection.execute(SQL["claimable"], claimable).fetchone()
    if ids != "[]":
        taken = {name: values[name] for name in ("worker", "lease", "now")}
        connection.execute(SQL["take"], {**taken, "ids": ids})
    return str(rows)


def _settle(connection: sqlite3.Connection, batch: Sequence[Transition], now: int) -> list[Settled]:
    """Write *batch*, and say what came of each change."""
    ends = [change for change in batch if isinstance(change, Finish)]
    applied: list[Lease] = []
    late: list[Lease] = []
    if len(ends) < len(batch):
        stages = [_stage_row(change) for change in batch if isinstance(change, StageWrite)]
        backs = [_back_row(change) for change in batch if isinstance(change, Requeue)]
        if stages:
            applied += _apply(connection, stages, now, "reset_attempts", "store_stages")
        if backs:
            applied += _apply(connection, backs, now, "requeue_history", "requeue")
    if ends:
        overdue = _overdue_among(connection, ends, now)
        if overdue:
            due = [end for end in ends if end.id in overdue or not end.if_overdue]
            written = _finish(connection, due, now, "finish_overdue")
            late = _late(due, written, overdue)
        else:
            completed = [end for end in ends if end.status is Status.COMPLETED]
            written = _complete(connection, completed, now) if completed else []
            if len(completed) < len(ends):
                others = [end for end in ends if end.status is not Status.COMPLETED and not end.if_overdue]
                written += _finish(connection, others, now, "finish")
        if len(written) < len(ends):
            late += _keep_late(connection, ends, now, besides=written)
        applied += written
    names, kept = frozenset(applied), frozenset(late)
    return settled(batch, names, kept, _fates(connection, refused(batch, names, kept)))


def _fates(connection: sqlite3.Connection, leases: Sequence[Lease]) -> dict[Lease, Settled]:
    """Ask what became of leases under which nothing was written; nearly always there is none."""
    return fates(connection.execute(SQL["fates"], {"batch": json.dumps(leases)})) if leases else {}


def _late(ends: Sequence[Finish], written: Sequence[Lease], overdue: Collection[str]) -> list[Lease]:
    """Name what was written after the deadline; a cancellation is one at any time."""
    cancelled = {end.id for end in ends if end.status is Status.CANCELLED}
    return [name for name in written if name[0] in overdue and name[0] not in cancelled]


def _complete(connection: sqlite3.Connection, ends: Sequence[Finish], now: int) -> list[Lease]:
    """Move completed jobs to the finished ones: the path of nearly every job."""
    results = {f"{end.token}:{end.id}": end.result for end in ends}
    values = {"batch": json.dumps(results, ensure_ascii=False), "now": now}
    return _moved(connection, ends, connection.execute(SQL["finish_completed"], values).rowcount)


def _finish(connection: sqlite3.Connection, ends: Sequence[Finish], now: int, statement: str) -> list[Lease]:
    """Move jobs that end to the finished ones."""
    rows = [_end_row(end) for end in ends]
    values = {"batch": json.dumps(rows, ensure_ascii=False), "now": now, "timeout": TIMEOUT}
    return _moved(connection, ends, connection.execute(SQL[statement], values).rowcount)


def _moved(connection: sqlite3.Connection, ends: Sequence[Finish], copied: int) -> list[Lease]:
    """Take jobs that were copied to the finished ones out of the hot table; the fence is part of the copy."""
    kept = ends if copied == len(ends) else _held(connection, ends)
    _remove(connection, [end.id for end in kept])
    return [end[:2] for end in kept]


def _remove(connection: sqlite3.Connection, ended: Sequence[str]) -> None:
    """Take jobs that ended out of the hot table, which notes it for those who wait for them."""
    connection.execute(SQL["remove"], {"ids": json.dumps(list(ended))})


def _signal(connection: sqlite3.Connection, values: dict[str, Any], *, meta: str) -> bool:
    if not connection.execute(SQL["send_signal"], values).rowcount:
        return False
    named = {"id": values["id"], "now": values["now"]}
    connection.execute(SQL["wake_signalled"], named)
    connection.execute(SQL["signal_history"], {**named, "meta": meta})
    return True


def _await_jobs(
    connection: sqlite3.Connection, values: dict[str, Any], *, held: tuple[str, int], others: list[str]
) -> bool:
    if not _held(connection, [held]):
        return False
    named = {"id": held[0], "children": json.dumps(others)}
    connection.execute(SQL["await_jobs"], named)
    connection.execute(SQL["count_pending"], named)
    return True


def _changed(connection: sqlite3.Connection, values: dict[str, Any], *, statement: str) -> int:
    return connection.execute(SQL[statement], values).rowcount


def _advance(
    connection: sqlite3.Connection, mark: dict[str, Any], batch: Sequence[Submission], now: datetime
) -> bool:
    if not connection.execute(SQL["advance_schedule"], mark).rowcount:
        return False
    submit(connection, batch, now=now)
    return True


def _wake(connection: sqlite3.Connection, values: dict[str, Any]) -> int:
    [ids] = connection.execute(SQL["untold_ends"], {"limit": values["limit"]}).fetchone()
    connection.execute(SQL["wake_parents"], {"ids": ids, "now": values["now"]})
    for name in ("forget_awaited", "forget_ends"):
        connection.execute(SQL[name], {"ids": ids})
    return len(json.loads(ids))


def _keep_late(
    connection: sqlite3.Connection, ends: Sequence[Finish], now: int, *, besides: Sequence[Lease]
) -> list[Lease]:
    """Keep the results among *ends* whose lease the deadline ended."""
    kept = []
    for end in ends:
        if end.status is Status.COMPLETED and end[:2] not in besides:
            values = {"id": end.id, "token": end.token, "result": end.result, "now": now}
            if connection.execute(SQL["keep_late"], values).rowcount:
                kept.append(end[:2])
    return kept


def _overdue(connection: sqlite3.Connection, values: dict[str, int]) -> list[str]:
    [ids] = connection.execute(SQL["overdue"], values).fetchone()
    return list(json.loads(ids))


def _overdue_among(
    connection: sqlite3.Connection, leases: Sequence[Finish] | Sequence[Lease], now: int
) -> frozenset[str]:
    """Name the jobs of *leases* whose deadline has passed. They are looked at only if there is any such job at all."""
    if not _overdue(connection, {"now": now, "limit": 1}):
        return frozenset()
    job_ids = json.dumps([lease[0] for lease in leases])
    [ids] = connection.execute(SQL["overdue_among"], {"ids": job_ids, "now": now}).fetchone()
    return frozenset(json.loads(ids))


def _expire(connection: sqlite3.Connection, values: dict[str, int]) -> list[str]:
    overdue = _overdue(connection, values)
    if overdue:
        ended = {"ids": json.dumps(overdue), "now": values["now"], "failure": TIMEOUT}
        connection.execute(SQL["expire"], ended)
        _remove(connection, overdue)
    return overdue


def _accept_late(
    connection: sqlite3.Connection,
    values: dict[str, Any],
    *,
    then: Submission | None,
    at: Callable[[], datetime],
) -> bool:
    wanted = {name: values[name] for name in ("id", "owner", "late_at", "now")}
    if not connection.execute(SQL["accept_late"], wanted).rowcount:
        return False
    connection.execute(SQL["accept_history"], {name: values[name] for name in ("id", "meta", "now")})
    if then is not None:
        submit(connection, [then], now=at())
    return True


def _apply(
    connection: sqlite3.Connection, rows: list[list[Any]], now: int, *statements: str
) -> list[tuple[str, int]]:
    """Keep the rows whose token matches, run *statements* over them, and name them by id and token."""
    kept = _held(connection, rows)
    if kept:
        ids = json.dumps([row[0] for row in kept])
        values = {"batch": json.dumps(kept, ensure_ascii=False), "ids": ids, "now": now}
        for name in statements:
            connection.execute(SQL[name], values)
    return [(row[0], row[1]) for row in kept]


def _held(connection: sqlite3.Connection, rows: Sequence[Held]) -> Sequence[Held]:
    """Keep the rows, each led by a job's id and token, whose job is still held under that token."""
    batch = {"batch": json.dumps([row[:2] for row in rows])}
    [count] = connection.execute(SQL["count_held"], batch).fetchone()
    if count == len(rows):
        return rows
    [places] = connection.execute(SQL["held"], batch).fetchone()
    return [rows[place] for place in json.loads(places)]


def _stage_row(change: StageWrite) -> list[Any]:
    return [
        change.id,
        change.token,
        *change.key,
        change.status,
        change.attempt,
        change.fingerprint,
        change.result,
        failure_text(change.failure),
        change.provider,
        change.brief_fingerprint,
    ]


def _back_row(change: Requeue) -> list[Any]:
    delay = None if change.delay is None else micros_of(change.delay)
    return [
        change.id,
        change.token,
        delay,
        int(change.gives_back),
        change.event,
        requeue_meta(change),
        change.seen,
        int(change.awaits),
        None if change.held_by is None else change.held_by.text,
        int(change.keeps_losses),
    ]


def _end_row(change: Finish) -> Sequence[Any]:
    """Give the row as it is written: the value itself, in the order of its fields, unless it failed."""
    if change.failure is None:
        return change
    return change._replace(failure=failure_text(change.failure))  # type: ignore[arg-type]  # the row holds its text


def _extend(connection: sqlite3.Connection, held: Sequence[Lease], values: dict[str, int]) -> Extension:
    still_held = _held(connection, held)
    kept = [job_id for job_id, _ in still_held]
    ids = json.dumps(kept)
    connection.execute(SQL["extend"], {**values, "ids": ids})
    [wanted] = connection.execute(SQL["wanting_cancel"], {"ids": ids}).fetchone()
    others = frozenset(job_id for job_id, _ in held).difference(kept)
    ended = _ended_by_deadline(connection, [lease for lease in held if lease[0] in others])
    return Extension(
        lost=others - ended,
        cancel_requested=frozenset(json.loads(wanted)),
        timed_out=_overdue_among(connection, still_held, values["now"]) | ended,
    )


def _ended_by_deadline(connection: sqlite3.Connection, leases: Sequence[Lease]) -> frozenset[str]:
    return frozenset(job_id for (job_id, _), why in _fates(connection, leases).items() if why is Settled.OVER)


def _begin(connection: sqlite3.Connection, held: Sequence[Lease], values: dict[str, int]) -> list[Lease]:
    return _apply(connection, [list(lease) for lease in held], values["now"], "begin")


def _promote(connection: sqlite3.Connection, values: dict[str, int]) -> Promotion:
    count = connection.execute(SQL["promote"], values).rowcount
    [due] = connection.execute(SQL["next_due"], {"now": values["now"]}).fetchone()
    return Promotion(count, None if due is None else timedelta(microseconds=due))


def _reclaim(connection: sqlite3.Connection, values: dict[str, int]) -> list[str]:
    [ids] = connection.execute(SQL["lost"], values).fetchone()
    if ids != "[]":
        lost = {"ids": ids, "now": values["now"]}
        [suspected] = connection.execute(SQL["suspected_workers"], lost).fetchone()
        if suspected != "[]":
            connection.execute(SQL["forget_lost_workers"], {"now": values["now"]})
            connection.execute(SQL["note_lost_workers"], lost)
        for statement in ("reclaim_history", "reclaim"):
            connection.execute(SQL[statement], {**lost, "suspected": suspected})
    return list(json.loads(ids))


def _cancel(connection: sqlite3.Connection, values: dict[str, Any]) -> Status | None:
    if connection.execute(SQL["cancel_queued"], values).rowcount:
        _remove(connection, [values["id"]])
        return Status.CANCELLED
    if connection.execute(SQL["request_cancel"], values).rowcount:
        return Status.PROCESSING
    return None


def _retry(connection: sqlite3.Connection, values: dict[str, Any]) -> bool:
    back = bring_back(
        connection,
        [values["id"]],
        values["now"],
        owner=values["owner"],
        generation=values["generation"],
    )
    close_letters(connection, back, values["now"], actor="owner", notes="retried by its owner")
    return bool(back)


def _file_facts(path: str) -> dict[str, str]:
    return {"file_mode": f"{stat.S_IMODE(Path(path).stat().st_mode):04o}"}


def _facts(connection: sqlite3.Connection) -> dict[str, str]:
    levels = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    [mode] = connection.execute("PRAGMA journal_mode").fetchone()
    [level] = connection.execute("PRAGMA synchronous").fetchone()
    return {"server_version": sqlite3.sqlite_version, "journal_mode": mode, "synchronous": levels[level]}


_INSTANTS = [
    "created_at",
    "queued_at",
    "updated_at",
    "started_at",
    "last_attempt_at",
    "retry_after",
    "lease_expires_at",
    "finished_at",
    "deadline_at",
    "timed_out_at",
    "late_at",
    "purged_at",
]


def _job(row: Row) -> Job:
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    return job_from(fields | {name: instant(fields[name]) for name in _INSTANTS if name in fields})


def _instant(count: int) -> Any:
    return instant(count)
