"""RabbitMQ: a message is confirmed or refused with a reason, and nothing that one message does disturbs another."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from holdfast.brokers.rabbitmq import RabbitBroker
from holdfast.core.errors import BrokerError, BrokerUnavailable, MessageRefused, RouteFull, RouteRefused
from holdfast.core.messages.broker_message import IncomingMessage, OutgoingMessage, Route
from tests.acceptance.harness.proxy import Proxy
from tests.acceptance.harness.proxy import Route as ProxyRoute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from aio_pika.abc import AbstractChannel

    from tests.brokers import BrokerServer, PrivateRabbitMQ

LIMIT = 30.0
SHORT = timedelta(milliseconds=400)


class Places:
    """An exchange, and a queue that is bound to it under its own name; both exist for this test alone."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.exchange = f"test.{uuid.uuid4().hex}"
        self.queue = f"test.{uuid.uuid4().hex}"

    async def create(self, *, arguments: Mapping[str, Any] | None = None) -> None:
        exchange = await self.channel.declare_exchange(self.exchange, durable=True)
        queue = await self.channel.declare_queue(self.queue, durable=True, arguments=dict(arguments or {}))
        await queue.bind(exchange, self.queue)

    async def bodies(self) -> list[bytes]:
        """Take all messages out of the queue."""
        queue = await self.channel.get_queue(self.queue)
        found = []
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            found.append(message.body)
        return found

    def message(
        self, body: bytes = b"{}", *, exchange: str | None = None, key: str | None = None, **headers: str
    ) -> OutgoingMessage:
        route = Route("rabbitmq", self.exchange if exchange is None else exchange, key or self.queue)
        return OutgoingMessage(uuid.uuid4().hex, "test.message", route, body, headers)


@asynccontextmanager
async def places_at(url: str) -> AsyncIterator[Places]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield Places(await connection.channel())


@pytest.fixture
async def places(rabbitmq_server: BrokerServer) -> AsyncIterator[Places]:
    async with places_at(rabbitmq_server.url) as made:
        await made.create()
        yield made
        await made.channel.queue_delete(made.queue)
        await made.channel.exchange_delete(made.exchange)


@pytest.fixture
async def broker(rabbitmq_server: BrokerServer) -> AsyncIterator[RabbitBroker]:
    async with opened(rabbitmq_server.url) as client:
        yield client


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RabbitBroker]:
    client = RabbitBroker(url, **options)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def route(rabbitmq_server: BrokerServer) -> Iterator[ProxyRoute]:
    with Proxy("127.0.0.1", rabbitmq_server.port) as proxy:
        yield proxy.route()


async def publish_all(
    broker: RabbitBroker, messages: Sequence[OutgoingMessage]
) -> list[BaseException | None]:
    return await asyncio.gather(*map(broker.publish, messages), return_exceptions=True)


async def receive(broker: RabbitBroker, queue: str, count: int) -> list[IncomingMessage]:
    """Receive *count* messages, and acknowledge them."""
    async with asyncio.timeout(LIMIT), broker.subscribe(queue, prefetch=count) as subscription:
        found: list[IncomingMessage] = []
        while len(found) < count:
            found += await subscription.receive(count - len(found))
        await subscription.acknowledge(found)
        return found


async def test_a_published_message_arrives_with_its_properties(broker: RabbitBroker, places: Places) -> None:
    message = places.message(b'{"n": 1}', traceparent="00-abc")

    await broker.publish(message)

    queue = await places.channel.get_queue(places.queue)
    arrived = await queue.get(no_ack=True)
    assert arrived is not None
    assert (arrived.body, arrived.message_id, arrived.type) == (b'{"n": 1}', message.id, "test.message")
    assert arrived.headers == {"traceparent": "00-abc"}
    assert arrived.content_type == "application/json"
    assert arrived.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


async def test_hundreds_of_messages_are_published_at_once(broker: RabbitBroker, places: Places) -> None:
    messages = [places.message(b"%d" % number) for number in range(500)]

    assert await publish_all(broker, messages) == [None] * 500

    assert sorted(await places.bodies()) == sorted(message.body for message in messages)


async def test_a_message_that_no_queue_takes_is_refused_with_its_route(
    broker: RabbitBroker, places: Places
) -> None:
    with pytest.raises(RouteRefused, match=f"'{places.exchange}' for the routing key 'unbound'"):
        await broker.publish(places.message(key="unbound"))

    await broker.publish(places.message())


