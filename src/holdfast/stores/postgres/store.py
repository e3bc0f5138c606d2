"""Jobs in PostgreSQL: every method is one statement, or one short transaction."""

import json
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from holdfast.core.durations import duration
from holdfast.core.errors import JobNotFound, StateRefused
from holdfast.core.jobs.history import StoredStage, history
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
from holdfast.core.jobs.transitions import Finish, Transition
from holdfast.ports import Hint, HintKind, Promotion, SchemaState
from holdfast.ports.schema import APPLY_LIMIT, LockWait
from holdfast.ports.store import Extension, Leased, Settled, SubmissionRefusal
from holdfast.stores.find_statement import find_statement
from holdfast.stores.postgres.connections import ANSWER, LONG_ANSWER, Connections
from holdfast.stores.postgres.dead_letters.dead_letters import PostgresDeadLetters
from holdfast.stores.postgres.dead_letters.replay_plans import PostgresReplayPlans
from holdfast.stores.postgres.dead_letters.retention import PostgresRetention
from holdfast.stores.postgres.dead_letters.tickets import PostgresTickets
from holdfast.stores.postgres.jobs import submitting
from holdfast.stores.postgres.jobs.dispatches import PostgresDispatches
from holdfast.stores.postgres.jobs.lease_extender import PostgresLeaseExtender
from holdfast.stores.postgres.jobs.settlement import Settlement
from holdfast.stores.postgres.jobs.submitting import PostgresSubmissions
from holdfast.stores.postgres.messages.announcements import PostgresAnnouncements
from holdfast.stores.postgres.messages.inbox import PostgresInbox
from holdfast.stores.postgres.messages.outbox import PostgresOutbox
from holdfast.stores.postgres.namespace import DEFAULT, Namespace
from holdfast.stores.postgres.notify import Listener, Sender
from holdfast.stores.postgres.providers import PostgresProviders
from holdfast.stores.postgres.queues import PostgresQueues
from holdfast.stores.postgres.schedules import PostgresSchedules
from holdfast.stores.postgres.schema import Schema
from holdfast.stores.postgres.within import run_within
from holdfast.stores.queries import Queries
from holdfast.stores.rows import (
    TIMEOUT,
    cannot_retry,
    claims_from,
    end_from,
    job_from,
    no_signal,
    signal_meta,
    stage_from,
    unzipped,
)


