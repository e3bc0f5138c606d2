"""What the workers of `bench.fleets` run: the same handlers, bare and as jobs of Holdfast.

A handler sleeps for 20 ms and writes down when it ended. On Celery it is a plain function, on arq it is async.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from arq.connections import RedisSettings
from celery import Celery

import holdfast.arq
from holdfast import Holdfast
from holdfast.arq import ArqTransport
from holdfast.celery import CeleryTransport, install

HANDLER_SECONDS = 0.02
PREFORK = 2
SLOTS = 10
POLL_DELAY = 0.05
"""Of arq, for both sides; its default is half a second."""

BARE = "bench.bare"
DISPATCHED = "bench.dispatched"
"""Queues of Celery and arq."""

RABBITMQ, REDIS = os.environ["BENCH_RABBITMQ"], os.environ["BENCH_REDIS"]


def note() -> None:
    """Write down that a handler has ended; one write of a line is never mixed with another's."""
    ends = os.open(os.environ["BENCH_ENDS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(ends, b"%d\n" % time.perf_counter_ns())
    os.close(ends)


app = Celery("bench", broker=RABBITMQ)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
hold = Holdfast(os.environ["DATABASE_URL"])
celery_transport = CeleryTransport(app, queue=DISPATCHED, slots=PREFORK)
arq_transport = ArqTransport(REDIS, queue=DISPATCHED, slots=SLOTS)
transports = {"on celery": celery_transport, "on arq": arq_transport}
for queue in os.environ["BENCH_QUEUES"].split(","):  # a dispatcher serves the measured queue alone
    hold.queue(queue, transport=transports[queue])
install(app, hold)


@app.task(name="bare")
def bare_task(number: int) -> None:
    time.sleep(HANDLER_SECONDS)
    note()


@hold.job("plain", queue="on celery")
def plain_job(number: int) -> None:
    time.sleep(HANDLER_SECONDS)
    note()


async def bare_function(ctx: dict[Any, Any], number: int) -> None:
    await asyncio.sleep(HANDLER_SECONDS)
    note()


@hold.job("async", queue="on arq")
async def async_job(number: int) -> None:
    await asyncio.sleep(HANDLER_SECONDS)
    note()


class Bare:
    """Settings of arq without Holdfast. Results are not kept: neither are they by the other side."""

    functions = [bare_function]  # noqa: RUF012 - as arq's settings are written
    redis_settings = RedisSettings.from_dsn(REDIS)
    queue_name = BARE
    max_jobs = SLOTS
    poll_delay = POLL_DELAY
    keep_result = 0


class Dispatched(holdfast.arq.Settings):
    """Settings of arq with Holdfast."""

    hold = hold
    transport = arq_transport
    max_jobs = SLOTS
    poll_delay = POLL_DELAY