async def test_a_missing_exchange_does_not_disturb_the_messages_of_others(
    broker: RabbitBroker, places: Places
) -> None:
    lost = places.message(exchange="test.missing")

    answers = await publish_all(broker, [places.message(), lost, places.message(), lost, places.message()])

    assert [type(answer) for answer in answers] == [
        type(None),
        RouteRefused,
        type(None),
        RouteRefused,
        type(None),
    ]
    assert "no exchange 'test.missing'" in str(answers[1])
    assert len(await places.bodies()) == 3


async def test_an_exchange_that_is_created_later_is_used_then(broker: RabbitBroker, places: Places) -> None:
    fresh = Places(places.channel)
    with pytest.raises(RouteRefused):
        await broker.publish(fresh.message())
    await fresh.create()

    await broker.publish(fresh.message())

    assert await fresh.bodies() == [b"{}"]


async def test_an_exchange_that_is_deleted_later_refuses_the_route(
    broker: RabbitBroker, places: Places
) -> None:
    await broker.publish(places.message())
    await places.channel.exchange_delete(places.exchange)

    answers = await publish_all(broker, [places.message(), places.message()])

    assert [type(answer) for answer in answers] == [RouteRefused, RouteRefused]


async def test_an_exchange_that_the_user_may_not_write_to_refuses_the_route(
    private_rabbitmq: PrivateRabbitMQ,
) -> None:
    async with places_at(private_rabbitmq.url) as forbidden, opened(private_rabbitmq.limited_url) as broker:
        await forbidden.create()
        allowed = Places(forbidden.channel)
        allowed.exchange = f"allowed.{uuid.uuid4().hex}"
        await allowed.create()

        answers = await publish_all(broker, [allowed.message(), forbidden.message(), allowed.message()])

    assert [type(answer) for answer in answers] == [type(None), RouteRefused, type(None)]
    assert "ACCESS_REFUSED" in str(answers[1])


async def test_ten_megabytes_are_published(broker: RabbitBroker, places: Places) -> None:
    body = b"x" * 10_000_000

    await broker.publish(places.message(body))

    assert [message.body for message in await receive(broker, places.queue, 1)] == [body]


async def test_a_message_larger_than_the_server_takes_is_refused_alone(
    private_rabbitmq: PrivateRabbitMQ,
) -> None:
    async with places_at(private_rabbitmq.url) as places, opened(private_rabbitmq.url) as broker:
        await places.create()
        messages = [places.message(b"%d" % number) for number in range(100)]
        messages[50] = places.message(b"x" * (16 * 2**20 + 1))

        answers = await publish_all(broker, messages)

        assert isinstance(answers[50], MessageRefused)
        assert "larger than" in str(answers[50])
        assert [answer for answer in answers if answer is not None] == [answers[50]]
        assert len(set(await places.bodies())) == 99


