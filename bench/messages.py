"""Measure messages through Holdfast beside bare clients, in turn, on PostgreSQL and RabbitMQ; print rates and ratios.

    python -m bench.messages
    python -m bench.messages --messages 20000 --rounds 5

- *client*: Holdfast's client of RabbitMQ, beside aio-pika: batches of 100, persistent, mandatory, all confirmed.
- *relay*: from the outbox to RabbitMQ, with 600 aggregates and with one, beside the same aio-pika.
- *inbox*: messages of a queue become jobs, beside a consumer that inserts one row for each and acknowledges it.
- *publish*: a job and a message in one transaction of the caller, beside the job alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import aio_pika
import asyncpg
from pydantic import BaseModel

from bench.servers import Databases
from holdfast import Holdfast
from holdfast.brokers.rabbitmq import RabbitBroker
from holdfast.core.messages.broker_message import OutgoingMessage, Route
from holdfast.core.messages.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast import JobFunction

BATCH = 100
CONTENT = "x" * 500
PLACE = "bench.messages"
"""The name of the exchange, of the queue and of their routing key."""


class Essay(BaseModel):
    """The message."""

    number: int
    aggregate: str
    content: str = CONTENT


BODY = Essay(number=0, aggregate="0").model_dump_json().encode()


class Servers(NamedTuple):
    """The addresses of a fresh database and of the broker."""

    postgres: str
    rabbitmq: str


def application(servers: Servers) -> tuple[Holdfast, JobFunction[[int], None]]:
    """Declare the message, and a job that no worker runs."""
    hold = Holdfast(servers.postgres)
    hold.broker("rabbitmq", servers.rabbitmq)
    hold.message("essay", exchange=PLACE, routing_key=PLACE, identity="number", aggregate="aggregate")(Essay)

    @hold.job("grade", queue="no worker")
    async def grade(number: int) -> None: ...

    hold.consumer(Essay, queue=PLACE)(lambda essay: grade.call(essay.number))
    return hold, grade


async def bare_publisher(servers: Servers, messages: int) -> float:
    """Publish with aio-pika."""
    async with await aio_pika.connect(servers.rabbitmq) as connection:
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.get_exchange(PLACE)

        async def publish(number: int) -> None:
            message = aio_pika.Message(
                BODY,
                message_id=str(number),
                type="essay",
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await exchange.publish(message, PLACE, mandatory=True)

        return await _rate_of_batches(publish, messages)


async def client(servers: Servers, messages: int) -> float:
    """Publish with Holdfast's client."""
    broker, route = RabbitBroker(servers.rabbitmq), Route("rabbitmq", PLACE, PLACE)

    async def publish(number: int) -> None:
        await broker.publish(OutgoingMessage(str(number), "essay", route, BODY, {}))

    try:
        await publish(0)  # connects
        return await _rate_of_batches(publish, messages)
    finally:
        await broker.close()


async def relay_many(servers: Servers, messages: int) -> float:
    """Relay messages of 600 aggregates."""
    return await _relay(servers, messages, aggregates=600)


async def relay_one(servers: Servers, messages: int) -> float:
    """Relay messages of one aggregate, each after the confirmation of the one before."""
    return await _relay(servers, messages // 4, aggregates=1)


async def _relay(servers: Servers, messages: int, *, aggregates: int) -> float:
    hold, _ = application(servers)
    hold._registry.consumers.clear()
    async with hold:
        for first in range(0, messages, 1_000):
            batch = range(first, min(first + 1_000, messages))
            await asyncio.gather(
                *(hold.publish(Essay(number=number, aggregate=str(number % aggregates))) for number in batch)
            )
        start = time.perf_counter()
        async with hold.worker(slots=1):
            while (await hold.runtime.store.outbox.stats()).pending:
                await asyncio.sleep(0.02)
            return messages / (time.perf_counter() - start)


async def bare_consumer(servers: Servers, messages: int) -> float:
    """Insert a row for each message, and acknowledge it."""
    await bare_publisher(servers, messages)
    database = await asyncpg.connect(servers.postgres)
    await database.execute("CREATE TABLE received (id text PRIMARY KEY, body text)")
    done, left = asyncio.Event(), count(messages - 1, -1)
    async with await aio_pika.connect(servers.rabbitmq) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=BATCH)
        queue, writing = await channel.get_queue(PLACE), asyncio.Lock()

        async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with writing:
                await database.execute(
                    "INSERT INTO received VALUES ($1, $2)", message.message_id, message.body.decode()
                )
            await message.ack()
            if not next(left):
                done.set()

        start = time.perf_counter()
        await queue.consume(receive)
        await done.wait()
        rate = messages / (time.perf_counter() - start)
    await database.close()
    return rate


