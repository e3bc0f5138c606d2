"""A queue of a real RabbitMQ that is full blocks its own route, and no other message."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import aio_pika
import pytest

from holdfast.core.messages.outbox import PROBE_WHEN_FULL
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.relays.relay import Relay
from tests.contract.letters import opened
from tests.contract.relays import Graded, a_message, added, relay_all, stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractQueue
    from pamqp.common import FieldTable

    from holdfast import Holdfast
    from tests.brokers import BrokerServer
    from tests.contract.conftest import Database, DatabaseClock, Logger


@pytest.fixture
async def queues(rabbitmq_server: BrokerServer) -> AsyncIterator[tuple[AbstractQueue, AbstractQueue]]:
    """A queue that takes one message, and one that takes all."""
    async with await aio_pika.connect(rabbitmq_server.url) as connection:
        channel = await connection.channel()
        limit: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
        narrow = await channel.declare_queue(f"test.{uuid.uuid4().hex}", arguments=limit)
        wide = await channel.declare_queue(f"test.{uuid.uuid4().hex}")
        yield narrow, wide
        await narrow.delete(if_empty=False)
        await wide.delete(if_empty=False)


async def take(queue: AbstractQueue) -> list[str | None]:
    """Take all messages out of a queue; return their ids."""
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message.message_id)
    return found


async def statuses(hold: Holdfast, ids: list[str]) -> list[str]:
    return [(await stored(hold, each)).status.value for each in ids]


@pytest.mark.clause("OUT-3")
@pytest.mark.clause("OUT-4")
async def test_a_full_queue_holds_its_own_messages_and_no_others(
    database: Database,
    clock: DatabaseClock,
    logger: Logger,
    rabbitmq_server: BrokerServer,
    queues: tuple[AbstractQueue, AbstractQueue],
) -> None:
    narrow, wide = queues
    async with opened(database, logger) as hold:
        broker = hold.broker("rabbitmq", rabbitmq_server.url)
        hold.message("graded", routing_key=narrow.name, broker=broker)(type("Narrow", (Graded,), {}))
        hold.message("mailed", routing_key=wide.name, broker=broker)(type("Wide", (Graded,), {}))
        graded = await added(hold, *(a_message("a", number) for number in range(4)))
        mailed = await added(hold, *(a_message(f"m{each}", message_type="mailed") for each in range(20)))
        clients = BrokerClients(hold.runtime)
        relay = Relay("relay", hold.runtime, clients, poll=1e-6)

        await relay_all(relay)

        taken = (await statuses(hold, graded)).count("published")
        assert 1 <= taken < 4, "the queue is full"
        assert await statuses(hold, mailed) == ["published"] * 20
        assert len(await take(wide)) == 20
        [route] = await hold.outbox.routes()
        assert route.route == f"rabbitmq//{narrow.name}"
        assert "a queue of its route is full" in route.error
        assert {(await stored(hold, each)).retry_count for each in graded} == {0}
        assert logger.lines("broker unavailable") == []

        arrived: list[str | None] = []
        while "pending" in await statuses(hold, graded):
            arrived += await take(narrow)
            await clock.advance(PROBE_WHEN_FULL)
            await relay_all(relay)
        arrived += await take(narrow)

        assert list(dict.fromkeys(arrived)) == [f"a#{number}" for number in range(4)]
        await clients.close()
