"""Runs a relay without a worker: it publishes the messages of the outbox, and claims no jobs."""

import asyncio
from datetime import timedelta

from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.relays.relay import Relay
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_availability import StoreAvailability

ABANDON_TIMEOUT = 10.0
"""Seconds to write what is confirmed, after the grace time has ended."""


class RelayRunner:
    """Publishes messages until `stop` is called."""

    kind = "relay"

    def __init__(self, name: str, runtime: Runtime, *, grace: timedelta) -> None:
        self.name = name
        self.stopped = False
        """Whether the shutdown is complete and logged."""
        self._runtime = runtime
        self._grace = grace
        self._clients = BrokerClients(runtime)
        self._relay = Relay(name, runtime, self._clients)
        self._availability = StoreAvailability(name, runtime.clock, runtime.logger)
        self._stop, self._at_once = asyncio.Event(), asyncio.Event()
        self.ready = self._relay.ready
        """Set when it has leased partitions, or could have."""

    @property
    def running(self) -> int:
        """How many aggregates it is publishing messages of."""
        return self._relay.in_flight

    @property
    def stopping(self) -> bool:
        """Whether it publishes nothing more."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Finish what is in flight; a second call ends the grace time at once."""
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    async def run(self) -> None:
        """Publish until `stop`; then finish what is in flight within the grace time, and release the partitions."""
        task = self._relay.start(self.name, self._availability)
        self._runtime.logger.info("relay started", relay=self.name)
        try:
            await _first_of(self._stop, task)
            self._relay.finish()
            await _first_of(self._at_once, task, timeout=self._grace.total_seconds())
            self._relay.abandon()
            await asyncio.wait([task], timeout=ABANDON_TIMEOUT)
        finally:
            self._relay.stop()
            await asyncio.wait([task])
            await self._clients.close()
            self.stopped = True
            self._runtime.logger.info("relay stopped", relay=self.name)


async def _first_of(
    event: asyncio.Event, task: "asyncio.Task[None]", *, timeout: float | None = None
) -> None:
    """Wait until *event* is set or *task* has ended, for at most *timeout* seconds."""
    waiting = asyncio.create_task(event.wait(), name="holdfast relay stop")
    try:
        await asyncio.wait([waiting, task], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
