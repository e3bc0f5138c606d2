"""The broker of a simulated world: it loses, repeats, delays and refuses messages, and outlives all processes.

It keeps a log of what arrived, and a queue that consumers read.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import BrokerUnavailable, MessageRefused, RouteRefused
from holdfast.core.messages.broker_message import JSON, IncomingMessage
from tests.simulation.message_jobs import QUEUE, REQUEST

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast.core.messages.broker_message import OutgoingMessage
    from holdfast.testing.virtual_loop import VirtualLoop
    from tests.simulation.processes import Process

CONFIRM_TIMEOUT = 10.0
"""Seconds that a client waits for a confirmation."""

A_LOOK = 1.0
"""Seconds between two looks into an empty queue."""

WELL, SHAKY, DOWN = "well", "shaky", "down"
_OFTEN = {WELL: 5, SHAKY: 4, DOWN: 2}

LOST, UNCONFIRMED, HANGS, LATE, TWICE = "lost", "confirmation lost", "no confirmation", "late", "twice"
AWAY, ROUTE, FAULT = "away", "route refused", "message refused"
_SHAKY_FAILURES = (LOST, UNCONFIRMED, HANGS, LATE, TWICE)
AGAIN, DOUBLED = "delivered again", "delivered twice"
BROKER_FAILURES = (*_SHAKY_FAILURES, AWAY, ROUTE, FAULT, AGAIN, DOUBLED)


class Arrival(NamedTuple):
    """A message that reached the broker: its id, the serial number in its body, its type, where to, and when."""

    id: str
    serial: str
    type: str
    route: str
    body: bytes
    at: float


class SimulatedBroker:
    """What all processes publish to. Its mood, and that of its routes, changes over time, until it is calm."""

    def __init__(
        self,
        chance: random.Random,
        injected: Counter[str],
        loop: VirtualLoop,
        *,
        failing: float,
        refusing: float,
    ) -> None:
        self.arrivals: list[Arrival] = []
        self.refused: Counter[str] = Counter()
        """How often each message was refused for its own fault, by its serial number."""
        self.calm = False
        self.on_arrival: Callable[[Arrival], None] = lambda _: None
        self._chance = chance
        self._injected = injected
        self._loop = loop
        self._failing = failing
        self._refusing = refusing
        self._mood, self._until = WELL, 0.0
        self._routes: dict[str, tuple[bool, float]] = {}
        self._script: list[str | None] = []
        self.queue = SimulatedQueue(chance, injected, loop.time)

    def follows(self, *script: str | None) -> None:
        """Fail with these failures, one message after another; `None` for one that goes well. After that it is well."""
        self._script = list(script)
        self.calm = True

    async def publish(self, message: OutgoingMessage) -> None:
        """Take a message, or fail: without it, too late, or with it and without a confirmation."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.1))
        match self._failure(message):
            case None:
                self._arrive(message)
            case "twice":
                self._arrive(message)
                self._arrive(message)
            case "away":
                raise BrokerUnavailable("connection refused")
            case "route refused":
                raise RouteRefused("no queue takes the message")
            case "message refused":
                raise MessageRefused("the message is refused")
            case "lost":
                raise BrokerUnavailable("the connection was lost before the message was sent")
            case "confirmation lost":
                self._arrive(message)
                raise BrokerUnavailable("the connection was lost before the confirmation")
            case "no confirmation":
                self._arrive(message)
                await asyncio.sleep(CONFIRM_TIMEOUT)
                raise BrokerUnavailable("there was no confirmation in time")
            case "late":  # it arrives even if its sender has died meanwhile
                delay = self._chance.uniform(1.0, 3 * CONFIRM_TIMEOUT)
                self._loop.call_later(delay, self._arrive, message, context=Context())
                await asyncio.sleep(CONFIRM_TIMEOUT)
                raise BrokerUnavailable("there was no confirmation in time")
        await asyncio.sleep(self._chance.uniform(0.001, 0.1))

    def _failure(self, message: OutgoingMessage) -> str | None:
        failure = self._script.pop(0) if self._script else self._drawn(str(message.route))
        fields = json.loads(message.body)
        if failure is None and self.refused[fields["serial"]] < fields["refusals"]:
            failure = FAULT
        if failure is not None:
            self._injected[f"broker: {failure}"] += 1
        if failure == FAULT:
            self.refused[fields["serial"]] += 1
        return failure

    def is_down(self) -> bool:
        """Whether it takes no connection at this moment."""
        if self.calm:
            return False
        if self._loop.time() >= self._until:
            [self._mood] = self._chance.choices(list(_OFTEN), list(_OFTEN.values()))
            self._until = self._loop.time() + self._chance.uniform(2.0, 20.0)
        return self._mood == DOWN

    def _drawn(self, route: str) -> str | None:
        if self.is_down():
            return AWAY
        if self.calm:
            return None
        if self._refuses(route):
            return ROUTE
        if self._mood == SHAKY and self._chance.random() < self._failing:
            return self._chance.choice(_SHAKY_FAILURES)
        return None

    def _refuses(self, route: str) -> bool:
        refuses, until = self._routes.get(route, (False, 0.0))
        if self._loop.time() >= until:
            refuses = self._chance.random() < self._refusing
            self._routes[route] = refuses, self._loop.time() + self._chance.uniform(5.0, 60.0)
        return refuses

    def _arrive(self, message: OutgoingMessage) -> None:
        serial = json.loads(message.body)["serial"]
        arrival = Arrival(
            message.id, serial, message.type, str(message.route), message.body, self._loop.time()
        )
        self.arrivals.append(arrival)
        if message.type == REQUEST:
            self.queue.add(message.body, message.id)
        self.on_arrival(arrival)


