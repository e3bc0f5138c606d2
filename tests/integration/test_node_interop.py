"""Programs in Node, which know nothing but the contract, exchange messages with Holdfast's client of RabbitMQ."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.brokers.rabbitmq import RabbitBroker
from holdfast.core.messages.broker_message import IncomingMessage, OutgoingMessage, Route
from holdfast.core.messages.topology import Topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers import BrokerServer
    from tests.nodejs import NodePrograms

SCRIPTS = Path(__file__).parent / "node"
COUNT = 25
LIMIT = 60.0


@pytest.fixture
async def broker(rabbitmq_server: BrokerServer) -> AsyncIterator[RabbitBroker]:
    client = RabbitBroker(rabbitmq_server.url)
    yield client
    await client.close()


@pytest.fixture
async def name(broker: RabbitBroker) -> str:
    """The name of an exchange, of a queue and of their routing key."""
    name = f"node.{uuid.uuid4().hex}"
    await broker.apply_topology(
        Topology.of({"exchange": {"name": name}, "queues": [{"name": name}]}), management=None
    )
    return name


async def test_what_a_program_in_node_publishes_is_received(
    broker: RabbitBroker, name: str, node: NodePrograms, rabbitmq_server: BrokerServer
) -> None:
    await asyncio.to_thread(node.run, SCRIPTS / "producer.js", rabbitmq_server.url, name, name, str(COUNT))

    received: list[IncomingMessage] = []
    async with asyncio.timeout(LIMIT), broker.subscribe(name, prefetch=COUNT) as subscription:
        while len(received) < COUNT:
            received += await subscription.receive(COUNT)
        await subscription.acknowledge(received)

    assert [message.id for message in received] == [f"req_{number}" for number in range(1, COUNT + 1)]
    assert {message.type for message in received} == {"grading.request"}
    assert {message.content_type for message in received} == {"application/json"}
    assert received[0].headers == {"x-message-version": 1}
    assert json.loads(received[0].body) == {"requestId": "req_1", "content": "Chào buổi sáng"}


async def test_what_is_published_is_consumed_by_a_program_in_node(
    broker: RabbitBroker, name: str, node: NodePrograms, rabbitmq_server: BrokerServer
) -> None:
    for number in range(COUNT):
        body = json.dumps({"requestId": f"req_{number}", "band": "B2: khá"}, ensure_ascii=False).encode()
        headers = {"x-message-version": "1"}
        await broker.publish(
            OutgoingMessage(f"id_{number}", "grading.callback", Route("rabbitmq", name, name), body, headers)
        )

    printed = await asyncio.to_thread(
        node.run, SCRIPTS / "consumer.js", rabbitmq_server.url, name, str(COUNT)
    )

    consumed = [json.loads(line) for line in printed.splitlines()]
    assert [message["messageId"] for message in consumed] == [f"id_{number}" for number in range(COUNT)]
    assert consumed[0] == {
        "messageId": "id_0",
        "type": "grading.callback",
        "contentType": "application/json",
        "headers": {"x-message-version": "1"},
        "deliveryMode": 2,
        "body": {"requestId": "req_0", "band": "B2: khá"},
    }
