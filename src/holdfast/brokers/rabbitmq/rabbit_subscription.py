"""The messages of one queue of RabbitMQ, for one consumer."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from holdfast.brokers.rabbitmq.rabbit_connection import RabbitConnection
from holdfast.core.errors import BrokerError, BrokerUnavailable, RouteRefused
from holdfast.core.messages.broker_message import IncomingMessage


class DeliveryTag(NamedTuple):
    """The number of a delivery. It is valid for the subscription that received it, and for no later one."""

    subscription: "RabbitSubscription"
    number: int


class RabbitSubscription:
    """A consumer with a connection of its own. A lost connection ends it: subscribe again."""

    def __init__(self, connection: RabbitConnection, channel: Channel, queue: str, *, seconds: float) -> None:
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._seconds = seconds
        self._arrived: deque[IncomingMessage] = deque()
        self._unsettled: dict[int, None] = {}
        """The deliveries that are neither acknowledged nor given back, in their order."""
        self._changed = asyncio.Event()
        self._ended: BrokerError | None = None

    async def start(self, prefetch: int) -> None:
        """Begin to receive. Raises `RouteRefused` if the queue is missing or forbidden."""
        self._connection.closing.add_done_callback(self._end_with)
        self._channel.closing.add_done_callback(self._end_with)
        self._channel.on_consumer_cancel_callbacks.add(self._end_deleted)
        await self._channel.basic_qos(prefetch_count=prefetch)
        await self._channel.basic_consume(self._queue, self._take)

    async def receive(self, limit: int) -> Sequence[IncomingMessage]:
        while not self._arrived:
            if self._ended is not None:
                raise self._ended
            self._changed.clear()
            await self._changed.wait()
        return [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    async def acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        await self._settle(messages, requeue=False)

    async def requeue(self, messages: Sequence[IncomingMessage]) -> None:
        await self._settle(messages, requeue=True)

    async def _settle(self, messages: Sequence[IncomingMessage], *, requeue: bool) -> None:
        """Acknowledge or give back: all from the oldest on in one frame, and the others one by one."""
        numbers = self._numbers(messages)
        if self._ended is not None:
            raise BrokerUnavailable(f"the messages are delivered again: {self._ended}")
        if not numbers:
            return
        oldest = self._count_oldest(numbers)
        frames = [(numbers[oldest - 1], True)] if oldest else []
        frames += [(number, False) for number in numbers[oldest:]]
        with self._connection.answering_within(self._seconds):
            for position, (number, multiple) in enumerate(frames, start=1):
                last = position == len(frames)
                if requeue:
                    await self._channel.basic_nack(number, multiple=multiple, requeue=True, wait=last)
                else:
                    await self._channel.basic_ack(number, multiple=multiple, wait=last)
        for number in numbers:
            self._unsettled.pop(number, None)

    def _numbers(self, messages: Iterable[IncomingMessage]) -> list[int]:
        """Return the delivery numbers in their order, without those that were settled before."""
        numbers = []
        for message in messages:
            tag = message.tag
            if not isinstance(tag, DeliveryTag) or tag.subscription is not self:
                raise BrokerUnavailable(
                    f"a message of queue {self._queue!r} was received on a connection that is lost; it is delivered again"
                )
            if tag.number in self._unsettled:
                numbers.append(tag.number)
        return sorted(numbers)

    def _count_oldest(self, numbers: Sequence[int]) -> int:
        """Return how many of *numbers* are the oldest deliveries without a gap."""
        count = 0
        for unsettled, number in zip(self._unsettled, numbers, strict=False):
            if unsettled != number:
                break
            count += 1
        return count

    async def _take(self, delivered: DeliveredMessage) -> None:
        number = delivered.delivery_tag
        if number is None:
            return  # only the type of the client allows it
        properties = delivered.header.properties
        self._unsettled[number] = None
        self._arrived.append(
            IncomingMessage(
                queue=self._queue,
                body=delivered.body,
                id=properties.message_id,
                type=properties.message_type,
                content_type=properties.content_type,
                headers=properties.headers or {},
                redelivered=bool(delivered.redelivered),
                tag=DeliveryTag(self, number),
            )
        )
        self._changed.set()

    def _end_with(self, closing: "asyncio.Future[Any]") -> None:
        error = None if closing.cancelled() else closing.exception()
        self._end(self._connection.meaning(error or ConnectionError()))

    def _end_deleted(self, _: Basic.Cancel) -> None:
        self._end(RouteRefused(f"RabbitMQ cancelled the subscription: the queue {self._queue!r} was deleted"))

    def _end(self, reason: BrokerError) -> None:
        self._ended = self._ended or reason
        # What arrived on a lost connection is delivered again; to work on it would only be repeated.
        self._arrived.clear()
        self._changed.set()
