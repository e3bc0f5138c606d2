"""A broker in memory, which delivers what is not acknowledged again, and fails when a test says so."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from holdfast.core.errors import BrokerUnavailable
from holdfast.core.messages.broker_message import JSON, IncomingMessage, OutgoingMessage


class MemoryBroker:
    """Queues by name. Messages that were delivered and not acknowledged go back to their queue with the connection."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, deque[IncomingMessage]] = defaultdict(deque)
        self.acknowledged: list[IncomingMessage] = []
        self.subscriptions: list[MemorySubscription] = []
        self.unavailable = False
        self.loses_acknowledgements = False
        """Whether the connection is lost with the next acknowledgement, before the broker has it."""
        self.changed = asyncio.Event()
        self._tags = count(1)

    def deliver(
        self,
        queue: str,
        body: bytes,
        *,
        message_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        content_type: str | None = JSON,
    ) -> None:
        """Put a message into a queue."""
        self.queues[queue].append(
            IncomingMessage(queue, body, message_id, content_type=content_type, headers=headers or {})
        )
        self.notify()

    def notify(self) -> None:
        """Wake those that wait for messages."""
        self.changed.set()
        self.changed = asyncio.Event()

    def cut(self) -> None:
        """Cut all connections: what was not acknowledged goes back."""
        for subscription in self.subscriptions:
            subscription.cut()
        self.notify()

    def take(self, queue: str, limit: int) -> list[IncomingMessage]:
        """Take messages out of a queue, each with a tag of its own."""
        waiting = self.queues[queue]
        return [replace(waiting.popleft(), tag=next(self._tags)) for _ in range(min(limit, len(waiting)))]

    async def publish(self, message: OutgoingMessage) -> None:
        if self.unavailable:
            raise BrokerUnavailable("the broker is down")
        self.deliver(message.route.routing_key, message.body, message_id=message.id, headers=message.headers)

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> "AsyncIterator[MemorySubscription]":
        if self.unavailable:
            raise BrokerUnavailable("the broker is down")
        subscription = MemorySubscription(self, queue, prefetch)
        self.subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            subscription.cut()
            self.subscriptions.remove(subscription)

    async def check(self) -> str:
        return "memory"

    async def close(self) -> None:
        self.cut()


class MemorySubscription:
    """The messages of one queue, for one consumer."""

    def __init__(self, broker: MemoryBroker, queue: str, prefetch: int) -> None:
        self._broker = broker
        self._queue = queue
        self._prefetch = prefetch
        self._lost = False
        self.unacknowledged: dict[int, IncomingMessage] = {}
        self.batches: list[int] = []

    def cut(self) -> None:
        """Lose the connection."""
        self._lost = True
        self._give_back(list(self.unacknowledged))

    def _give_back(self, tags: Sequence[int]) -> None:
        for tag in reversed(tags):
            message = self.unacknowledged.pop(tag)
            self._broker.queues[self._queue].appendleft(replace(message, redelivered=True))

    def _ensure_connected(self) -> None:
        if self._lost or self._broker.unavailable:
            raise BrokerUnavailable("the connection is lost")

    async def receive(self, limit: int) -> Sequence[IncomingMessage]:
        while True:
            self._ensure_connected()
            changed = self._broker.changed
            room = min(limit, self._prefetch - len(self.unacknowledged))
            found = self._broker.take(self._queue, room)
            if found:
                self.unacknowledged |= {message.tag: message for message in found}
                return found
            await changed.wait()

    async def acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        if self._broker.loses_acknowledgements:
            self._broker.loses_acknowledgements = False
            self._broker.cut()
        self._ensure_connected()
        for message in messages:
            self._broker.acknowledged.append(self.unacknowledged.pop(message.tag))
        self.batches.append(len(messages))
        self._broker.notify()

    async def requeue(self, messages: Sequence[IncomingMessage]) -> None:
        self._ensure_connected()
        self._give_back([message.tag for message in messages])
        self._broker.notify()
