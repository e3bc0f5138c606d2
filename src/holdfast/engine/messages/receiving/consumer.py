"""The consumer: it subscribes to a queue, and acknowledges messages once they are stored."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from holdfast.core.errors import BrokerError
from holdfast.core.messages.broker_message import IncomingMessage
from holdfast.core.messages.inbox import Received, ReceivedAs
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.engine.registry import ConsumerSpec
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.engine.store_availability import StoreAvailability
from holdfast.ports import Broker, Subscription

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
"""Seconds until the next try to reach the broker."""

POSTPONED_FOR = 5.0
"""Seconds until a message whose function failed is given back to the broker."""

CLOSE_TIMEOUT = 5.0


class _Postponed(NamedTuple):
    due: float
    message: IncomingMessage


class Consumer(OptionalService):
    """Receives the messages of one queue: decode, store, commit, and only then acknowledge.

    While the store is unavailable, the batch is kept and nothing is acknowledged. While the broker is unavailable, it
    connects again, with pauses up to 10 s; what was not acknowledged is delivered again.
    """

    def __init__(self, runtime: Runtime, spec: ConsumerSpec, client: Callable[[], Broker]) -> None:
        super().__init__(runtime)
        self.name = f"consumer {spec.name}"
        self._spec = spec
        self._client = client
        self._receiver = Receiver(runtime, spec)
        self._stack = AsyncExitStack()
        self._subscription: Subscription | None = None
        self._receiving: asyncio.Task[Sequence[IncomingMessage]] | None = None
        self._unstored: Sequence[IncomingMessage] = ()
        self._postponed: list[_Postponed] = []
        self._failed_since: float | None = None
        self._tries = 0

    async def run_once(self) -> float:
        """Receive one batch, or give back what was postponed; return the seconds until the next run."""
        try:
            subscription = await self._subscribe()
            self._unstored = self._unstored or await self._next_batch(subscription)
            received = await self._receiver.receive(self._unstored) if self._unstored else []
            batch, self._unstored = self._unstored, ()
            await self._acknowledge(subscription, batch, received)
        except BrokerError as error:
            return await self._lose_broker(error)
        return 0.0

    async def _subscribe(self) -> Subscription:
        if self._subscription is None:
            client = self._client()
            self._subscription = await self._stack.enter_async_context(
                client.subscribe(self._spec.queue, prefetch=self._spec.prefetch)
            )
            self._report_available()
        return self._subscription

    async def _next_batch(self, subscription: Subscription) -> Sequence[IncomingMessage]:
        """Wait for messages; give those back meanwhile that were postponed, when their time has come."""
        if self._receiving is None:
            # It is never cancelled between two runs: the messages that it has taken would be lost until a reconnect.
            self._receiving = asyncio.create_task(
                _receive(subscription, self._spec.prefetch), name=f"holdfast {self.name} receive"
            )
        now = self._runtime.clock.monotonic()
        timeout = max(self._postponed[0].due - now, 0.0) if self._postponed else None
        await asyncio.wait([self._receiving], timeout=timeout)
        due = [one.message for one in self._postponed if one.due <= self._runtime.clock.monotonic()]
        if due:
            self._postponed = self._postponed[len(due) :]
            await subscription.requeue(due)
        if not self._receiving.done():
            return ()
        receiving, self._receiving = self._receiving, None
        return receiving.result()

    async def _acknowledge(
        self, subscription: Subscription, batch: Sequence[IncomingMessage], received: Sequence[Received]
    ) -> None:
        due = self._runtime.clock.monotonic() + POSTPONED_FOR
        stored = []
        for message, one in zip(batch, received, strict=True):
            if one.outcome is ReceivedAs.POSTPONED:
                self._postponed.append(_Postponed(due, message))
            else:
                stored.append(message)
        if stored:
            await subscription.acknowledge(stored)

    async def _lose_broker(self, error: BrokerError) -> float:
        """Disconnect; return the seconds until the next try. What was not acknowledged is delivered again."""
        if self._failed_since is None:
            self._failed_since = self._runtime.clock.monotonic()
            self._logger.warning(
                "broker unavailable",
                consumer=self._spec.name,
                broker=self._spec.broker,
                queue=self._spec.queue,
                message=self._runtime.describe(error),
            )
        await self._disconnect()
        pause = min(FIRST_PAUSE * 2.0 ** min(self._tries, 10), LONGEST_PAUSE)
        self._tries += 1
        return min(self._jittered(pause), LONGEST_PAUSE)

    def _report_available(self) -> None:
        if self._failed_since is not None:
            lasted = self._runtime.clock.monotonic() - self._failed_since
            self._logger.info(
                "broker available",
                consumer=self._spec.name,
                broker=self._spec.broker,
                queue=self._spec.queue,
                duration_ms=round(lasted * 1000),
            )
        self._failed_since, self._tries = None, 0

    async def _disconnect(self) -> None:
        """Leave the queue: the broker gives what was not acknowledged to another consumer."""
        receiving, self._receiving = self._receiving, None
        self._subscription, self._unstored, self._postponed = None, (), []
        stack, self._stack = self._stack, AsyncExitStack()
        if receiving is not None:
            receiving.cancel()
            await asyncio.wait([receiving])
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await stack.aclose()
        except Exception as error:  # noqa: BLE001 - a connection that is given up anyway
            self._logger.debug(
                "subscription not closed", consumer=self._spec.name, message=self._runtime.describe(error)
            )

    async def _run(self, availability: StoreAvailability) -> None:
        try:
            await super()._run(availability)
        finally:
            await self._disconnect()


def consumers(runtime: Runtime, clients: BrokerClients) -> list[Consumer]:
    """Make a consumer for each that is declared; a broker that is a function, or an intake of arq, delivers nothing."""
    if not clients.declared:
        return []
    registry = runtime.registry
    return [
        Consumer(runtime, spec, partial(clients.get, spec.broker))
        for spec in registry.consumers.values()
        if spec.broker in registry.brokers and registry.brokers[spec.broker].function is None
    ]


async def _receive(subscription: Subscription, limit: int) -> Sequence[IncomingMessage]:
    return await subscription.receive(limit)
