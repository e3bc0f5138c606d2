"""Publishers: people and programs that publish messages, in transactions and without, and look after the outbox."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.messages.broker_message import JSON
from holdfast.core.messages.outbox import MessageFilter, MessageStatus
from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.times import micros
from tests.simulation.message_jobs import (
    AGGREGATE_TYPE,
    AGGREGATES,
    MEMO,
    NOTE,
    REQUEST,
    STRANGER,
    Memo,
    Note,
    Request,
)
from tests.simulation.processes import Injected

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from holdfast import Holdfast
    from tests.simulation.message_jobs import Messaging
    from tests.simulation.message_oracle import MessageOracle

MOST_MESSAGES = 30
"""Messages after which nothing more is published."""

MOST_REQUESTS = 10
"""Requests after which another system sends nothing more."""

_INSERT = """
INSERT INTO holdfast_outbox_messages (id, aggregate_id, aggregate_type, message_type, payload, headers, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""


class Publishers:
    """One process that publishes, doing one thing after another by chance."""

    def __init__(
        self,
        hold: Holdfast,
        chance: random.Random,
        messaging: Messaging,
        *,
        path: str,
        now: Callable[[], datetime],
        message_oracle: MessageOracle,
        committed: Callable[[], None],
    ) -> None:
        self._hold = hold
        self._chance = chance
        self._messaging = messaging
        self._path = path
        self._now = now
        self._oracle = message_oracle
        self._committed = committed

    async def live(self, stop: asyncio.Event) -> None:
        """Act until *stop* is set. A cancellation is meant for the call that it meets, and does not end this."""
        deeds: list[Callable[[], Awaitable[None]]] = [
            *[self._publish] * 4,
            *[self._publish_within] * 3,
            *[self._insert] * 2,
            self._retry,
            self._skip,
            *[self._send] * 3,
        ]
        broker = self._oracle.broker
        assert broker is not None
        async with self._hold:
            while not stop.is_set():
                await asyncio.sleep(self._chance.expovariate(0.7))
                if broker.calm:
                    continue  # what was published is to come to its end
                try:
                    await self._chance.choice(deeds)()
                except (StoreUnavailable, Injected):
                    continue  # nothing was promised
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    assert task is not None
                    task.uncancel()

    async def publish_one_of_each(self) -> None:
        """Publish a message about each thing, unblock some of the routes, and go."""
        async with self._hold:
            for blocked in await self._hold.outbox.routes():
                if self._chance.random() < 0.3:  # the others are tried again in a minute
                    await self._hold.outbox.unblock(
                        blocked.route, actor="ann", reason="the faults have stopped"
                    )
            for about in AGGREGATES:
                await self._publish_one(Note(serial=self._serial(), about=about))

    async def _publish(self) -> None:
        if self._is_enough():
            return
        await self._publish_one(self._message())

    async def _publish_one(self, message: Note | Memo | Request) -> None:
        await self._hold.publish(message)
        self._oracle.acknowledged.add(message.serial)

    async def _publish_within(self) -> None:
        """Publish some messages in a transaction, which may be rolled back."""
        if self._is_enough():
            return
        # No other task runs until its end: the transaction locks the file.
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            messages = [self._message() for _ in range(self._chance.choice((1, 2, 3)))]
            for message in messages:
                await self._hold.publish(message, within=connection)
            if self._chance.random() < 0.7:
                connection.execute("COMMIT")
                self._oracle.acknowledged |= {message.serial for message in messages}
            else:
                connection.execute("ROLLBACK")
                self._oracle.rolled_back |= {message.serial for message in messages}
        self._committed()

    async def _insert(self) -> None:
        """Write messages as another program does, some of them wrongly."""
        if self._is_enough():
            return
        message, headers = self._message(), "{}"
        name = {Note: NOTE, Memo: MEMO, Request: REQUEST}[type(message)]
        fields: dict[str, Any] = message.model_dump()
        if self._messaging.strangers and self._chance.random() < 0.2:
            name = STRANGER
        elif self._messaging.faulty and self._chance.random() < 0.1:
            headers, fields["broken"] = "[]", True
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            row = [fields["about"], AGGREGATE_TYPE, name, json.dumps(fields), headers]
            # The defaults of both are random, and by the real clock.
            new_id = str(UUID(int=self._chance.getrandbits(128), version=4))
            connection.execute(_INSERT, [new_id, *row, micros(self._now())])
        self._committed()

    async def _send(self) -> None:
        """Be another system that sends requests: new ones, the same again, others under the same id, and broken ones."""
        broker = self._oracle.broker
        assert broker is not None
        if len(self._oracle.sent) >= MOST_REQUESTS:
            return
        number, which = self._chance.randrange(100), self._chance.randrange(2 * MOST_REQUESTS)
        request = Request(
            serial=f"request-{which}",
            about=AGGREGATES[0],
            number=number if self._chance.random() < 0.2 else 0,  # another one is a conflict
            fails=which % 4,
            metadata={"sent": str(number)},
        )
        body, content_type = request.model_dump_json().encode(), JSON
        match self._chance.randrange(12):
            case 0:
                body = body[:-5]
            case 1:
                body = json.dumps({"serial": request.serial, "nothing": number}).encode()
            case 2:
                content_type = "application/x-python-serialize"
        self._oracle.sent.append(body)
        broker.queue.add(body, request.serial, content_type=content_type)

    async def _retry(self) -> None:
        await self._change(MessageStatus.FAILED, self._hold.outbox.retry)

    async def _skip(self) -> None:
        status = self._chance.choice((MessageStatus.PENDING, MessageStatus.FAILED, MessageStatus.FAILED))
        await self._change(status, self._hold.outbox.skip)

    async def _change(self, status: MessageStatus, change: Callable[..., Awaitable[Any]]) -> None:
        found = await self._hold.outbox.list(MessageFilter(status=status, limit=5))
        if found:
            await change([self._chance.choice(found).id], actor="ann", reason="by chance")

    def _message(self) -> Note | Memo | Request:
        kind = self._chance.choice((Note, Note, Memo, Request))
        fields: dict[str, Any] = {
            "serial": self._serial(),
            "about": self._chance.choice(AGGREGATES),
            "refusals": self._messaging.refusals(self._chance),
        }
        return Request(**fields, number=0) if kind is Request else kind(**fields)

    def _is_enough(self) -> bool:
        return self._oracle.count() >= MOST_MESSAGES

    def _serial(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"
