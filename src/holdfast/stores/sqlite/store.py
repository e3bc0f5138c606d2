"""Jobs in a SQLite file: writes share transactions in one thread, reads go through another.

A batch is passed as one JSON text and unpacked in SQL. The interpreter's lock is then free while SQLite
works, and taken once per batch instead of once per row.
"""

import json
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.durations import duration
from holdfast.core.errors import JobNotFound, StateRefused
from holdfast.core.jobs.history import StoredStage, history
from holdfast.core.jobs.job import (
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
from holdfast.core.jobs.transitions import Finish, Transition
from holdfast.ports import Clock, Executor, Hint, HintKind, Promotion, SchemaState
from holdfast.ports.schema import APPLY_LIMIT, LockWait
from holdfast.ports.store import Extension, Leased, Settled, SubmissionRefusal
from holdfast.stores.find_statement import find_statement
from holdfast.stores.rows import cannot_retry, claims_from, end_from, no_signal, stage_from
from holdfast.stores.schema_version import ensure_fit
from holdfast.stores.sqlite import deadlines, leasing, schema, settling, waits
from holdfast.stores.sqlite.dead_letters.dead_letters import SqliteDeadLetters
from holdfast.stores.sqlite.dead_letters.replay_plans import SqliteReplayPlans
from holdfast.stores.sqlite.dead_letters.replaying import retry
from holdfast.stores.sqlite.dead_letters.retention import SqliteRetention
from holdfast.stores.sqlite.dead_letters.tickets import SqliteTickets
from holdfast.stores.sqlite.dispatches import SqliteDispatches
from holdfast.stores.sqlite.lease_extender import SqliteLeaseExtender
from holdfast.stores.sqlite.messages.announcements import SqliteAnnouncements
from holdfast.stores.sqlite.messages.inbox import SqliteInbox
from holdfast.stores.sqlite.messages.outbox import SqliteOutbox
from holdfast.stores.sqlite.providers import SqliteProviders
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.queues import SqliteQueues
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rows import job_from
from holdfast.stores.sqlite.schedules import SqliteSchedules
from holdfast.stores.sqlite.submitting import submit
from holdfast.stores.sqlite.times import instant, micros, micros_of
from holdfast.stores.sqlite.within import SqliteRunner, run_within
from holdfast.stores.sqlite.writer import Writer

_ENDED = (Settled.WRITTEN, Settled.LATE, Settled.TIMED_OUT)


class SqliteStore:
    """The `Store` port on one SQLite file. *clock* is the clock of the database."""

    def __init__(
        self, path: str, *, clock: Clock, writing: Executor, reading: Executor, reader: Reader | None = None
    ) -> None:
        self._path = path
        self._clock = clock
        self._executors = (writing, reading)
        self._writer = writer = Writer(path, writing, clock)
        self._reader = reader = reader or Reader(path, reading)
        self.queues = SqliteQueues(writer, reader, clock)
        self.dispatches = SqliteDispatches(writer)
        self.schedules = SqliteSchedules(writer, reader, clock)
        self.providers = SqliteProviders(writer, reader, clock)
        self.dead_letters = SqliteDeadLetters(writer, reader, clock)
        self.replay_plans = SqliteReplayPlans(writer, reader, clock)
        self.tickets = SqliteTickets(writer, reader, clock)
        self.retention = SqliteRetention(writer, reader, clock)
        self.inbox = SqliteInbox(writer, reader, clock)
        self.outbox = SqliteOutbox(path, writer, reader, clock)
        self.announcements = SqliteAnnouncements(writer, reader, clock)

    async def open(self) -> None:
        """Open the file, and create the schema in a new one: the embedded store needs no operator."""
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
        """Wait for the file's lock as every write does; readers do not block it."""
        await self._writer.open()
        return await self._writer.write(lambda connection, _: schema.apply(connection))

    async def schema_state(self) -> SchemaState:
        await self._writer.open()
        await self._reader.open()
        return await self._reader.read(schema.state)

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        answers = await self._writer.write(
            lambda connection, now: submit(connection, batch, now=now, again=again)
        )
        for queue in {item.queue for item in batch}:
            self._reader.notify(Hint(HintKind.READY, queue))
        return answers

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        def submit_there(runner: SqliteRunner) -> list[Receipt | SubmissionRefusal]:
            runner.execute(SQL["take_write_lock"])
            return submit(runner, batch, now=micros(self._clock.now()))

        return await run_within(connection, self._path, submit_there)

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        claim = partial(
            leasing.claim,
            worker=worker,
            queue=queue,
            limit=limit,
            lease=micros_of(lease),
            knows=None if knows is None else json.dumps(list(knows)),
        )
        text = await self._writer.write(claim)
        return claims_from(json.loads(text))

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        answers = await self._writer.write(partial(settling.settle, batch=batch))
        self._notify_ends(
            change.id
            for change, done in zip(batch, answers, strict=True)
            if done in _ENDED and isinstance(change, Finish)
        )
        return answers

    async def settle_within(self, connection: Any, end: Finish) -> Settled:
        def settle_there(runner: SqliteRunner) -> Settled:
            runner.execute(SQL["take_write_lock"])
            [settled] = settling.settle(runner, micros(self._clock.now()), batch=[end])
            return settled

        return await run_within(connection, self._path, settle_there)

    def _notify_ends(self, job_ids: Iterable[str]) -> None:
        if not self._reader.subscriptions.exist_for(HintKind.FINISHED):
            return  # nearly always: a hint for each job would cost a part of the time of its write
        for job_id in job_ids:
            self._reader.notify(Hint(HintKind.FINISHED, job_id))

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        return await self._writer.write(partial(leasing.extend, leases=held, lease=micros_of(lease)))

    async def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
        matched = frozenset(await self._writer.write(partial(leasing.begin, leases=held)))
        return [lease in matched for lease in held]

    async def leased_to(self, worker: str) -> list[Leased]:
        # Read by the writer, after its operations in flight: a claim whose caller was cancelled may be one of them.
        text = await self._writer.write(
            lambda connection, _: connection.execute(SQL["leased_to"], {"worker": worker}).fetchone()[0]
        )
        return [Leased(*row) for row in json.loads(text)]

    def lease_extender(self) -> SqliteLeaseExtender:
        return SqliteLeaseExtender(self._path, self._clock)

    async def cancel_requests(self, worker: str) -> list[str]:
        return list(await self._reader.json(SQL["cancel_requests"], {"worker": worker}))

    async def promote(self, *, limit: int) -> Promotion:
        return await self._writer.write(partial(waits.promote, limit=limit))

    async def reclaim(self, *, limit: int) -> list[str]:
        return await self._writer.write(partial(leasing.reclaim, limit=limit))

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        send = partial(waits.signal, job_id=known_id(job_id), owner=owner, name=name, data=data, actor=actor)
        if not await self._writer.write(send):
            raise StateRefused(no_signal(await self.get(job_id, owner=owner)))
        self._reader.notify(Hint(HintKind.READY, ""))

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        rows = await self._reader.rows(SQL["signals"], {"ids": json.dumps(list(job_ids))})
        return [Signal(*row) for row in rows]

    async def await_jobs(self, job_id: str, token: int, others: Sequence[str]) -> bool:
        return await self._writer.write(partial(waits.await_jobs, job_id=job_id, token=token, others=others))

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        rows = await self._reader.rows(SQL["ends"], {"ids": json.dumps(list(job_ids))})
        return [end_from(row) for row in rows]

    async def wake(self, *, limit: int) -> int:
        if not await self._reader.json(SQL["undelivered_ends"], {"limit": 1}):
            return 0
        ends = await self._writer.write(partial(waits.wake, limit=limit))
        self._reader.notify(Hint(HintKind.READY, ""))
        return ends

    async def expire(self, *, limit: int) -> list[str]:
        expired = await self._writer.write(partial(settling.expire, limit=limit))
        self._notify_ends(expired)
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
        accept = partial(
            deadlines.accept_late,
            job_id=known_id(job_id),
            owner=owner,
            late_at=None if late_at is None else micros(late_at),
            meta=meta,
            then=then,
        )
        accepted = await self._writer.write(accept)
        job = await self.get(job_id, owner=owner)
        if not accepted:
            raise StateRefused(f"job {job_id} is {job.status} and has no late result that could be accepted")
        if then is not None:
            self._reader.notify(Hint(HintKind.READY, then.queue))
        return job

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        outcome = await self._writer.write(partial(settling.cancel, job_id=known_id(job_id), owner=owner))
        if outcome is None:
            job = await self.get(job_id, owner=owner)
            raise StateRefused(f"job {job_id} is {job.status}, so it cannot be cancelled")
        if outcome is Status.CANCELLED:
            self._notify_ends([known_id(job_id)])
        else:
            self._reader.notify(Hint(HintKind.CANCEL, known_id(job_id)))
        return outcome

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        brought_back = await self._writer.write(
            partial(retry, job_id=known_id(job_id), owner=owner, generation=generation)
        )
        job = await self.get(job_id, owner=owner)
        if not brought_back:
            raise StateRefused(cannot_retry(job, generation))
        self._reader.notify(Hint(HintKind.READY, job.queue))
        return job

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        rows = await self._reader.rows(SQL["get"], {"id": known_id(job_id)})
        if not rows or owner not in (None, rows[0]["owner"]):
            raise JobNotFound(f"there is no job {job_id}")
        return job_from(rows[0])

    async def find(self, job_filter: JobFilter) -> list[Job]:
        values: dict[str, Any] = {}
        if job_filter.at_risk is None:
            sql = find_statement(
                SQL, job_filter, partial(_bind, values), before="id < {}", keys="holdfast_job_keys"
            )
            return [job_from(row) for row in await self._reader.rows(sql, values)]
        values = {name: getattr(job_filter, name) for name in ("status", "name", "owner", "queue", "limit")}
        near = {"now": micros(self._clock.now()), "at_risk": micros_of(duration(job_filter.at_risk))}
        return [job_from(row) for row in await self._reader.rows(SQL["at_risk"], values | near)]

    async def events(self, job_id: str) -> list[Event]:
        job = await self.get(job_id)
        stored = await self._reader.rows(SQL["events"], {"id": job.id})
        stages = await self._reader.rows(SQL["stage_events"], {"id": job.id})
        return history(
            job,
            [Event(EventKind(row["kind"]), instant(row["at"]), json.loads(row["meta"])) for row in stored],
            [
                StoredStage(
                    instant(row["stored_at"]),
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
        asked = {"ids": json.dumps(list(job_ids)), "now": micros(self._clock.now())}
        rows = await self._reader.rows(SQL["stages"], asked)
        return [stage_from(row) for row in rows]

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        ended: list[str] = await self._reader.json(SQL["ended"], {"ids": json.dumps(list(job_ids))})
        return ended

    async def now(self) -> datetime:
        return self._clock.now()

    async def redaction_key(self) -> bytes:
        [row] = await self._reader.rows(SQL["redaction_key"], {})
        return bytes.fromhex(row["redaction_key"])

    async def facts(self) -> dict[str, str]:
        found = await self._reader.read(lambda connection: _facts(connection, self._path))
        return {**found, "now": self._clock.now().isoformat()}

    def notify_taken(self, worker: str, queue: str) -> None:
        """Do nothing: processes on a file poll it every 100 ms anyway."""

    def listen(
        self, receive: Callable[[Hint], None], kinds: Collection[HintKind] = tuple(HintKind)
    ) -> Callable[[], None]:
        return self._reader.listen(receive, kinds)


def _bind(values: dict[str, Any], name: str, value: Any) -> str:
    values[name] = value
    return f":{name}"


def _facts(connection: sqlite3.Connection, path: str) -> dict[str, str]:
    levels = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    [mode] = connection.execute("PRAGMA journal_mode").fetchone()
    [level] = connection.execute("PRAGMA synchronous").fetchone()
    return {
        "server_version": sqlite3.sqlite_version,
        "journal_mode": mode,
        "synchronous": levels[level],
        "file_mode": f"{stat.S_IMODE(Path(path).stat().st_mode):04o}",
    }