async def test_a_full_queue_that_rejects_messages_is_a_full_route(
    rabbitmq_server: BrokerServer, broker: RabbitBroker
) -> None:
    async with places_at(rabbitmq_server.url) as places:
        await places.create(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await broker.publish(places.message(b"first"))

        with pytest.raises(RouteFull, match="a queue of its route is full, or cannot store it"):
            await publish_until_refused(broker, places)

        assert (await places.bodies())[0] == b"first"
        await broker.publish(places.message(b"room again"))
        await places.channel.queue_delete(places.queue)


async def test_a_server_that_is_short_of_memory_blocks_publishing_and_nothing_else(
    private_rabbitmq: PrivateRabbitMQ,
) -> None:
    async with (
        places_at(private_rabbitmq.url) as places,
        opened(private_rabbitmq.url, timeout=timedelta(seconds=2)) as broker,
    ):
        await places.create()
        await publish_all(broker, [places.message(b"before")])
        async with broker.subscribe(places.queue, prefetch=5) as subscription:
            received = await take(subscription, 1)
            await asyncio.to_thread(private_rabbitmq.control, "set_vm_memory_high_watermark", "0")
            try:
                answers = await publish_all(broker, [places.message(b"during") for _ in range(20)])
                await subscription.acknowledge(received)
            finally:
                await asyncio.to_thread(private_rabbitmq.control, "set_vm_memory_high_watermark", "0.4")

            assert {type(answer) for answer in answers} == {BrokerUnavailable}
            await broker.publish(places.message(b"after"))
            last = b""
            while last != b"after":  # the server may have taken the others when it read again
                [message] = await take(subscription, 1)
                await subscription.acknowledge([message])
                last = message.body


async def test_headers_that_a_frame_cannot_carry_are_refused_alone(
    broker: RabbitBroker, places: Places
) -> None:
    large = places.message(note="ü" * 40_000)
    long_name = places.message()._replace(headers={"n" * 200: "value"})

    answers = await publish_all(broker, [places.message(), large, long_name, places.message()])

    assert [type(answer) for answer in answers] == [type(None), MessageRefused, MessageRefused, type(None)]


@pytest.mark.parametrize("part", ["password", "vhost"])
async def test_a_wrong_password_or_virtual_host_is_one_line_without_the_password(
    private_rabbitmq: PrivateRabbitMQ, part: str
) -> None:
    wrong = {
        "password": private_rabbitmq.url.replace(":guest@", ":hunter2@"),
        "vhost": private_rabbitmq.url + "missing",
    }[part]
    expected = {"password": "refused the user or the password", "vhost": "refused the virtual host 'missing'"}

    async with opened(wrong) as broker:
        with pytest.raises(BrokerUnavailable, match=expected[part]) as caught:
            await broker.check()

    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_check_names_product_and_version(broker: RabbitBroker) -> None:
    assert (await broker.check()).startswith("RabbitMQ 3.") or (await broker.check()).startswith(
        "RabbitMQ 4."
    )


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with opened("amqp://guest:guest@127.0.0.1:1/") as broker:
        with pytest.raises(BrokerUnavailable, match="cannot be reached"):
            await broker.publish(OutgoingMessage("1", "t", Route("r", "e", "k"), b"{}", {}))


async def test_after_a_crash_of_the_server_the_next_call_connects_again(
    private_rabbitmq: PrivateRabbitMQ,
) -> None:
    async with opened(private_rabbitmq.url) as broker:
        async with places_at(private_rabbitmq.url) as places:
            await places.create()
            await broker.publish(places.message(b"before"))
        await asyncio.to_thread(private_rabbitmq.kill)
        with pytest.raises(BrokerUnavailable):
            await broker.publish(places.message(b"during"))
        await asyncio.to_thread(private_rabbitmq.start)
        async with places_at(private_rabbitmq.url) as again:
            # The server writes new exchanges and queues to its disk with a delay.
            again.exchange, again.queue = places.exchange, places.queue
            await again.create()

            await broker.publish(again.message(b"after"))

            assert (await again.bodies())[-1] == b"after"


async def test_a_connection_cut_before_the_confirm_leaves_the_message_unconfirmed(
    rabbitmq_server: BrokerServer, places: Places, route: ProxyRoute
) -> None:
    async with opened(rabbitmq_server.at_port(route.port)) as broker:
        await broker.publish(places.message(b"before"))
        await asyncio.to_thread(route.cut)
        publishing = asyncio.create_task(broker.publish(places.message(b"during")))
        await asyncio.sleep(0)  # it is sent now
        await asyncio.to_thread(route.reset)

        with pytest.raises(BrokerUnavailable, match="closed the connection"):
            await publishing

        await asyncio.to_thread(route.restore)
        await broker.publish(places.message(b"after"))


async def test_a_confirm_that_never_comes_is_a_timeout_and_the_next_call_connects_again(
    rabbitmq_server: BrokerServer, places: Places, route: ProxyRoute
) -> None:
    async with opened(rabbitmq_server.at_port(route.port), timeout=SHORT) as broker:
        await broker.publish(places.message())
        await asyncio.to_thread(route.half_open)

        with pytest.raises(BrokerUnavailable, match=r"did not confirm a message within 0\.4 s"):
            await broker.publish(places.message())

        await broker.publish(places.message(b"after"))
    assert (await places.bodies())[-1] == b"after"


async def test_a_server_that_accepts_and_says_nothing_is_a_timeout(
    rabbitmq_server: BrokerServer, route: ProxyRoute
) -> None:
    await asyncio.to_thread(route.cut)
    async with opened(rabbitmq_server.at_port(route.port), timeout=SHORT) as broker:
        with pytest.raises(BrokerUnavailable, match="did not answer within"):
            await broker.check()


async def test_acknowledged_messages_are_gone_and_the_others_are_delivered_again(
    broker: RabbitBroker, places: Places
) -> None:
    await publish_all(broker, [places.message(b"%d" % number) for number in range(6)])
    async with broker.subscribe(places.queue, prefetch=10) as subscription:
        first = await take(subscription, 6)
        await subscription.acknowledge([first[0], first[1], first[4]])

    again = await receive(broker, places.queue, 3)

    assert [message.body for message in again] == [first[2].body, first[3].body, first[5].body]
    assert {message.redelivered for message in again} == {True}
    assert {message.redelivered for message in first} == {False}


async def test_a_requeued_message_is_delivered_again(broker: RabbitBroker, places: Places) -> None:
    await publish_all(broker, [places.message(b"%d" % number) for number in range(3)])
    async with asyncio.timeout(LIMIT), broker.subscribe(places.queue, prefetch=3) as subscription:
        first = await take(subscription, 3)

        await subscription.requeue(first[:2])

        again = await take(subscription, 2)
        await subscription.acknowledge([*again, first[2]])
        await subscription.acknowledge(again)  # a second time changes nothing
    assert sorted(message.body for message in again) == sorted(message.body for message in first[:2])
    assert await places.bodies() == []


async def test_no_more_than_the_prefetch_is_delivered_without_acknowledgement(
    broker: RabbitBroker, places: Places
) -> None:
    await publish_all(broker, [places.message(b"%d" % number) for number in range(5)])
    async with asyncio.timeout(LIMIT), broker.subscribe(places.queue, prefetch=2) as subscription:
        held = await take(subscription, 2)
        waiting = asyncio.create_task(subscription.receive(5))
        state = await places.channel.declare_queue(places.queue, passive=True)
        assert state.declaration_result.message_count == 3

        await subscription.acknowledge(held)

        assert len(await waiting) in {1, 2}


async def test_what_was_received_on_a_lost_connection_is_delivered_again(
    rabbitmq_server: BrokerServer, places: Places, route: ProxyRoute
) -> None:
    async with opened(rabbitmq_server.at_port(route.port)) as broker, asyncio.timeout(LIMIT):
        await broker.publish(places.message(b"twice"))
        async with broker.subscribe(places.queue, prefetch=1) as lost:
            received = await lost.receive(1)
            await asyncio.to_thread(route.reset)
            with pytest.raises(BrokerUnavailable):
                await lost.receive(1)
            with pytest.raises(BrokerUnavailable):
                await lost.acknowledge(received)

        async with broker.subscribe(places.queue, prefetch=1) as subscription:
            again = await subscription.receive(1)
            with pytest.raises(BrokerUnavailable, match="delivered again"):
                await subscription.acknowledge(received)
            await subscription.acknowledge(again)

    assert (again[0].body, again[0].redelivered) == (b"twice", True)
    assert await places.bodies() == []


async def test_a_missing_queue_refuses_the_subscription(broker: RabbitBroker) -> None:
    with pytest.raises(RouteRefused, match=r"no queue 'test\.missing'"):
        async with broker.subscribe("test.missing", prefetch=1):
            pass


async def test_a_queue_that_is_deleted_ends_the_subscription(broker: RabbitBroker, places: Places) -> None:
    async with asyncio.timeout(LIMIT), broker.subscribe(places.queue, prefetch=1) as subscription:
        await places.channel.queue_delete(places.queue)

        with pytest.raises(RouteRefused, match="was deleted"):
            await subscription.receive(1)


async def test_closing_the_broker_ends_its_subscriptions(broker: RabbitBroker, places: Places) -> None:
    async with asyncio.timeout(LIMIT), broker.subscribe(places.queue, prefetch=1) as subscription:
        waiting = asyncio.create_task(subscription.receive(1))
        await asyncio.sleep(0)  # it waits now

        await broker.close()

        with pytest.raises(BrokerError):
            await waiting
    await broker.publish(places.message())


async def test_after_its_close_no_task_of_a_broker_is_left(
    rabbitmq_server: BrokerServer, places: Places
) -> None:
    before = asyncio.all_tasks()
    async with opened(rabbitmq_server.url) as broker:
        await publish_all(broker, [places.message(), places.message(exchange="test.missing")])
        await receive(broker, places.queue, 1)

    left = asyncio.all_tasks() - before
    if left:
        await asyncio.wait(left, timeout=1)

    assert asyncio.all_tasks() - before == set()


async def test_properties_of_other_programs_are_passed_on_as_they_are(
    broker: RabbitBroker, places: Places
) -> None:
    exchange = await places.channel.get_exchange(places.exchange)
    sent = aio_pika.Message(b"\x80pickle", content_type="application/x-python-serialize", headers={"n": 1})

    await exchange.publish(sent, places.queue)

    [arrived] = await receive(broker, places.queue, 1)
    assert (arrived.body, arrived.content_type) == (b"\x80pickle", "application/x-python-serialize")
    assert (arrived.type, arrived.headers) == (None, {"n": 1})


async def publish_until_refused(broker: RabbitBroker, places: Places) -> None:
    """Publish until the server has noticed that the queue is full."""
    async with asyncio.timeout(LIMIT):
        while True:
            await broker.publish(places.message(b"another"))


async def take(subscription: Any, count: int) -> list[IncomingMessage]:
    async with asyncio.timeout(LIMIT):
        found: list[IncomingMessage] = []
        while len(found) < count:
            found += await subscription.receive(count - len(found))
        return found
