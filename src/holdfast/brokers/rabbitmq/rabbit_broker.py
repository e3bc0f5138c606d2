"""Publishes to RabbitMQ with publisher confirms, and subscribes to its queues."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from aiormq.channel import Channel
from pamqp.commands import Basic

from holdfast.brokers.rabbitmq.rabbit_connection import (
    ENDED_WITH_OTHERS,
    RabbitConnection,
    ended_channel,
    is_cancellation,
)
from holdfast.brokers.rabbitmq.rabbit_subscription import RabbitSubscription
from holdfast.brokers.rabbitmq.rabbit_topology import RabbitTopology
from holdfast.core.errors import BrokerUnavailable, MessageRefused, RouteRefused
from holdfast.core.messages.broker_message import JSON, OutgoingMessage
from holdfast.core.messages.topology import Topology, TopologyPart

T = TypeVar("T")

TIMEOUT = timedelta(seconds=10)
"""How long a call may take. A connection whose server does not answer in this time is given up."""

TRIES_ALONE = 3
PERSISTENT = 2
LONGEST_KEY = 255
LONGEST_HEADER_NAME = 128
LARGEST_HEADERS = 65_536
"""Bytes of headers: a header that exceeds a frame ends the connection, and every other message on it."""

DRAINED_SIZE = 65_536
"""A body of this size waits until the socket has room for the next one."""


class RabbitBroker:
    """A RabbitMQ, used with one connection for publishing and one for each subscription.

    RabbitMQ stops reading from a connection that it blocks, acknowledgements included; therefore subscriptions have
    connections of their own. Each exchange has its own channel, and its existence is checked before it is used: the
    server closes the channel of a message whose exchange is missing, and with it all that is in flight on it.

    A lost connection is opened again by the next call. It belongs to the event loop of its calls.
    """

    def __init__(self, url: str, *, name: str = "rabbitmq", timeout: timedelta = TIMEOUT) -> None:
        self.name = name
        self._url = url
        self._seconds = timeout.total_seconds()
        self._connecting: asyncio.Task[RabbitConnection] | None = None
        self._channels: dict[str, asyncio.Task[Channel]] = {}
        self._subscriptions: set[RabbitConnection] = set()

    async def publish(self, message: OutgoingMessage) -> None:
        _ensure_carried(message)
        connection = None
        try:
            async with asyncio.timeout(self._seconds):
                connection = await self._connect()
                await self._publish(connection, message)
        except TimeoutError as error:
            late = f"did not confirm a message within {self._seconds:g} s"
            if connection is None:
                raise BrokerUnavailable(f"the broker {self.name!r} {late}") from error
            connection.abort(late)
            raise connection.meaning(error) from error

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> AsyncIterator[RabbitSubscription]:
        connection = await RabbitConnection.open(self._url, seconds=self._seconds)
        self._subscriptions.add(connection)
        try:
            with connection.answering_within(self._seconds):
                channel = await connection.channel()
                subscription = RabbitSubscription(connection, channel, queue, seconds=self._seconds)
                await subscription.start(prefetch)
            yield subscription
        finally:
            self._subscriptions.discard(connection)
            await connection.close()

    async def check(self) -> str:
        return (await self._connect()).product

    async def check_topology(self, topology: Topology, *, management: str | None) -> list[TopologyPart]:
        return await (await self._topology(management)).check(topology)

    async def apply_topology(self, topology: Topology, *, management: str | None) -> list[TopologyPart]:
        return await (await self._topology(management)).apply(topology)

    async def close(self) -> None:
        connecting, self._connecting = self._connecting, None
        channels, self._channels = self._channels, {}
        if connecting is not None:
            await _end([connecting])
            if _succeeded(connecting):
                await connecting.result().close()
        await _end(channels.values())
        await asyncio.gather(*(connection.close() for connection in self._subscriptions))

    async def _topology(self, management: str | None) -> RabbitTopology:
        return RabbitTopology(
            await self._connect(), url=self._url, management=management, seconds=self._seconds
        )

    async def _publish(self, connection: RabbitConnection, message: OutgoingMessage) -> None:
        channel = await self._channel(connection, message.route.exchange)
        try:
            await _send(connection, channel, message)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancellation(error):
                raise
            if not ended_channel(error):
                raise connection.meaning(error) from error
            await self._publish_alone(message)

    async def _publish_alone(self, message: OutgoingMessage) -> None:
        """Publish after the channel was closed, maybe for another message on it, on a channel of its own.

        What the server answers there is about this message. The connection may end, too, for what other messages
        sent to the channel that was closed; then the message is published on the next one.
        """
        for _ in range(TRIES_ALONE):
            connection = await self._connect()
            with connection.answering_within(self._seconds):
                try:
                    channel = await connection.channel()
                    try:
                        await _send(connection, channel, message)
                    finally:
                        await channel.close()
                except ENDED_WITH_OTHERS:
                    continue
                return
        raise BrokerUnavailable(
            f"the broker {self.name!r} closed the connection {TRIES_ALONE} times; see its log"
        )

    async def _connect(self) -> RabbitConnection:
        """Return the open connection. Concurrent callers share one attempt to open it, and its error."""
        connecting = self._connecting
        if connecting is None or (
            connecting.done() and not (_succeeded(connecting) and connecting.result().is_open)
        ):
            self._channels = {}
            connecting = self._connecting = _start(
                RabbitConnection.open(self._url, seconds=self._seconds), f"connect to {self.name}"
            )
        return connecting.result() if connecting.done() else await asyncio.shield(connecting)

    async def _channel(self, connection: RabbitConnection, exchange: str) -> Channel:
        """Return the channel of an exchange. Concurrent callers share one attempt to open it, and its error."""
        opening = self._channels.get(exchange)
        if opening is None or (
            opening.done() and not (_succeeded(opening) and not opening.result().is_closed)
        ):
            opening = self._channels[exchange] = _start(
                self._open_channel(connection, exchange), f"open a channel of {self.name}"
            )
        return opening.result() if opening.done() else await asyncio.shield(opening)

    async def _open_channel(self, connection: RabbitConnection, exchange: str) -> Channel:
        with connection.answering_within(self._seconds):
            channel = await connection.channel()
            if exchange:
                await channel.exchange_declare(exchange, passive=True)
            return channel


async def _send(connection: RabbitConnection, channel: Channel, message: OutgoingMessage) -> None:
    await connection.unblocked()
    await channel.basic_publish(
        message.body,
        exchange=message.route.exchange,
        routing_key=message.route.routing_key,
        properties=Basic.Properties(
            content_type=JSON,
            delivery_mode=PERSISTENT,
            message_id=message.id,
            message_type=message.type,
            headers=dict(message.headers),
        ),
        mandatory=True,
        wait=len(message.body) >= DRAINED_SIZE,
    )


def _ensure_carried(message: OutgoingMessage) -> None:
    """Raise if the message could only end the connection: its server would not say which message was wrong."""
    if len(message.route.routing_key.encode()) > LONGEST_KEY:
        raise RouteRefused(f"the routing key of {message.route} exceeds {LONGEST_KEY} bytes")
    if any(len(name.encode()) > LONGEST_HEADER_NAME for name in message.headers):
        raise MessageRefused(
            f"a header of message {message.id} has a name of more than {LONGEST_HEADER_NAME} bytes"
        )
    size = sum(len(name) + len(value) for name, value in message.headers.items())
    if size > LARGEST_HEADERS // 4:  # a character has four bytes at most
        size = sum(len(name.encode()) + len(value.encode()) for name, value in message.headers.items())
        if size > LARGEST_HEADERS:
            raise MessageRefused(
                f"the headers of message {message.id} exceed {LARGEST_HEADERS} bytes; send less in them"
            )


def _start(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_retrieve_error)
    return task


async def _end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks that have not ended, and wait for their end."""
    tasks = [*tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _retrieve_error(task: "asyncio.Task[Any]") -> None:
    """Read the error of a task, which asyncio reports otherwise if all its callers have left."""
    if not task.cancelled():
        task.exception()


def _succeeded(task: "asyncio.Task[Any]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
