"""Redis streams: a message is added or refused with a reason, and one that is not acknowledged is delivered again."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from holdfast.brokers.redis_streams import RedisBroker
from holdfast.core.errors import BrokerUnavailable, ConfigError, RouteRefused
from holdfast.core.messages.broker_message import IncomingMessage, OutgoingMessage, Route
from tests.acceptance.harness.proxy import Proxy
from tests.acceptance.harness.proxy import Route as ProxyRoute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.brokers.redis_streams.redis_subscription import RedisSubscription
    from tests.brokers import BrokerServer, PrivateRedis

LIMIT = 30.0
SHORT = timedelta(milliseconds=400)


@pytest.fixture
async def redis(redis_server: BrokerServer) -> AsyncIterator[Any]:
    client = Redis.from_url(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def stream(redis: Any) -> AsyncIterator[str]:
    name = f"test.{uuid.uuid4().hex}"
    yield name
    await redis.delete(name)


@pytest.fixture
async def broker(redis_server: BrokerServer) -> AsyncIterator[RedisBroker]:
    async with opened(redis_server.url) as client:
        yield client


@pytest.fixture
def route(redis_server: BrokerServer) -> Iterator[ProxyRoute]:
    with Proxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy.route()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisBroker]:
    client = RedisBroker(url, **options)
    try:
        yield client
    finally:
        await client.close()


def a_message(stream: str, body: bytes = b"{}", **headers: str) -> OutgoingMessage:
    return OutgoingMessage(uuid.uuid4().hex, "test.message", Route("redis", "", stream), body, headers)


async def take(subscription: RedisSubscription, count: int) -> list[IncomingMessage]:
    async with asyncio.timeout(LIMIT):
        found: list[IncomingMessage] = []
        while len(found) < count:
            found += await subscription.receive(count - len(found))
        return found


async def test_a_published_message_is_received_with_its_properties(broker: RedisBroker, stream: str) -> None:
    message = a_message(stream, b'{"n": 1}', traceparent="00-abc")

    await broker.publish(message)

    async with broker.subscribe(stream, prefetch=1) as subscription:
        [arrived] = await take(subscription, 1)
        assert (arrived.body, arrived.id, arrived.type) == (b'{"n": 1}', message.id, "test.message")
        assert (arrived.headers, arrived.content_type) == ({"traceparent": "00-abc"}, "application/json")
        assert not arrived.redelivered


async def test_hundreds_of_messages_are_published_at_once_in_their_order(
    broker: RedisBroker, stream: str, redis: Any
) -> None:
    messages = [a_message(stream, b"%d" % number) for number in range(500)]

    await asyncio.gather(*map(broker.publish, messages))

    assert [fields[b"body"] for _, fields in await redis.xrange(stream)] == [each.body for each in messages]


async def test_a_key_that_is_no_stream_refuses_its_route_alone(
    broker: RedisBroker, stream: str, redis: Any
) -> None:
    wrong = f"{stream}.text"
    await redis.set(wrong, "text")

    answers = await asyncio.gather(
        *(broker.publish(a_message(name)) for name in (stream, wrong, stream)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [type(None), RouteRefused, type(None)]
    assert "is not a stream" in str(answers[1])
    await redis.delete(wrong)


async def test_a_server_without_memory_is_unavailable(private_redis: PrivateRedis, stream: str) -> None:
    client = Redis.from_url(private_redis.url)
    await client.config_set("maxmemory", "1")
    async with opened(private_redis.url) as broker:
        with pytest.raises(BrokerUnavailable):
            await broker.publish(a_message(stream))
        await client.config_set("maxmemory", "0")

        await broker.publish(a_message(stream))
    await client.aclose()


async def test_a_read_only_replica_is_unavailable(private_redis: PrivateRedis, stream: str) -> None:
    client = Redis.from_url(private_redis.url)
    await client.replicaof("127.0.0.1", "1")

    async with opened(private_redis.url) as broker:
        with pytest.raises(BrokerUnavailable, match=r"read only|replica|MASTERDOWN"):
            await broker.publish(a_message(stream))
    await client.aclose()


async def test_a_wrong_password_is_one_line_without_it(private_redis: PrivateRedis) -> None:
    async with opened(private_redis.url.replace("redis://", "redis://user:hunter2@")) as broker:
        with pytest.raises(BrokerUnavailable, match="refused the user or the password") as caught:
            await broker.check()

    assert "hunter2" not in str(caught.value)


async def test_the_check_names_product_and_version(broker: RedisBroker) -> None:
    assert (await broker.check()).startswith("Redis 7")


async def test_after_a_restart_of_the_server_a_later_call_connects_again(
    private_redis: PrivateRedis, stream: str
) -> None:
    async with opened(private_redis.url) as broker:
        await broker.publish(a_message(stream, b"before"))
        await asyncio.to_thread(private_redis.kill)
        with pytest.raises(BrokerUnavailable):
            await broker.publish(a_message(stream))
        await asyncio.to_thread(private_redis.start)

        await broker.publish(a_message(stream, b"after"))

        async with broker.subscribe(stream, prefetch=2) as subscription:
            assert [message.body for message in await take(subscription, 2)] == [b"before", b"after"]


async def test_an_answer_that_never_comes_is_a_timeout(
    redis_server: BrokerServer, stream: str, route: ProxyRoute
) -> None:
    async with opened(redis_server.at_port(route.port), timeout=SHORT) as broker:
        await broker.publish(a_message(stream))
        await asyncio.to_thread(route.half_open)

        with pytest.raises(BrokerUnavailable):
            await broker.publish(a_message(stream))

        await broker.publish(a_message(stream, b"after"))


async def test_an_acknowledged_message_is_not_delivered_again_and_a_requeued_one_is(
    broker: RedisBroker, stream: str, redis: Any
) -> None:
    for number in range(3):
        await broker.publish(a_message(stream, b"%d" % number))
    async with broker.subscribe(stream, prefetch=5) as subscription:
        received = await take(subscription, 3)
        await subscription.acknowledge(received[:1])

        await subscription.requeue(received[1:])

        again = await take(subscription, 2)
        await subscription.acknowledge(again)
        assert [(message.body, message.redelivered) for message in again] == [(b"1", True), (b"2", True)]
    assert (await redis.xpending(stream, "holdfast"))["pending"] == 0


async def test_a_message_of_a_dead_consumer_goes_to_another(
    broker: RedisBroker, stream: str, redis: Any
) -> None:
    await broker.publish(a_message(stream, b"left"))
    async with broker.subscribe(stream, prefetch=1) as dead:
        [left] = await take(dead, 1)
    [entry] = await redis.xpending_range(stream, "holdfast", "-", "+", 1)
    # The server has no clock to set; this says that the message was delivered a minute ago.
    await redis.xclaim(
        stream, "holdfast", entry["consumer"], 0, [entry["message_id"]], idle=60_000, justid=True
    )

    async with broker.subscribe(stream, prefetch=1) as subscription:
        [again] = await take(subscription, 1)
        with pytest.raises(BrokerUnavailable, match="delivered again"):
            await subscription.acknowledge([left])
        await subscription.acknowledge([again])

    assert (again.body, again.redelivered) == (b"left", True)


async def test_no_more_than_the_prefetch_is_delivered_without_acknowledgement(
    broker: RedisBroker, stream: str
) -> None:
    for number in range(5):
        await broker.publish(a_message(stream, b"%d" % number))
    async with broker.subscribe(stream, prefetch=2) as subscription:
        held = await subscription.receive(5)
        assert len(held) == 2
        waiting = asyncio.create_task(subscription.receive(5))
        await asyncio.sleep(0)  # it waits now
        assert not waiting.done()

        await subscription.acknowledge(held[:1])

        async with asyncio.timeout(LIMIT):
            assert [message.body for message in await waiting] == [b"2"]


async def test_a_lost_connection_is_unavailable(
    redis_server: BrokerServer, stream: str, route: ProxyRoute
) -> None:
    async with (
        opened(redis_server.at_port(route.port)) as broker,
        asyncio.timeout(LIMIT),
        broker.subscribe(stream, prefetch=1) as subscription,
    ):
        waiting = asyncio.create_task(subscription.receive(1))
        await asyncio.to_thread(route.reset)
        await asyncio.to_thread(route.cut)

        with pytest.raises(BrokerUnavailable):
            await waiting


async def test_entries_of_other_programs_are_passed_on_as_they_are(
    broker: RedisBroker, stream: str, redis: Any
) -> None:
    await redis.xadd(stream, {"headers": "{broken", "type": b"\xff"})
    await redis.xadd(stream, {"unknown": "field", "headers": "[]"})

    async with broker.subscribe(stream, prefetch=2) as subscription:
        first, second = await take(subscription, 2)

    assert (first.body, first.id, first.headers) == (b"", None, {})
    assert (second.body, second.type, second.headers) == (b"", None, {})


async def test_the_option_maxlen_bounds_a_stream(redis_server: BrokerServer, stream: str, redis: Any) -> None:
    async with opened(f"{redis_server.url}?maxlen=100&group=other") as broker:
        await asyncio.gather(*(broker.publish(a_message(stream)) for _ in range(1_000)))

    assert 100 <= await redis.xlen(stream) < 300
    with pytest.raises(ConfigError, match="maxlen"):
        RedisBroker(f"{redis_server.url}?maxlen=many")