class SimulatedQueue:
    """A queue: it delivers in any order, late, and some messages twice, until it is calm."""

    def __init__(self, chance: random.Random, injected: Counter[str], time: Callable[[], float]) -> None:
        self.calm = False
        self.acknowledged: list[IncomingMessage] = []
        self.on_acknowledgement: Callable[[IncomingMessage], None] = lambda _: None
        self._chance = chance
        self._injected = injected
        self._time = time
        self._tags = count(1)
        self._waiting: dict[int, tuple[float, IncomingMessage]] = {}
        self._subscriptions: list[SimulatedSubscription] = []

    def add(self, body: bytes, message_id: str | None, *, content_type: str | None = JSON) -> None:
        """Put a message into the queue."""
        message = IncomingMessage(QUEUE, body, message_id, content_type=content_type)
        self._put(message)
        if not self.calm and self._chance.random() < 0.1:
            self._injected[f"broker: {DOUBLED}"] += 1
            self._put(message)

    def left(self) -> list[IncomingMessage]:
        """Return what is not acknowledged."""
        unacknowledged = [one for each in self._subscriptions for one in each.unacknowledged.values()]
        return [*(message for _, message in self._waiting.values()), *unacknowledged]

    def attach(self, subscription: SimulatedSubscription) -> None:
        """Deliver to a subscription."""
        self._subscriptions.append(subscription)

    def take(self, limit: int) -> list[IncomingMessage]:
        """Take messages out, each with a tag of its own; those of connections that are gone are there again."""
        for subscription in [one for one in self._subscriptions if one.is_gone()]:
            subscription.cut()
            self._subscriptions.remove(subscription)
        ready = [tag for tag, (at, _) in self._waiting.items() if at <= self._time()]
        self._chance.shuffle(ready)
        return [replace(self._waiting.pop(tag)[1], tag=tag) for tag in ready[:limit]]

    def give_back(self, message: IncomingMessage) -> None:
        """Deliver a message again."""
        self._injected[f"broker: {AGAIN}"] += 1
        self._put(replace(message, redelivered=True))

    def acknowledge(self, message: IncomingMessage) -> None:
        """Delete a message."""
        self.acknowledged.append(message)
        self.on_acknowledgement(message)

    def _put(self, message: IncomingMessage) -> None:
        late = 0.0 if self.calm else self._chance.choice((0.0, 0.0, 0.5, 5.0))
        self._waiting[next(self._tags)] = self._time() + late, message


class SimulatedSubscription:
    """The messages of the queue for one consumer: every call may fail."""

    def __init__(self, queue: SimulatedQueue, process: Process, prefetch: int) -> None:
        self.unacknowledged: dict[int, IncomingMessage] = {}
        self._queue = queue
        self._process = process
        self._prefetch = prefetch
        self._lost = False
        queue.attach(self)

    def is_gone(self) -> bool:
        """Whether its process is dead, or does not answer, or has left."""
        return self._lost or not self._process.alive or self._process.asleep

    def cut(self) -> None:
        """Lose the connection: what is not acknowledged is delivered again."""
        self._lost = True
        for tag in list(self.unacknowledged):
            self._queue.give_back(self.unacknowledged.pop(tag))

    async def receive(self, limit: int) -> list[IncomingMessage]:
        """Wait for messages."""
        return await self._process.call(
            "broker.receive", lambda: self._receive(limit), error=BrokerUnavailable
        )

    async def _receive(self, limit: int) -> list[IncomingMessage]:
        while True:
            self._ensure_connected()
            found = self._queue.take(min(limit, self._prefetch - len(self.unacknowledged)))
            if found:
                self.unacknowledged |= {message.tag: message for message in found}
                return found
            await asyncio.sleep(A_LOOK)

    async def acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        """Confirm messages."""
        await self._process.call(
            "broker.acknowledge", lambda: self._acknowledge(messages), error=BrokerUnavailable
        )

    async def _acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        await asyncio.sleep(0.001)
        self._ensure_connected()
        for message in messages:
            self._queue.acknowledge(self.unacknowledged.pop(message.tag))

    async def requeue(self, messages: Sequence[IncomingMessage]) -> None:
        """Give messages back."""
        await self._process.call("broker.requeue", lambda: self._requeue(messages), error=BrokerUnavailable)

    async def _requeue(self, messages: Sequence[IncomingMessage]) -> None:
        self._ensure_connected()
        for message in messages:
            self._queue.give_back(self.unacknowledged.pop(message.tag))

    def _ensure_connected(self) -> None:
        if self._lost:
            raise BrokerUnavailable("the connection was lost")


class BrokerClient:
    """The broker as one process calls it: every call may fail."""

    def __init__(self, simulated_broker: SimulatedBroker, process: Process) -> None:
        self._broker = simulated_broker
        self._process = process

    async def publish(self, message: OutgoingMessage) -> None:
        """Publish a message."""
        await self._process.call(
            "broker.publish", lambda: self._broker.publish(message), error=BrokerUnavailable
        )

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> AsyncIterator[SimulatedSubscription]:
        """Receive the messages of the queue; what is not acknowledged in the end is delivered again."""
        await self._process.call("broker.subscribe", self._connect, error=BrokerUnavailable)
        subscription = SimulatedSubscription(self._broker.queue, self._process, prefetch)
        try:
            yield subscription
        finally:
            subscription.cut()

    async def _connect(self) -> None:
        if self._broker.is_down():
            raise BrokerUnavailable("connection refused")

    async def check(self) -> str:
        """Name the product."""
        return "a simulated broker"

    async def close(self) -> None:
        """Disconnect."""
        await self._process.call("broker.close", lambda: asyncio.sleep(0), error=BrokerUnavailable)
