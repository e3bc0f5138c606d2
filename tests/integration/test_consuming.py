"""Messages from a real RabbitMQ to jobs and dead letters: published by another program, acknowledged once stored."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest
from pydantic import BaseModel

from holdfast import Backoff, Holdfast, JobFilter
from holdfast.operations import LetterFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel
    from pamqp.common import FieldTable

    from holdfast.types import JobCall
    from tests.brokers import BrokerServer, PrivateRabbitMQ

LIMIT = 60.0


class Request(BaseModel):
    """A message of another system."""

    requestId: str  # noqa: N815 - as the other system writes it
    text: str = ""


class Queues:
    """A queue with a dead-letter queue, for one test alone."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.name = f"test.{uuid.uuid4().hex}"
        self.dead = f"{self.name}.dlq"

    async def create(self) -> None:
        await self.channel.declare_queue(self.dead, durable=True)
        routed: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        await self.channel.declare_queue(self.name, durable=True, arguments=routed)

    async def delete(self) -> None:
        for name in (self.name, self.dead):
            await self.channel.queue_delete(name)

    async def send(self, body: bytes, **properties: Any) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **properties)
        await self.channel.default_exchange.publish(message, self.name)

    async def count(self) -> int:
        """Count the messages that no consumer has acknowledged or has in hand."""
        found = await self.channel.declare_queue(self.name, passive=True)
        return found.declaration_result.message_count or 0


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Queues]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield Queues(await connection.channel())


@asynccontextmanager
async def queues_at(url: str) -> AsyncIterator[Queues]:
    async with connected(url) as queues:
        await queues.create()
        yield queues
        await queues.delete()


def application(store_url: str, broker_url: str, queues: Queues) -> Holdfast:
    hold = Holdfast(store_url, attempts=1, backoff=Backoff.none())
    rabbit = hold.broker("rabbitmq", broker_url)
    hold.message("request", identity="requestId", broker=rabbit)(Request)

    @hold.job("grade")
    async def grade(request_id: str) -> str:
        return request_id

    @hold.consumer(Request, queue=queues.name)
    def take(request: Request) -> JobCall[Any]:
        return grade.call(request.requestId)

    hold.dead_letter_queue(queues.dead)
    return hold


async def until_jobs(hold: Holdfast, count: int) -> list[str]:
    """Wait until *count* jobs were made of messages, and have ended."""
    async with asyncio.timeout(LIMIT):
        while True:
            jobs = await hold.find(JobFilter(name="grade", limit=200))
            if len(jobs) >= count and all(job.status.ended for job in jobs):
                return sorted([hold.load_result(await hold.read(job.id)) for job in jobs])
            await asyncio.sleep(0.05)


async def letters(hold: Holdfast, count: int) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        while len(found := await hold.dead_letters.list(LetterFilter(name="holdfast.consume"))) < count:
            await asyncio.sleep(0.05)
    return found


@pytest.mark.clause("OUT-5")
@pytest.mark.clause("IDM-4")
async def test_each_message_of_rabbitmq_is_one_job_and_is_acknowledged(
    url: str, rabbitmq_server: BrokerServer
) -> None:
    async with queues_at(rabbitmq_server.url) as queues:
        hold = application(url, rabbitmq_server.url, queues)
        await hold.apply_schema()
        for _ in range(3):
            for number in range(40):
                await queues.send(json.dumps({"requestId": f"r-{number:02}"}).encode())
        await queues.send(b"\x80\x04K\x01.", content_type="application/x-python-serialize")
        async with hold, hold.worker(poll=0.05):
            made = await until_jobs(hold, 40)
            [refused] = await letters(hold, 1)
        left = await queues.count()

    assert made == [f"r-{number:02}" for number in range(40)]
    assert refused.failure.context["reason"] == "content_type"
    assert left == 0


@pytest.mark.clause("GRD-11")
async def test_what_rabbitmq_dead_letters_becomes_a_dead_letter_with_its_reason(
    url: str, rabbitmq_server: BrokerServer
) -> None:
    async with queues_at(rabbitmq_server.url) as queues:
        hold = application(url, rabbitmq_server.url, queues)
        await hold.apply_schema()
        await queues.send(b'{"requestId": "r-1"}', message_id="m-1")
        queue = await queues.channel.get_queue(queues.name)
        async with asyncio.timeout(LIMIT):
            while (message := await queue.get(fail=False)) is None:
                await asyncio.sleep(0.05)
        await message.reject(requeue=False)
        async with hold, hold.worker(poll=0.05):
            [letter] = await letters(hold, 1)
            job = await hold.read(letter.job_id)

    assert letter.failure.context["first_death_reason"] == "rejected"
    args = json.loads(job.args)
    assert (args["message_id"], args["body"]) == ("m-1", '{"requestId": "r-1"}')
    assert args["headers"]["x-first-death-queue"] == queues.name


async def test_a_consumer_goes_on_after_rabbitmq_was_restarted(
    tmp_path: Any, private_rabbitmq: PrivateRabbitMQ
) -> None:
    async with connected(private_rabbitmq.url) as queues:
        await queues.create()
        await queues.send(b'{"requestId": "r-1"}')
    hold = application(f"sqlite:///{tmp_path / 'jobs.db'}", private_rabbitmq.url, queues)

    async with hold, hold.worker(poll=0.05):
        await until_jobs(hold, 1)
        await asyncio.to_thread(private_rabbitmq.restart)
        async with connected(private_rabbitmq.url) as after:
            after.name, after.dead = queues.name, queues.dead
            await after.send(b'{"requestId": "r-2"}')
            made = await until_jobs(hold, 2)

    assert made == ["r-1", "r-2"]
