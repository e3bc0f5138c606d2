"""Jobs in a SQLite file: writes gather in one thread, reads go through another.

A batch travels as one JSON text and is taken apart in SQL. The interpreter's lock is then free
while SQLite works, and taken once per batch instead of once per row.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from holdfast.core.errors import JobNotFound, StateRefused, WithinUnsupported
from holdfast.core.history import StageMark, history
from holdfast.core.jobs import Claim, Event, EventKind, Job, JobFilter, Receipt, Submission
from holdfast.core.stages import StageKey, StageRow, StageStatus
from holdfast.core.states import Status
from holdfast.core.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports import Clock, Executor, Hint, HintKind, Promotion, SchemaState
from holdfast.ports.store import Extension, Refusal
from holdfast.stores.rows import Row, failure_text, job_from, known_id, requeue_meta, stage_from
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.database import translated
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.submitting import SQL, submit
from holdfast.stores.sqlite.times import instant, micros, micros_of
from holdfast.stores.sqlite.writer import Writer
from holdfast.stores.versions import ensure_fit

T = TypeVar("T")


Held = TypeVar("Held", bound=Sequence[Any])


class SqliteStore:
    """The `Store` port on one SQLite file. *clock* is the database's clock: it decides."""

    def __init__(self, path: str, *, clock: Clock, writing: Executor, reading: Executor) -> None:
        self._path = path
        self._clock = clock
        self._executors = (writing, reading)
        self._writer = Writer(path, writing)
        self._reader = Reader(path, reading)
        self._awaited: set[str] = set()

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

    async def apply_schema(self) -> SchemaState:
        await self._writer.open()
        return await self._writer.write(schema.apply)

    async def schema_state(self) -> SchemaState:
        await self._writer.open()
        await self._reader.open()
        return await self._reader.read(schema.state)

    async def submit(self, batch: Sequence[Submission], *, again: bool = False) -> list[Receipt | Refusal]:
        answers = await self._writer.write(
            lambda connection: submit(connection, batch, now=self._clock.now(), again=again)
        )
        for queue in {item.queue for item in batch}:
            self._reader.tell(Hint(HintKind.READY, queue))
        return answers

    async def submit_within(self, connection: Any, batch: Sequence[Submission]) -> list[Receipt | Refusal]:
        if not isinstance(connection, sqlite3.Connection):
            raise WithinUnsupported(
                f"within= got a {type(connection).__name__}; with a SQLite store it takes a sqlite3 connection"
            )
        if not connection.in_transaction:
            raise WithinUnsupported("within= got a connection that is in no transaction; execute BEGIN first")
        with translated(self._path):
            cursor = connection.cursor()
            cursor.row_factory = None  # the caller's may give rows that cannot be read by position
            return submit(cursor, batch, now=self._clock.now())

    async def claim(self, worker: str, queue: str, *, limit: int, lease: timedelta) -> list[Claim]:
        values = {
            "worker": worker,
            "queue": queue,
            "limit": limit,
            "lease": micros_of(lease),
        }
        text = await self._at_lock(_claim, values)
        return [Claim(*row) for row in json.loads(text)]

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[bool]:
        applied = frozenset(
            await self._writer.write(lambda connection: _settle(connection, batch, self._now()))
        )
        answers = [(change.id, change.token) in applied for change in batch]
        self._tell_ends(
            change.id
            for change, done in zip(batch, answers, strict=True)
            if done and isinstance(change, Finish)
        )
        return answers

    def _tell_ends(self, job_ids: Iterable[str]) -> None:
        if self._awaited:
            for job_id in self._awaited.intersection(job_ids):
                self._awaited.discard(job_id)
                self._reader.tell(Hint(HintKind.FINISHED, job_id))

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        kept, wanted = await self._at_lock(partial(_extend, held=held), {"lease": micros_of(lease)})
        return Extension(frozenset(job_id for job_id, _ in held) - kept, wanted)

    async def recount(self, held: Sequence[tuple[str, int, int]]) -> list[bool]:
        matched = frozenset(await self._at_lock(partial(_recount, held=held), {}))
        return [(job_id, token) in matched for job_id, token, _ in held]

    async def cancel_requests(self, worker: str) -> list[str]:
        return list(await self._reader.json(SQL["cancel_requests"], {"worker": worker}))

    async def promote(self, *, limit: int) -> Promotion:
        return await self._at_lock(_promote, {"limit": limit})

    async def reclaim(self, *, limit: int) -> list[str]:
        return await self._at_lock(_reclaim, {"limit": limit})

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

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        brought_back = await self._at_lock(_retry, {"id": known_id(job_id), "owner": owner})
        job = await self.get(job_id, owner=owner)
        if not brought_back:
            raise StateRefused(f"job {job_id} is {job.status}; only a failed job can be retried")
        self._reader.tell(Hint(HintKind.READY, job.queue))
        return job

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        rows = await self._reader.rows(SQL["get"], {"id": known_id(job_id)})
        if not rows or owner not in (None, rows[0]["owner"]):
            raise JobNotFound(f"there is no job {job_id}")
        return _job(rows[0])

    async def find(self, wanted: JobFilter) -> list[Job]:
        values = {
            name: getattr(wanted, name) for name in ("status", "name", "owner", "queue", "before", "limit")
        }
        return [_job(row) for row in await self._reader.rows(SQL["find"], values)]

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
                )
                for row in stages
            ],
        )

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        rows = await self._reader.rows(SQL["stages"], {"ids": json.dumps(list(job_ids))})
        return [stage_from(row) for row in rows]

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        self._awaited.update(job_ids)
        ended: list[str] = await self._reader.json(SQL["ended"], {"ids": json.dumps(list(job_ids))})
        self._awaited.difference_update(ended)
        return ended

    async def counts(self) -> dict[tuple[str, Status], int]:
        return {
            (queue, Status(status)): count
            for queue, status, count in await self._reader.rows(SQL["counts"], {})
        }

    async def facts(self) -> dict[str, str]:
        return {**await self._reader.read(_facts), "now": self._clock.now().isoformat()}

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        return self._reader.listen(hear)

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


