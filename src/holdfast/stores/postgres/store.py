"""Jobs in PostgreSQL: every method is one statement, or one short transaction."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter, itemgetter
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from holdfast.core.errors import JobNotFound, StateRefused, StoreUnavailable, WithinUnsupported
from holdfast.core.history import StageMark, history
from holdfast.core.jobs import Claim, Event, EventKind, Job, JobFilter, Receipt, Submission
from holdfast.core.stages import StageKey, StageRow, StageStatus
from holdfast.core.states import Status
from holdfast.core.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports import Hint, Promotion, SchemaState
from holdfast.ports.store import Extension, Refusal
from holdfast.stores.postgres import submitting
from holdfast.stores.postgres.connections import ANSWER, LONG_ANSWER, Connections, translated
from holdfast.stores.postgres.hints import Listener, Sender
from holdfast.stores.postgres.schema import Schema
from holdfast.stores.rows import columns, failure_text, job_from, known_id, requeue_meta, shared, stage_from
from holdfast.stores.sqlfiles import Statements

_FINISH: list[Callable[[Any], Any]] = [
    *map(attrgetter, ("id", "token", "result")),
    lambda change: failure_text(change.failure),
    attrgetter("stage"),
]
_REQUEUE: list[Callable[[Any], Any]] = [
    *map(attrgetter, ("id", "token", "delay")),
    lambda change: int(change.gives_back),
    attrgetter("event"),
    requeue_meta,
]
_STAGE: list[Callable[[Any], Any]] = [
    *map(attrgetter, ("id", "token", "key.name", "key.call", "status", "attempt", "fingerprint", "result")),
    lambda change: failure_text(change.failure),
]
_COUNT: list[Callable[[Any], Any]] = [itemgetter(0), itemgetter(1), itemgetter(2)]


class PostgresStore:
    """The `Store` port on PostgreSQL."""

    def __init__(
        self, url: str, *, connections: int = 5, timeout: float = 10, answer: float = ANSWER
    ) -> None:
        self._connections = Connections(url, size=connections, timeout=timeout, answer=answer)
        self._sql = Statements(__package__)
        self._schema = Schema(self._connections)
        self._sender = Sender(self._hint)
        self._listener = Listener(self._connections)

    async def open(self) -> None:
        await self._connections.open()
        await self._schema.ensure_usable()

    async def close(self) -> None:
        await self._sender.close()
        await self._listener.close()
        await self._connections.close()

    async def apply_schema(self) -> SchemaState:
        await self._connections.open()
        return await self._schema.apply()

    async def schema_state(self) -> SchemaState:
        await self._connections.open()
        return await self._schema.state()

    async def submit(self, batch: Sequence[Submission], *, again: bool = False) -> list[Receipt | Refusal]:
        new = await self._missing(batch) if again else batch
        plain = [item for item in new if not item.unique]
        unique = [item for item in new if item.unique]
        if plain:
            await self._submit_plain(plain)
        if not unique:
            return [Receipt(item.id) for item in batch]
        answers = dict(zip((item.id for item in unique), await self._submit_unique(unique), strict=True))
        return [answers.get(item.id, Receipt(item.id)) for item in batch]

    async def _missing(self, batch: Sequence[Submission]) -> list[Submission]:
        rows = await self._connections.fetch(self._sql["known_jobs"], [item.id for item in batch])
        known = {row["id"] for row in rows}
        return [item for item in batch if item.id not in known]

    async def _submit_plain(self, batch: Sequence[Submission]) -> None:
        try:
            async with self._connections.borrow() as connection:
                await submitting.insert(
                    connection, self._sql, batch, self._due(batch), timeout=self._patience(batch)
                )
        except asyncpg.UniqueViolationError as error:
            # Ids are new, so this is an earlier try whose answer was lost and whose commit came only now.
            raise StoreUnavailable("the submission was still on its way; send it again") from error

    async def _submit_unique(self, batch: Sequence[Submission]) -> list[Receipt | Refusal]:
        async with self._connections.borrow() as connection, connection.transaction():
            return await submitting.submit_unique(
                connection, self._sql, batch, self._due(batch), timeout=self._patience(batch)
            )

    def _patience(self, batch: Sequence[Submission]) -> float:
        return self._connections.patience(item.args for item in batch)

    def _due(self, batch: Sequence[Submission]) -> list[str]:
        return self._sender.due({item.queue for item in batch})

    async def _hint(self, queues: list[str]) -> None:
        await self._connections.fetch(self._sql["hint"], queues)

    async def submit_within(self, connection: Any, batch: Sequence[Submission]) -> list[Receipt | Refusal]:
        if not isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
            raise WithinUnsupported(
                f"within= got a {type(connection).__name__}; with a PostgreSQL store it takes an asyncpg connection"
            )
        if not connection.is_in_transaction():
            raise WithinUnsupported(
                "within= got a connection that is in no transaction; open one with `async with connection.transaction():`"
            )
        hints = sorted({item.queue for item in batch})
        with translated():
            return await submitting.submit_unique(connection, self._sql, batch, hints)

    async def claim(self, worker: str, queue: str, *, limit: int, lease: timedelta) -> list[Claim]:
        rows = await self._connections.fetch(self._sql["claim"], worker, queue, limit, lease)
        return [Claim(*row) for row in rows]

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[bool]:
        stages = [change for change in batch if isinstance(change, StageWrite)]
        backs = [change for change in batch if isinstance(change, Requeue)]
        ends = [change for change in batch if isinstance(change, Finish)]
        applied: set[tuple[str, int]] = set()
        if stages:
            rows = await self._connections.fetch(
                self._sql["store_stages"],
                *columns(stages, *_STAGE),
                timeout=self._connections.patience(change.result for change in stages),
            )
            applied.update((row[0], row[1]) for row in rows)
        if backs:
            rows = await self._connections.fetch(self._sql["requeue"], *columns(backs, *_REQUEUE))
            applied.update((row[0], row[1]) for row in rows)
        if ends:
            rows = await self._connections.fetch(
                self._sql["finish"],
                *columns(ends, *_FINISH),
                *shared(ends, attrgetter("status")),
                timeout=self._connections.patience(change.result for change in ends),
            )
            applied.update((row[0], row[1]) for row in rows)
        return [(change.id, change.token) in applied for change in batch]

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        ids, tokens = [job_id for job_id, _ in held], [token for _, token in held]
        rows = await self._connections.fetch(self._sql["extend"], ids, tokens, lease)
        kept = {row["id"] for row in rows}
        wanted = frozenset(row["id"] for row in rows if row["cancel_requested"])
        return Extension(lost=frozenset(ids) - kept, cancel_requested=wanted)

    async def recount(self, held: Sequence[tuple[str, int, int]]) -> list[bool]:
        rows = await self._connections.fetch(self._sql["recount"], *columns(list(held), *_COUNT))
        matched = {(row["id"], row["lease_token"]) for row in rows}
        return [(job_id, token) in matched for job_id, token, _ in held]

    async def cancel_requests(self, worker: str) -> list[str]:
        return [row["id"] for row in await self._connections.fetch(self._sql["cancel_requests"], worker)]

    async def promote(self, *, limit: int) -> Promotion:
        [row] = await self._connections.fetch(self._sql["promote"], limit)
        return Promotion(*row)

    async def reclaim(self, *, limit: int) -> list[str]:
        return [row["id"] for row in await self._connections.fetch(self._sql["reclaim"], limit)]

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        known = known_id(job_id)
        while True:
            if await self._connections.fetch(self._sql["cancel_queued"], known, owner):
                return Status.CANCELLED
            if await self._connections.fetch(self._sql["request_cancel"], known, owner):
                return Status.PROCESSING
            job = await self.get(job_id, owner=owner)
            if job.status.ended:
                break
            # A worker claimed or let go of it between the two: ask again.
        raise StateRefused(f"job {job_id} is {job.status}, so it cannot be cancelled")

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        brought_back = await self._connections.fetch(self._sql["retry"], known_id(job_id), owner)
        job = await self.get(job_id, owner=owner)
        if not brought_back:
            raise StateRefused(f"job {job_id} is {job.status}; only a failed job can be retried")
        return job

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        rows = await self._connections.fetch(self._sql["get"], known_id(job_id))
        if not rows or owner not in (None, rows[0]["owner"]):
            raise JobNotFound(f"there is no job {job_id}")
        return job_from(rows[0])

    async def find(self, wanted: JobFilter) -> list[Job]:
        rows = await self._connections.fetch(
            self._sql["find"],
            wanted.status,
            wanted.name,
            wanted.owner,
            wanted.queue,
            wanted.before,
            wanted.limit,
        )
        return [job_from(row) for row in rows]

    async def events(self, job_id: str) -> list[Event]:
        job = await self.get(job_id)
        stored = await self._connections.fetch(self._sql["events"], job_id)
        stages = await self._connections.fetch(self._sql["stage_events"], job_id)
        return history(
            job,
            [Event(EventKind(row["kind"]), row["at"], json.loads(row["meta"])) for row in stored],
            [
                StageMark(
                    row["stored_at"],
                    StageKey(row["name"], row["call"]),
                    row["attempt"],
                    StageStatus(row["status"]),
                )
                for row in stages
            ],
        )

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        return [stage_from(row) for row in await self._connections.fetch(self._sql["stages"], list(job_ids))]

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        await self._connections.fetch(self._sql["await_ends"], list(job_ids))
        return [row["id"] for row in await self._connections.fetch(self._sql["ended"], list(job_ids))]

    async def counts(self) -> dict[tuple[str, Status], int]:
        rows = await self._connections.fetch(self._sql["counts"], timeout=LONG_ANSWER)
        return {(queue, Status(status)): count for queue, status, count in rows}

    async def facts(self) -> dict[str, str]:
        rows = await self._connections.fetch(self._sql["facts"])
        return {row["name"]: row["setting"] for row in rows} | {
            "connections_per_worker": str(self._connections.most)
        }

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        return self._listener.add(hear)
