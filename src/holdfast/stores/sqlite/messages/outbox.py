"""The outbox in a SQLite file. There is one writer at a time: what it read in its transaction, nothing has changed since."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

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
from holdfast.ports import Clock, Hint, HintKind
from holdfast.ports.messages.outbox import DueMessages, OutboxStats, Probe, SettledMessages
from holdfast.stores.letter_rows import step_rows
from holdfast.stores.outbox_rows import Position, find_messages_statement, message_from
from holdfast.stores.sqlite.dead_letters.dead_messages import add_dead_messages
from holdfast.stores.sqlite.dead_letters.replaying import record_steps
from holdfast.stores.sqlite.messages.outbox_writer import add_messages
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rows import with_instants
from holdfast.stores.sqlite.times import instant, micros, micros_of
from holdfast.stores.sqlite.within import SqliteRunner, run_within
from holdfast.stores.sqlite.writer import Writer

_HINT = Hint(HintKind.MESSAGE, "")


class SqliteOutbox:
    """The `OutboxStore` port."""

    def __init__(self, path: str, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def add(self, batch: Sequence[NewMessage]) -> None:
        await self._writer.write(lambda connection, now: add_messages(connection, batch, now=now))
        self._reader.notify(_HINT)

    async def add_within(self, connection: Any, batch: Sequence[NewMessage]) -> None:
        def add_there(runner: SqliteRunner) -> None:
            runner.execute(SQL["take_write_lock"])
            add_messages(runner, batch, now=micros(self._clock.now()))

        await run_within(connection, self._path, add_there)

    async def lease_partitions(self, relay: str, *, lease: timedelta) -> list[PartitionLease]:
        return await self._writer.write(partial(_lease_partitions, relay=relay, lease=micros_of(lease)))

    async def release_partitions(self, relay: str) -> None:
        await self._writer.write(partial(_release_partitions, relay=relay))

    async def due(self, leases: Sequence[PartitionLease], *, limit: int = BATCH) -> DueMessages:
        values = {"leases": json.dumps(leases), "limit": limit, "now": micros(self._clock.now())}
        return await self._reader.read(partial(_due, values=values))

    async def settle(
        self, leases: Sequence[PartitionLease], transitions: Sequence[MessageTransition]
    ) -> SettledMessages:
        if not transitions:
            return SettledMessages(frozenset())
        return await self._writer.write(partial(_settle, leases=leases, batch=transitions))

    async def probes(self, leases: Sequence[PartitionLease], *, again: timedelta) -> list[Probe]:
        if not await self._reader.rows(SQL["routes_to_probe"], {"now": micros(self._clock.now())}):
            return []  # nearly always: no write
        return await self._writer.write(partial(_probes, leases=leases, again=micros_of(again)))

    async def postpone_probe(self, route: str, *, delay: timedelta, error: str, full: bool) -> None:
        values = {"route": route, "delay": micros_of(delay), "error": error, "at_capacity": full}
        await self._writer.write(
            lambda connection, now: connection.execute(SQL["postpone_probe"], {**values, "now": now})
        )

    async def unblock_route(self, route: str, *, quiet: timedelta | None = None) -> int | None:
        values = {"route": route, "quiet": None if quiet is None else micros_of(quiet)}
        return await self._writer.write(partial(_unblock_route, values=values))

    async def release_route(self, route: str, *, limit: int) -> int:
        released = await self._writer.write(partial(_release_route, route=route, limit=limit))
        self._reader.notify(_HINT)
        return released

    async def routes(self) -> list[BlockedRoute]:
        rows = await self._reader.rows(SQL["blocked_routes"], {})
        return [BlockedRoute(row[0], instant(row[1]), instant(row[2]), row[3], row[4]) for row in rows]

    async def get(self, message_id: str) -> OutboxMessage:
        rows = await self._reader.rows(SQL["message"], {"id": outbox_id(message_id)})
        if not rows:
            raise MessageNotFound(f"there is no message {message_id} in the outbox")
        return message_from(with_instants(rows[0]))

    async def find(self, message_filter: MessageFilter) -> list[OutboxMessage]:
        values: dict[str, Any] = {}

        def bind(name: str, value: Any) -> str:
            values[name] = value
            return f":{name}"

        before = None
        if message_filter.before is not None:
            last = await self.get(message_filter.before)
            before = Position(None if last.created_at is None else micros(last.created_at), last.sequence)
        sql = find_messages_statement(SQL, message_filter, bind, before=before, nulls_first=False)
        return [message_from(with_instants(row)) for row in await self._reader.rows(sql, values)]

    async def retry(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        return await self._change("retry_messages", message_ids, note, letter_of_retried(note))

    async def skip(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        return await self._change("skip_messages", message_ids, note, letter_of_skipped(note))

    async def _change(
        self, statement: str, message_ids: Sequence[str], note: Mapping[str, str], letter: Step
    ) -> list[str]:
        ids = [outbox_id(message_id) for message_id in message_ids]
        values = {"ids": json.dumps(ids), "note": json.dumps(note, ensure_ascii=False)}
        changed = await self._writer.write(
            partial(_change, statement=statement, values=values, letter=letter)
        )
        self._reader.notify(_HINT)
        return changed

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        until = micros(self._clock.now() - older_than)
        return await self._writer.execute(SQL["purge_messages"], {"until": until, "limit": limit})

    async def stats(self) -> OutboxStats:
        [row] = await self._reader.rows(SQL["outbox_stats"], {"now": micros(self._clock.now())})
        pending, held, failed, oldest, routes = row
        return OutboxStats(pending, held, failed, None if oldest is None else _length(oldest), routes)


def _lease_partitions(
    connection: sqlite3.Connection, now: int, *, relay: str, lease: int
) -> list[PartitionLease]:
    values = {"relay": relay, "lease": lease, "now": now}
    connection.execute(SQL["add_relay"], {"relay": relay, "now": now})
    connection.execute(SQL["delete_relays"], {"lease": lease, "now": now})
    connection.execute(SQL["lease_partitions"], values)
    return [PartitionLease(*row) for row in connection.execute(SQL["partitions_of"], {"relay": relay})]


def _release_partitions(connection: sqlite3.Connection, _now: int, *, relay: str) -> None:
    connection.execute(SQL["release_partitions"], {"relay": relay})
    connection.execute(SQL["delete_relay"], {"relay": relay})


def _due(connection: sqlite3.Connection, *, values: dict[str, Any]) -> DueMessages:
    # The routes first: one that is unblocked after they were read costs a write that matches nothing, and the messages
    # that its release added are not missed.
    routes = connection.execute(SQL["routes"], {"now": values["now"]}).fetchall()
    messages = [_message(row) for row in connection.execute(SQL["due_messages"], values)]
    timing = {"leases": values["leases"], "now": values["now"]}
    [next_due] = connection.execute(SQL["next_retry"], timing).fetchone()
    return DueMessages(
        messages,
        frozenset(route for route, unblocked in routes if not unblocked),
        frozenset(route for route, unblocked in routes if unblocked),
        None if next_due is None else _length(next_due - values["now"]),
    )


def _message(row: sqlite3.Row) -> DueMessage:
    message = DueMessage(*row)
    return message._replace(waited=_length(row["waited"]))


def _settle(
    connection: sqlite3.Connection,
    now: int,
    *,
    leases: Sequence[PartitionLease],
    batch: Sequence[MessageTransition],
) -> SettledMessages:
    held = _held(connection, leases)
    changes = [change for change in batch if change.partition in held]
    blocking = {
        change.held_by: change for change in reversed(changes) if change.change is MessageChange.BLOCKED
    }
    alarmed = {
        route for route in blocking if connection.execute(SQL["quiet_route"], {"route": route}).fetchone()
    }
    blocked = {route for route, change in blocking.items() if _block_route(connection, change, now)}
    values = {"batch": json.dumps([_row(change) for change in changes], ensure_ascii=False), "now": now}
    written = frozenset(row[0] for row in connection.execute(SQL["settle_messages"], values).fetchall())
    settled = [change for change in changes if change.id in written]
    _release(connection, [c.id for c in settled if c.change is MessageChange.PUBLISHED])
    add_dead_messages(connection, [c.dead for c in settled if c.dead is not None], now=now)
    return SettledMessages(
        written, *(frozenset(route for route in each if route is not None) for each in (blocked, alarmed))
    )


def _held(connection: sqlite3.Connection, leases: Sequence[PartitionLease]) -> set[int]:
    return {row[0] for row in connection.execute(SQL["leased_partitions"], {"leases": json.dumps(leases)})}


def _block_route(connection: sqlite3.Connection, change: MessageTransition, now: int) -> bool:
    """Block the route that holds a message; false if it was blocked before."""
    values = {
        "route": change.held_by,
        "delay": micros_of(change.delay or timedelta(0)),
        "error": change.error or "",
        "at_capacity": change.full,
        "now": now,
    }
    return connection.execute(SQL["block_route"], values).rowcount > 0


def _row(change: MessageTransition) -> list[Any]:
    delay = None if change.delay is None else micros_of(change.delay)
    dead_job_id = None if change.dead is None else change.dead.id
    return [change.id, change.change, change.spent, delay, change.error, change.held_by, dead_job_id]


def _release(connection: sqlite3.Connection, message_ids: Sequence[str]) -> None:
    """Release what is held behind messages that are published or skipped."""
    if message_ids:
        holders = json.dumps([behind_holder(message_id) for message_id in message_ids])
        connection.execute(SQL["release_messages"], {"holders": holders})


def _probes(
    connection: sqlite3.Connection, now: int, *, leases: Sequence[PartitionLease], again: int
) -> list[Probe]:
    held = _held(connection, leases)
    own = json.dumps([lease for lease in leases if lease.number in held])
    found = []
    for route, waits, at_capacity in connection.execute(SQL["routes_to_probe"], {"now": now}).fetchall():
        if not waits:
            found.append(Probe(route, None, bool(at_capacity)))
            continue
        values = {"route": route, "leases": own, "now": now}
        row = connection.execute(SQL["message_to_probe"], values).fetchone()
        if row is not None:
            connection.execute(SQL["move_probe"], {"route": route, "again": again, "now": now})
            found.append(Probe(route, _message(row), bool(at_capacity)))
    return found


def _unblock_route(connection: sqlite3.Connection, now: int, *, values: Mapping[str, Any]) -> int | None:
    row = connection.execute(SQL["unblock_route"], {**values, "now": now}).fetchone()
    if row is None:
        return None
    held, at_capacity = row
    if not at_capacity:
        connection.execute(SQL["clear_alarm"], {"kind": route_alarm(values["route"])})
    return int(held)


def _release_route(connection: sqlite3.Connection, now: int, *, route: str, limit: int) -> int:
    released = connection.execute(SQL["release_route"], {"route": route, "limit": limit}).rowcount
    if released < limit and connection.execute(SQL["delete_route"], {"route": route, "now": now}).rowcount:
        connection.execute(SQL["clear_alarm"], {"kind": route_alarm(route)})
    return released


def _change(
    connection: sqlite3.Connection, now: int, *, statement: str, values: Mapping[str, Any], letter: Step
) -> list[str]:
    rows = connection.execute(SQL[statement], {**values, "now": now}).fetchall()
    changed = [row["id"] for row in rows]
    if statement == "skip_messages":
        _release(connection, changed)
    dead = json.dumps([row["dead_job_id"] for row in rows if row["dead_job_id"] is not None])
    ending = {"ids": dead, "state": letter.to, "notes": letter.notes, "now": now}
    ended = [row["job_id"] for row in connection.execute(SQL["end_letters"], ending).fetchall()]
    record_steps(connection, ended, now, step_rows([letter]))
    return changed


def _length(count: int) -> timedelta:
    return timedelta(microseconds=count)