def _claim(connection: sqlite3.Connection, values: dict[str, Any]) -> str:
    claimable = {name: values[name] for name in ("queue", "limit")}
    ids, rows = connection.execute(SQL["claimable"], claimable).fetchone()
    if ids != "[]":
        taken = {name: values[name] for name in ("worker", "lease", "now")}
        connection.execute(SQL["take"], {**taken, "ids": ids})
    return str(rows)


def _settle(connection: sqlite3.Connection, batch: Sequence[Transition], now: int) -> list[tuple[str, int]]:
    stages = [_stage_row(change) for change in batch if isinstance(change, StageWrite)]
    backs = [_back_row(change) for change in batch if isinstance(change, Requeue)]
    ends = [_end_row(change) for change in batch if isinstance(change, Finish)]
    applied = []
    if stages:
        applied += _apply(connection, stages, now, "reset_attempts", "store_stages")
    if backs:
        applied += _apply(connection, backs, now, "requeue_history", "requeue")
    if ends:
        applied += _finish(connection, ends, now)
    return applied


def _finish(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]], now: int) -> list[tuple[str, int]]:
    """Move jobs that end to the finished ones: the path of every job, so the fence is part of the copy."""
    values = {"batch": json.dumps(rows, ensure_ascii=False), "now": now}
    copied = connection.execute(SQL["finish"], values).rowcount
    kept = rows if copied == len(rows) else _held(connection, rows)
    connection.execute(SQL["remove"], {"ids": json.dumps([row[0] for row in kept])})
    return [(row[0], row[1]) for row in kept]


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
    ]


def _back_row(change: Requeue) -> list[Any]:
    delay = None if change.delay is None else micros_of(change.delay)
    return [change.id, change.token, delay, int(change.gives_back), change.event, requeue_meta(change)]


def _end_row(change: Finish) -> Sequence[Any]:
    """Give the row as it is written: the value itself, in the order of its fields, unless it failed."""
    if change.failure is None:
        return change
    return change._replace(failure=failure_text(change.failure))  # type: ignore[arg-type]  # the row holds its text


def _extend(
    connection: sqlite3.Connection, held: Sequence[tuple[str, int]], values: dict[str, int]
) -> tuple[frozenset[str], frozenset[str]]:
    ids = json.dumps([job_id for job_id, _ in _held(connection, held)])
    connection.execute(SQL["extend"], {**values, "ids": ids})
    [wanted] = connection.execute(SQL["wanting_cancel"], {"ids": ids}).fetchone()
    return frozenset(json.loads(ids)), frozenset(json.loads(wanted))


def _recount(
    connection: sqlite3.Connection, held: Sequence[tuple[str, int, int]], values: dict[str, int]
) -> list[tuple[str, int]]:
    return _apply(connection, [list(row) for row in held], values["now"], "recount")


def _promote(connection: sqlite3.Connection, values: dict[str, int]) -> Promotion:
    count = connection.execute(SQL["promote"], values).rowcount
    [due] = connection.execute(SQL["next_due"], {"now": values["now"]}).fetchone()
    return Promotion(count, None if due is None else timedelta(microseconds=due))


def _reclaim(connection: sqlite3.Connection, values: dict[str, int]) -> list[str]:
    [ids] = connection.execute(SQL["lost"], values).fetchone()
    if ids != "[]":
        lost = {"ids": ids, "now": values["now"]}
        connection.execute(SQL["reclaim_history"], lost)
        connection.execute(SQL["reclaim"], lost)
    return list(json.loads(ids))


def _cancel(connection: sqlite3.Connection, values: dict[str, Any]) -> Status | None:
    if connection.execute(SQL["cancel_queued"], values).rowcount:
        connection.execute(SQL["remove"], {"ids": json.dumps([values["id"]])})
        return Status.CANCELLED
    if connection.execute(SQL["request_cancel"], values).rowcount:
        return Status.PROCESSING
    return None


def _retry(connection: sqlite3.Connection, values: dict[str, Any]) -> bool:
    if not connection.execute(SQL["retry"], values).rowcount:
        return False
    named = {"id": values["id"]}
    connection.execute(SQL["retry_history"], {**named, "now": values["now"]})
    connection.execute(SQL["forget_stages"], named)
    connection.execute(SQL["forget_end"], named)
    return True


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
]


def _job(row: Row) -> Job:
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    return job_from(fields | {name: instant(fields[name]) for name in _INSTANTS})


def _instant(count: int) -> Any:
    return instant(count)
