"""Submit the jobs of one case of `bench.fleets`: `python -m bench.fleet_producer "bare arq" 1000`."""

from __future__ import annotations

import asyncio
import sys

import aio_pika
from arq import create_pool
from arq.connections import RedisSettings

from bench.fleet_app import BARE, DISPATCHED, RABBITMQ, REDIS, app, async_job, hold, plain_job


async def submit(case: str, jobs: int) -> None:
    await _prepare()
    numbers = range(jobs)
    match case:
        case "celery":
            await plain_job.submit_many((number,) for number in numbers)
        case "arq":
            await async_job.submit_many((number,) for number in numbers)
        case "bare arq":
            pool = await create_pool(RedisSettings.from_dsn(REDIS))
            for number in numbers:
                await pool.enqueue_job("bare_function", number, _queue_name=BARE)
            await pool.aclose()
        case "bare celery":
            for number in numbers:
                app.send_task("bare", (number,), queue=BARE)
    await hold.close()


async def _prepare() -> None:
    """Create the tables, and make both queues of RabbitMQ empty, as Celery declares them."""
    await hold.apply_schema()
    async with await aio_pika.connect(RABBITMQ) as connection:
        channel = await connection.channel()
        for name in (BARE, DISPATCHED):
            await (await channel.declare_queue(name, durable=True)).purge()


if __name__ == "__main__":
    asyncio.run(submit(sys.argv[1], int(sys.argv[2])))
