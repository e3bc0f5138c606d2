"""Consumers that run when a test runs them, on a broker in memory."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from holdfast import Holdfast, JobFunction
from holdfast.core.messages.inbox import Received
from holdfast.engine.messages.receiving.consumer import Consumer
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.operations import Letter, LetterFilter
from holdfast.ports import Clock, Store
from tests.contract.steps import TIMEOUT
from tests.memory_broker import MemoryBroker

QUEUE = "grading.request"
DEAD = LetterFilter(name="holdfast.consume", limit=1_000)


class GradingRequest(BaseModel):
    """A message of another system."""

    model_config = ConfigDict(extra="ignore")

    requestId: str  # noqa: N815 - as the other system writes it
    text: str = ""
    metadata: dict[str, Any] = {}


def body(request_id: str = "r-1", **fields: Any) -> bytes:
    """Return the body of a request."""
    return json.dumps({"requestId": request_id, **fields}).encode()


class Application:
    """An application with one job, and a consumer that makes one of each request."""

    def __init__(self, hold: Holdfast, *, version: int = 1) -> None:
        self.hold = hold
        self.broker = MemoryBroker()
        hold.runtime = replace(hold.runtime, open_broker=lambda _: self.broker)
        rabbit = hold.broker("rabbitmq", "amqp://localhost")
        hold.message("grading.request", identity="requestId", version=version, broker=rabbit)(GradingRequest)

        @hold.job("grade")
        async def grade(request_id: str, text: str) -> str:
            return f"{request_id}: {text}"

        self.grade: JobFunction[[str, str], str] = grade

    def consume(self, function: Callable[..., Any] | None = None) -> None:
        """Declare the consumer of the queue."""
        self.hold.consumer(GradingRequest, queue=QUEUE)(function or self.take)

    def take(self, request: GradingRequest) -> Any:
        """Make a job of a request."""
        return self.grade.call(request.requestId, request.text)

    def consumer(self, *, store: Store | None = None, clock: Clock | None = None) -> Consumer:
        """Make a consumer as a worker has it."""
        runtime = replace(
            self.hold.runtime,
            store=store or self.hold.runtime.store,
            clock=clock or self.hold.runtime.clock,
        )
        return Consumer(runtime, self.hold._registry.consumers[QUEUE], lambda: self.broker)

    async def receive(self, body: bytes, **fields: Any) -> Received:
        """Receive one message, as the consumer does."""
        self.broker.deliver(QUEUE, body, **fields)
        [message] = self.broker.take(QUEUE, 1)
        spec = self.hold._registry.consumers[QUEUE]
        [received] = await Receiver(self.hold.runtime, spec).receive([message])
        return received

    async def letters(self) -> list[Letter]:
        """Return the dead letters of messages."""
        return await self.hold.runtime.store.dead_letters.find(DEAD)

    async def jobs(self) -> list[str]:
        """Return the ids of all jobs that were made of messages."""
        return [job.id for job in await self.hold.find() if job.name == "grade"]


async def run_until_idle(consumer: Consumer, broker: MemoryBroker) -> None:
    """Run a consumer until its queue is empty and everything that it took is acknowledged."""
    async with asyncio.timeout(TIMEOUT):
        while broker.queues[QUEUE] or any(each.unacknowledged for each in broker.subscriptions):
            await consumer.run_once()
