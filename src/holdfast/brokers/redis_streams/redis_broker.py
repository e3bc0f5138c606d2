"""Publishes to Redis streams, and subscribes to them with a consumer group."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from holdfast.aio.batcher import Batcher
from holdfast.brokers.redis_streams.redis_errors import censored, meaning
from holdfast.brokers.redis_streams.redis_subscription import RedisSubscription
from holdfast.core.errors import BrokerError, BrokerUnavailable, ConfigError, MessageRefused
from holdfast.core.messages.broker_message import OutgoingMessage

TIMEOUT = timedelta(seconds=10)
"""How long a call may take."""

BATCH = 100
"""Number of messages that share a round trip."""

LARGEST_BODY = 512 * 2**20
"""Bytes; the server ends the connection of a client that sends a longer value."""

DEFAULT_GROUP = "holdfast"


class RedisBroker:
    """A Redis, in which the routing key of a message is its stream.

    Two options of the address are for streams: `maxlen` lets the server drop the oldest entries beyond about that
    number, whether they were received or not (default: it keeps all); `group` names the consumer group.

    An acknowledged message stays in its stream, for other groups, until `maxlen` or an operator removes it. A lost
    connection is opened again by the next call.
    """

    def __init__(self, url: str, *, name: str = "redis", timeout: timedelta = TIMEOUT) -> None:
        self.name = name
        self._seconds = timeout.total_seconds()
        self._address = censored(url)
        self._url, options = _split_options(url)
        self._max_length = _max_length(options.get("maxlen"))
        self._group = options.get("group", DEFAULT_GROUP)
        self._client: Redis | None = None
        self._batcher = self._new_batcher()
        self._subscriptions = 0

    async def publish(self, message: OutgoingMessage) -> None:
        if len(message.body) >= LARGEST_BODY:
            raise MessageRefused(
                f"message {message.id} exceeds {LARGEST_BODY} bytes, the most that Redis takes"
            )
        refusal = await self._batcher.ask(message)
        if refusal is not None:
            raise refusal

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> AsyncIterator[RedisSubscription]:
        self._subscriptions += 1
        client = self._connect()
        subscription = RedisSubscription(
            client,
            queue,
            address=self._address,
            group=self._group,
            number=self._subscriptions,
            prefetch=prefetch,
            seconds=self._seconds,
        )
        try:
            await subscription.start()
            yield subscription
        finally:
            await client.aclose()

    async def check(self) -> str:
        client = self._publisher()
        try:
            async with asyncio.timeout(self._seconds):
                info: dict[str, Any] = await client.info("server")
        except TimeoutError as error:
            raise self._late() from error
        except (RedisError, OSError) as error:
            raise meaning(error, address=self._address, stream="") from error
        return f"{str(info.get('server_name', 'redis')).capitalize()} {info.get('redis_version', '')}".strip()

    async def close(self) -> None:
        await self._batcher.drain()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        """Add messages to their streams in one round trip; return what was refused, and why."""
        pipeline = self._publisher().pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(
                message.route.routing_key, _fields(message), maxlen=self._max_length, approximate=True
            )
        try:
            async with asyncio.timeout(self._seconds):
                answers = await pipeline.execute(raise_on_error=False)
        except TimeoutError as error:
            raise self._late() from error
        except (RedisError, OSError) as error:
            raise meaning(error, address=self._address, stream="") from error
        return [
            meaning(answer, address=self._address, stream=message.route.routing_key)
            if isinstance(answer, Exception)
            else None
            for message, answer in zip(messages, answers, strict=True)
        ]

    def _late(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"Redis at {self._address} did not answer within {self._seconds:g} s")

    def _publisher(self) -> "Redis":
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> "Redis":
        # Answers have another form in RESP3, which newer clients ask for by default.
        client: Redis = Redis.from_url(
            self._url, protocol=2, socket_timeout=self._seconds, socket_connect_timeout=self._seconds
        )
        return client

    def _new_batcher(self) -> Batcher[OutgoingMessage, BrokerError | None]:
        return Batcher(self._publish, limit=BATCH, name=f"publish to {self.name}")


def _fields(message: OutgoingMessage) -> dict[Any, Any]:
    return {
        "id": message.id,
        "type": message.type,
        "headers": json.dumps(dict(message.headers), ensure_ascii=False),
        "body": message.body,
    }


def _split_options(url: str) -> tuple[str, dict[str, str]]:
    """Separate the options for streams from the address: the client rejects options that it does not know."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query)
    ours = {name: value for name, value in query if name in ("maxlen", "group")}
    rest = urlencode([(name, value) for name, value in query if name not in ours])
    return urlunsplit(parts._replace(query=rest)), ours


def _max_length(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"maxlen={text!r} in the address of Redis must be a whole number from 1 on")
    return int(text)
