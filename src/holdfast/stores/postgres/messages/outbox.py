"""The outbox in PostgreSQL.

What holds, releases or ends messages first locks their partitions: a message that is held behind another, or for a
route, cannot miss its release.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.core.dead_letters.letter import Step
from holdfast.core.errors import MessageNotFound
from holdfast.core.messages.outbox import (
    BATCH,
    BlockedRoute,
    DueMessage,
    MessageChange,
    MessageFilter,
    MessageTransition,
    NewMessage,
    OutboxMessage,
    PartitionLease,
    behind_holder,
    letter_of_retried,
    letter_of_skipped,
    outbox_id,
    route_alarm,
)
from holdfast.ports.messages.outbox import DueMessages, OutboxStats, Probe, SettledMessages
from holdfast.stores.letter_rows import step_rows
from holdfast.stores.outbox_rows import Position, find_messages_statement, message_from
from holdfast.stores.postgres.connections import LONG_ANSWER, Connections
from holdfast.stores.postgres.dead_letters.dead_messages import add_dead_messages
from holdfast.stores.postgres.messages.outbox_writer import add_messages
from holdfast.stores.postgres.within import run_within
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

_DUE = len(DueMessage._fields)
_CHANGE = [attrgetter(name) for name in ("id", "change", "spent", "delay", "error")]
_ROUTE = [attrgetter(name) for name in ("held_by", "delay", "error", "full")]


class PostgresOutbox:
    """The `OutboxStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def add(self, batch: Sequence[NewMessage]) -> None:
        async with self._connections.acquire() as connection:
            await add_messages(connection, self._sql, batch)

    async def add_within(self, connection: Any, batch: Sequence[NewMessage]) -> None:
        await run_within(connection, lambda runner: add_messages(runner, self._sql, batch))

    async def lease_partitions(self, relay: str, *, lease: timedelta) -> list[PartitionLease]:
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(self._sql["lock_partitions"], None)
            rows = await connection.fetch(self._sql["lease_partitions"], relay, lease)
        return sorted(
            PartitionLease(row["number"], row["lease_token"]) for row in rows if row["leased_by"] is not None
        )

    async def release_partitions(self, relay: str) -> None:
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(self._sql["lock_partitions"], None)
            await connection.execute(self._sql["release_partitions"], relay)

    async def due(self, leases: Sequence[PartitionLease], *, limit: int = BATCH) -> DueMessages:
        rows = await self._connections.fetch(self._sql["due_messages"], *_unzipped(leases), limit)
        messages = [DueMessage(*row[:_DUE]) for row in rows if row["id"] is not None]
        [first, *_] = rows
        return DueMessages(
            messages, frozenset(first["blocked"]), frozenset(first["unblocked"]), first["next_due"]
        )

    async def settle(
        self, leases: Sequence[PartitionLease], transitions: Sequence[MessageTransition]
    ) -> SettledMessages:
        if not transitions:
            return SettledMessages(frozenset())
        async with self._connections.acquire() as connection, connection.transaction():
            rows = await connection.fetch(self._sql["lock_leased_partitions"], *_unzipped(leases))
            held = {row["number"] for row in rows}
            return await self._settle(
                connection, [change for change in transitions if change.partition in held], held
            )

    async def _settle(
        self, connection: "Connection", batch: list[MessageTransition], partitions: set[int]
    ) -> SettledMessages:
        """Write *batch* with its *partitions* locked."""
        blocking = [change for change in batch if change.change is MessageChange.BLOCKED]
        blocked: list[Any] = []
        if blocking:
            blocked = await connection.fetch(self._sql["block_routes"], *columns(blocking, *_ROUTE))
        rows = await connection.fetch(
            self._sql["settle_messages"],
            *columns(batch, *_CHANGE),
            list(partitions),
            *columns(batch, attrgetter("held_by"), _dead_job_id),
        )
        written = frozenset(row["id"] for row in rows)
        ended = [change for change in batch if change.id in written]
        await self._release(connection, [c.id for c in ended if c.change is MessageChange.PUBLISHED])
        await add_dead_messages(connection, self._sql, [c.dead for c in ended if c.dead is not None])
        return SettledMessages(
            written,
            frozenset(row["route"] for row in blocked),
            frozenset(row["route"] for row in blocked if row["alarmed"]),
        )

    async def _release(self, connection: "Connection", message_ids: Sequence[str]) -> None:
        """Release what is held behind messages that are published or skipped."""
        if message_ids:
            holders = [behind_holder(message_id) for message_id in message_ids]
            await connection.execute(self._sql["release_messages"], holders)

    async def probes(self, leases: Sequence[PartitionLease], *, again: timedelta) -> list[Probe]:
        rows = await self._connections.fetch(self._sql["probe_routes"], *_unzipped(leases), again)
        return [
            Probe(
                row["probed"],
                None if row["id"] is None else DueMessage(*row[1 : 1 + _DUE]),
                row["at_capacity"],
            )
            for row in rows
        ]

    async def postpone_probe(self, route: str, *, delay: timedelta, error: str, full: bool) -> None:
        await self._connections.fetch(self._sql["postpone_probe"], route, delay, error, full)

    async def unblock_route(self, route: str, *, quiet: timedelta | None = None) -> int | None:
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(self._sql["lock_partitions"], None)
            rows = await connection.fetch(self._sql["unblock_route"], route, quiet)
            if rows and not rows[0]["at_capacity"]:
                await connection.execute(self._sql["clear_alarm"], route_alarm(route))
        return rows[0]["held"] if rows else None

    async def release_route(self, route: str, *, limit: int) -> int:
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(self._sql["lock_partitions"], None)
            [row] = await connection.fetch(self._sql["release_route"], route, limit)
            if row["deleted"]:
                await connection.execute(self._sql["clear_alarm"], route_alarm(route))
        return int(row["released"])

    async def routes(self) -> list[BlockedRoute]:
        return [BlockedRoute(*row) for row in await self._connections.fetch(self._sql["blocked_routes"])]

    async def get(self, message_id: str) -> OutboxMessage:
        rows = await self._connections.fetch(self._sql["message"], outbox_id(message_id))
        if not rows:
            raise MessageNotFound(f"there is no message {message_id} in the outbox")
        return message_from(rows[0])

    async def find(self, message_filter: MessageFilter) -> list[OutboxMessage]:
        bound: dict[str, Any] = {}

        def bind(name: str, value: Any) -> str:
            bound[name] = value
            return f"${len(bound)}"

        before = None
        if message_filter.before is not None:
            last = await self.get(message_filter.before)
            before = Position(last.created_at, last.sequence)
        sql = find_messages_statement(self._sql, message_filter, bind, before=before, nulls_first=True)
        rows = await self._connections.fetch(sql, *bound.values(), timeout=LONG_ANSWER)
        return [message_from(row) for row in rows]

    async def retry(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        return await self._change("retry_messages", message_ids, note, letter_of_retried(note))

    async def skip(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        return await self._change("skip_messages", message_ids, note, letter_of_skipped(note))

    async def _change(
        self, statement: str, message_ids: Sequence[str], note: Mapping[str, str], letter: Step
    ) -> list[str]:
        known = [outbox_id(message_id) for message_id in message_ids]
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(self._sql["lock_partitions"], known)
            rows = await connection.fetch(self._sql[statement], known, json.dumps(note))
            changed = [row["id"] for row in rows]
            if statement == "skip_messages":
                await self._release(connection, changed)
            dead = [row["dead_job_id"] for row in rows if row["dead_job_id"] is not None]
            if dead:
                [[*step]] = step_rows([letter])
                await connection.execute(self._sql["end_letters"], dead, letter.to, letter.notes, *step[1:])
            await connection.execute(self._sql["notify_relays"])
        return changed

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        rows = await self._connections.fetch(
            self._sql["purge_messages"], older_than, limit, timeout=LONG_ANSWER
        )
        return len(rows)

    async def stats(self) -> OutboxStats:
        [row] = await self._connections.fetch(self._sql["outbox_stats"])
        return OutboxStats(*row)


def _dead_job_id(change: MessageTransition) -> str | None:
    return None if change.dead is None else change.dead.id


def _unzipped(leases: Sequence[PartitionLease]) -> tuple[list[int], list[int]]:
    return [lease.number for lease in leases], [lease.token for lease in leases]
