"""The application of the runs about fleets: essays that arq workers grade, and essays that Celery workers grade.

An essay has two stages, each of which has one effect in an outside service, under a key that no retry changes. On arq
they are async; on Celery they are plain functions, which run in the thread of the Celery task. Beside them, each fleet has a
job that ends its process whenever it runs.
"""

import os
from dataclasses import dataclass

import httpx

from holdfast import Backoff, Holdfast, JobFunction, current
from holdfast.arq import ArqTransport
from holdfast.celery import CeleryTransport
from tests.acceptance.harness.app import BUDGET, KILLER_BUDGET, signed

ON_ARQ = "essays on arq"
ON_CELERY = "essays on celery"
"""The queues of Holdfast, one for each fleet."""

ARQ_QUEUE = "essays:dispatches"
CELERY_QUEUE = "essays"
"""Where the dispatches go: a sorted set of Redis, and a queue of RabbitMQ."""

PROCESSES = 2
"""Workers of each fleet. One of Celery has as many children."""

ARQ_JOBS = 5
"""How many jobs an arq worker runs at a time."""

RESEND = "3s"
CRASHED = 86
"""The exit code of a process that a job has ended."""


@dataclass(frozen=True)
class Essays:
    """The jobs by their queue."""

    hold: Holdfast
    grade: dict[str, JobFunction[[int], list[str]]]
    crash: dict[str, JobFunction[[], None]]


def build(
    url: str,
    *,
    redis_url: str = "redis://127.0.0.1:9/0",
    broker_url: str = "amqp://127.0.0.1:9/",
    service_url: str = "http://127.0.0.1:9",
) -> Essays:
    """Declare the jobs on the database at *url*; their effects go to the service."""
    quick = Backoff.full_jitter(initial="100ms", ceiling="400ms")
    hold = Holdfast(url, attempts=BUDGET, backoff=quick)
    arq_slots, celery_slots = PROCESSES * ARQ_JOBS, PROCESSES * PROCESSES
    hold.queue(ON_ARQ, transport=ArqTransport(redis_url, queue=ARQ_QUEUE, slots=arq_slots, resend=RESEND))
    hold.queue(
        ON_CELERY,
        transport=CeleryTransport(broker_url, queue=CELERY_QUEUE, slots=celery_slots, resend=RESEND),
    )
    return Essays(
        hold,
        {ON_ARQ: _async_job(hold, service_url), ON_CELERY: _plain_job(hold, service_url)},
        {queue: _crash(hold, queue) for queue in (ON_ARQ, ON_CELERY)},
    )


def _async_job(hold: Holdfast, service_url: str) -> JobFunction[[int], list[str]]:
    service = httpx.AsyncClient(base_url=service_url, timeout=httpx.Timeout(5, pool=None), trust_env=False)

    async def effect(name: str, number: int) -> str:
        answer = await service.post(f"/effects/{name}", json={"number": number}, headers=_key())
        return _effect_of(answer)

    @hold.stage("score")
    async def score(number: int) -> str:
        return await effect("score", number)

    @hold.stage("report")
    async def report(number: int) -> str:
        return await effect("report", number)

    @hold.job("grade on arq", queue=ON_ARQ)
    async def grade(number: int) -> list[str]:
        return [await score(number), await report(number), signed("done")]

    return grade


def _plain_job(hold: Holdfast, service_url: str) -> JobFunction[[int], list[str]]:
    service = httpx.Client(base_url=service_url, timeout=httpx.Timeout(5, pool=None), trust_env=False)

    def effect(name: str, number: int) -> str:
        return _effect_of(service.post(f"/effects/{name}", json={"number": number}, headers=_key()))

    @hold.stage("plain score")
    def score(number: int) -> str:
        return effect("score", number)

    @hold.stage("plain report")
    def report(number: int) -> str:
        return effect("report", number)

    @hold.job("grade on celery", queue=ON_CELERY)
    def grade(number: int) -> list[str]:
        return [score(number), report(number), signed("done")]

    return grade


def _crash(hold: Holdfast, queue: str) -> JobFunction[[], None]:
    @hold.job(f"crash of {queue}", queue=queue, attempts=KILLER_BUDGET)
    def crash() -> None:
        os._exit(CRASHED)

    return crash


def _key() -> dict[str, str]:
    return {"Idempotency-Key": current().key}


def _effect_of(answer: httpx.Response) -> str:
    answer.raise_for_status()
    return signed(answer.json()["id"])