async def inbox(servers: Servers, messages: int) -> float:
    """Make a job of each message."""
    hold, _ = application(servers)
    async with await aio_pika.connect(servers.rabbitmq) as connection:
        exchange = await (await connection.channel()).get_exchange(PLACE)

        async def publish(number: int) -> None:
            body = Essay(number=number, aggregate="0").model_dump_json().encode()
            await exchange.publish(aio_pika.Message(body, content_type="application/json"), PLACE)

        await _rate_of_batches(publish, messages)
    database = await asyncpg.connect(servers.postgres)
    async with hold:
        start = time.perf_counter()
        async with hold.worker(slots=1):
            while await database.fetchval("SELECT count(*) FROM holdfast.jobs") < messages:
                await asyncio.sleep(0.02)
            rate = messages / (time.perf_counter() - start)
    await database.close()
    return rate


async def submit_within(servers: Servers, messages: int) -> float:
    """Store a job in the caller's transaction."""
    return await _within(servers, messages // 4, publishes=False)


async def submit_and_publish(servers: Servers, messages: int) -> float:
    """Store a job and a message in the caller's transaction."""
    return await _within(servers, messages // 4, publishes=True)


async def _within(servers: Servers, transactions: int, *, publishes: bool) -> float:
    hold, grade = application(servers)
    database = await asyncpg.connect(servers.postgres)
    async with hold:
        start = time.perf_counter()
        for number in range(transactions):
            async with database.transaction():
                await grade.options(within=database).submit(number)
                if publishes:
                    await hold.publish(Essay(number=number, aggregate=str(number)), within=database)
        rate = transactions / (time.perf_counter() - start)
    await database.close()
    return rate


async def _rate_of_batches(publish: Callable[[int], Awaitable[None]], messages: int) -> float:
    start = time.perf_counter()
    for first in range(0, messages, BATCH):
        await asyncio.gather(*map(publish, range(first, first + BATCH)))
    return messages / (time.perf_counter() - start)


BARS = (
    (client, bare_publisher, 0.9),
    (relay_many, bare_publisher, 0.7),
    (relay_one, bare_publisher, 0.2),
    (inbox, bare_consumer, 1.0),
    (submit_and_publish, submit_within, 0.8),
)
"""What is measured, what it is compared with, and the ratio that is aimed at."""


async def _prepare(servers: Servers) -> None:
    """Create the tables, the exchange and the queue, and remove all messages."""
    hold = Holdfast(servers.postgres)
    await hold.apply_schema()
    await hold.close()
    broker = RabbitBroker(servers.rabbitmq)
    document = {"exchange": {"name": PLACE}, "queues": [{"name": PLACE}]}
    await broker.apply_topology(Topology.of(document), management=None)
    await broker.close()
    async with await aio_pika.connect(servers.rabbitmq) as connection:
        await (await (await connection.channel()).get_queue(PLACE)).purge()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.messages", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cases = list(dict.fromkeys(case for ours, bare, _ in BARS for case in (bare, ours)))
    rates: dict[object, list[float]] = {case: [] for case in cases}
    with Databases({"postgres", "rabbitmq"}) as servers, servers.fresh("rabbitmq") as queue:
        for number in range(options.rounds):
            for case in cases if number % 2 == 0 else cases[::-1]:
                with servers.fresh("postgres") as database:
                    addresses = Servers(database, queue.partition("#")[0])
                    asyncio.run(_prepare(addresses))
                    rates[case].append(asyncio.run(case(addresses, options.messages)))
    for ours, bare, bar in BARS:
        ratios = [one / other for one, other in zip(rates[ours], rates[bare], strict=True)]
        print(
            f"{ours.__name__:20} {statistics.median(rates[ours]):8.0f}/s   beside {bare.__name__:16} "
            f"{statistics.median(rates[bare]):8.0f}/s   ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), aim {bar}"
        )


if __name__ == "__main__":
    main()