class PostgresStore:
    """The `Store` port on PostgreSQL."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 5,
        timeout: float = 10,
        answer: float = ANSWER,
        pooled: bool = False,
        direct_url: str | None = None,
        schema: str = DEFAULT,
    ) -> None:
        namespace = Namespace(schema)
        self._connections = Connections(
            url, size=connections, timeout=timeout, answer=answer, pooled=pooled, direct_url=direct_url
        )
        self._sql = Queries(__package__, namespace.qualify)
        access = self._connections, self._sql
        self._schema = Schema(self._connections, namespace, self._sql)
        self._sender = Sender(partial(self._connections.fetch, self._sql["notify"]))
        self._listener = Listener(self._connections, channel=namespace.channel)
        self._settlement = Settlement(*access)
        self._submissions = PostgresSubmissions(*access, self._sender)
        self.queues = PostgresQueues(*access)
        self.dispatches = PostgresDispatches(*access)
        self.schedules = PostgresSchedules(*access)
        self.providers = PostgresProviders(*access)
        self.dead_letters = PostgresDeadLetters(*access)
        self.replay_plans = PostgresReplayPlans(*access)
        self.tickets = PostgresTickets(*access)
        self.retention = PostgresRetention(*access)
        self.inbox = PostgresInbox(*access, self._sender)
        self.outbox = PostgresOutbox(*access)
        self.announcements = PostgresAnnouncements(*access)

    async def open(self) -> None:
        await self._connections.open()
        await self._schema.ensure_usable()

    async def close(self) -> None:
        await self._sender.close()
        await self._listener.close()
        await self._connections.close()

    async def apply_schema(
        self, *, limit: timedelta = APPLY_LIMIT, blocked: Callable[[LockWait], object] | None = None
    ) -> SchemaState:
        await self._connections.open()
        return await self._schema.apply(limit=limit, blocked=blocked)

    async def schema_state(self) -> SchemaState:
        await self._connections.open()
        return await self._schema.state()

    async def submit(
        self, batch: Sequence[Submission], *, again: bool = False
    ) -> list[Receipt | SubmissionRefusal]:
        return await self._submissions.submit(batch, again=again)

    async def submit_within(
        self, connection: Any, batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        hints = sorted({item.queue for item in batch})
        return await run_within(
            connection, lambda runner: submitting.submit_unique(runner, self._sql, batch, hints)
        )

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        known = None if knows is None else list(knows)
        rows = await self._connections.fetch(self._sql["claim"], worker, lease, known, queue, limit)
        return claims_from(rows)

    async def settle(self, worker: str, batch: Sequence[Transition]) -> list[Settled]:
        return await self._settlement.settle(batch)

    async def settle_within(self, connection: Any, end: Finish) -> Settled:
        return await run_within(connection, lambda runner: self._settlement.settle_within(runner, end))

    async def signal(
        self, job_id: str, name: str, data: str, *, owner: str | None = None, actor: str = ""
    ) -> None:
        values = [known_id(job_id), owner, name, data, signal_meta(name, actor), MOST_SIGNALS]
        if not await self._connections.fetch(self._sql["send_signal"], *values):
            raise StateRefused(no_signal(await self.get(job_id, owner=owner)))

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        return [Signal(*row) for row in await self._connections.fetch(self._sql["signals"], list(job_ids))]

    async def await_jobs(self, job_id: str, token: int, others: Sequence[str]) -> bool:
        async with self._connections.acquire() as connection, connection.transaction():
            family = await connection.fetch(
                self._sql["lock_parent_and_children"], job_id, token, list(others)
            )
            if not any(row["holds"] for row in family):
                return False
            children = [row["id"] for row in family if row["id"] != job_id]
            await connection.execute(self._sql["mark_children"], children)
            await connection.execute(self._sql["await_jobs"], job_id, children)
            await connection.execute(self._sql["count_pending"], job_id, list(others))
            return True

    async def ends(self, job_ids: Sequence[str]) -> list[End]:
        return [end_from(row) for row in await self._connections.fetch(self._sql["ends"], list(job_ids))]

    async def wake(self, *, limit: int) -> int:
        [row] = await self._connections.fetch(self._sql["wake"], limit)
        return int(row["ends"])

    async def expire(self, *, limit: int) -> list[str]:
        return [row["id"] for row in await self._connections.fetch(self._sql["expire"], limit, TIMEOUT)]

    async def accept_late(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        meta: str,
        then: Submission | None = None,
        late_at: datetime | None = None,
    ) -> Job:
        async with self._connections.acquire() as connection, connection.transaction():
            accepted = await connection.fetch(
                self._sql["accept_late"], known_id(job_id), owner, meta, late_at
            )
            if accepted and then is not None:
                await submitting.submit_unique(connection, self._sql, [then], [then.queue])
        job = await self.get(job_id, owner=owner)
        if not accepted:
            raise StateRefused(f"job {job_id} is {job.status} and has no late result that could be accepted")
        return job

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        rows = await self._connections.fetch(self._sql["extend"], *unzipped(sorted(held)), lease)
        kept = {row["id"] for row in rows}
        others = await self._settlement.lease_outcomes(
            [held_one for held_one in held if held_one[0] not in kept]
        )
        ended = {job_id for (job_id, _), why in others.items() if why is Settled.OVER}
        # Those that are still leased under their token were not written to because another session has locked them.
        locked = frozenset(job_id for (job_id, _), why in others.items() if why is Settled.EARLY)
        return Extension(
            lost=frozenset(job_id for job_id, _ in held) - kept - ended - locked,
            cancel_requested=frozenset(row["id"] for row in rows if row["cancel_requested"]),
            timed_out=frozenset(row["id"] for row in rows if row["overdue"]) | ended,
            locked=locked,
        )

    async def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
        rows = await self._connections.fetch(self._sql["begin"], *unzipped(sorted(held)))
        matched = {(row["id"], row["lease_token"]) for row in rows}
        return [lease in matched for lease in held]

    async def leased_to(self, worker: str) -> list[Leased]:
        return [Leased(*row) for row in await self._connections.fetch(self._sql["leased_to"], worker)]

    def lease_extender(self) -> PostgresLeaseExtender:
        return PostgresLeaseExtender(partial(self._connections.another, size=1), self._sql)

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
            # A worker claimed or released it between the two statements: try again.
        raise StateRefused(f"job {job_id} is {job.status}, so it cannot be cancelled")

    async def retry(self, job_id: str, *, owner: str | None = None, generation: int | None = None) -> Job:
        values = [[known_id(job_id)], owner, None, None, False, False, generation]
        retried = await self._connections.fetch(self._sql["retry"], *values)
        job = await self.get(job_id, owner=owner)
        if not retried:
            raise StateRefused(cannot_retry(job, generation))
        return job

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        rows = await self._connections.fetch(self._sql["get"], known_id(job_id))
        if not rows or owner not in (None, rows[0]["owner"]):
            raise JobNotFound(f"there is no job {job_id}")
        return job_from(rows[0])

    async def find(self, job_filter: JobFilter) -> list[Job]:
        if job_filter.at_risk is not None:
            near = duration(job_filter.at_risk)
            values = [
                job_filter.status,
                job_filter.name,
                job_filter.owner,
                job_filter.queue,
                job_filter.limit,
                near,
            ]
            return [job_from(row) for row in await self._connections.fetch(self._sql["at_risk"], *values)]
        bound: dict[str, Any] = {}
        sql = find_statement(
            self._sql, job_filter, partial(_bind, bound), before="id < {}::uuid", keys="holdfast.job_keys"
        )
        async with self._connections.acquire() as connection, connection.transaction():
            # Which index is best depends on how frequent these values are.
            await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
            rows = await connection.fetch(sql, *bound.values(), timeout=LONG_ANSWER)
        return [job_from(row) for row in rows]

    async def events(self, job_id: str) -> list[Event]:
        job = await self.get(job_id)
        stored = await self._connections.fetch(self._sql["events"], job_id)
        stages = await self._connections.fetch(self._sql["stage_events"], job_id)
        return history(
            job,
            [Event(EventKind(row["kind"]), row["at"], json.loads(row["meta"])) for row in stored],
            [
                StoredStage(
                    row["stored_at"],
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
        rows = await self._connections.fetch(self._sql["ids_between"], low, high, limit)
        return [row["id"] for row in rows]

    async def keys_of(self, job_ids: Sequence[str]) -> dict[str, str]:
        rows = await self._connections.fetch(self._sql["keys_of"], list(job_ids))
        return {row["job_id"]: row["key"] for row in rows}

    async def reasons(self, job_ids: Sequence[str]) -> dict[str, str]:
        rows = await self._connections.fetch(self._sql["reasons"], list(job_ids))
        return {row["job_id"]: row["reason"] for row in rows if row["reason"]}

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        return [stage_from(row) for row in await self._connections.fetch(self._sql["stages"], list(job_ids))]

    async def await_ends(self, job_ids: Sequence[str]) -> list[str]:
        await self._connections.fetch(self._sql["await_ends"], list(job_ids))
        return [row["id"] for row in await self._connections.fetch(self._sql["ended"], list(job_ids))]

    async def now(self) -> datetime:
        [row] = await self._connections.fetch(self._sql["now"])
        now: datetime = row["now"]
        return now

    async def redaction_key(self) -> bytes:
        [row] = await self._connections.fetch(self._sql["redaction_key"])
        return bytes.fromhex(row["redaction_key"])

    async def facts(self) -> dict[str, str]:
        rows = await self._connections.fetch(self._sql["facts"])
        return {row["name"]: row["setting"] for row in rows} | {
            "connections_per_worker": str(self._connections.most),
            "listens": "yes" if self._connections.can_listen else "no",
            "schema": self._schema.name,
        }

    def notify_taken(self, worker: str, queue: str) -> None:
        if self._listener.listeners > 1:
            self._sender.send(f"taken:{self._listener.listeners}\n{worker}\n{queue}")

    def listen(
        self, receive: Callable[[Hint], None], kinds: Collection[HintKind] = tuple(HintKind)
    ) -> Callable[[], None]:
        return self._listener.add(receive, kinds)


def _bind(values: dict[str, Any], name: str, value: Any) -> str:
    values[name] = value
    return f"${len(values)}"
