"""Dramatiq on RabbitMQ: durable queue, persistent messages, each send confirmed, its default middleware.

The broker forgets a message when it is acknowledged, so what counts as finished is what was acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.case import Case, Tally

logging.getLogger("pika").setLevel(logging.CRITICAL)  # it takes the end of a connection for a fault


class Acknowledged(dramatiq.Middleware):
    """Counts what the worker has acknowledged, in any of its threads."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self.count = 0

    def after_ack(self, broker: object, message: object) -> None:
        self.count = next(self._next)


class Bench:
    working_since = None

    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        url, _, self._queue = case.url.partition("#")
        self._acknowledged = Acknowledged()
        self._broker = RabbitmqBroker(url=url, confirm_delivery=True)
        self._broker.add_middleware(self._acknowledged)
        self._noop = self._registered(tally)

    def _registered(self, tally: Tally | None) -> Any:
        @dramatiq.actor(broker=self._broker, actor_name="noop", queue_name=self._queue)
        def noop(number: int) -> None:
            tally.note(number)

        return noop

    async def install(self) -> None:
        self._broker.declare_queue(self._queue, ensure=True)
        self._broker.close()

    async def connect(self) -> None:
        self._broker.declare_queue(self._queue, ensure=True)

    async def close(self) -> None:
        await asyncio.to_thread(self._broker.close)

    async def submit(self, number: int) -> None:
        self._noop.send(number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        for number in numbers:  # it has no bulk send
            self._noop.send(number)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        options = {"worker_threads": self._case.size} if self._case.size else {}
        worker = dramatiq.Worker(self._broker, **options)
        worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(worker.stop)

    async def queued(self) -> int:
        ready, _, _ = self._broker.get_queue_message_counts(self._queue)
        return ready

    async def finished(self) -> int:
        return self._acknowledged.count
