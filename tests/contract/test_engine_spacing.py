"""The three shapes of waiting, as a worker keeps them: each wait is decided when its attempt has failed."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
import httpx
import pytest

from holdfast import Backoff, Holdfast, Job, JobHandle, Status
from holdfast.types import EventKind
from tests.contract.conftest import Database
from tests.contract.steps import TIMEOUT, eventually


@dataclass(frozen=True)
class Shape:
    """A backoff, its attempts, and the least and most milliseconds after each failed one."""

    backoff: Backoff
    attempts: int
    waits: list[tuple[int, int]]


GRADING = Shape(
    Backoff.exponential(initial=2, ceiling=300, jitter=0.2), 4, [(1600, 2400), (3200, 4800), (6400, 9600)]
)
CONVERTER = Shape(Backoff.additive_jitter(base=5, jitter=5), 3, [(5000, 10000), (10000, 15000)])
CRITICISER = Shape(
    Backoff.full_jitter(initial=1, ceiling=60), 5, [(0, 1000), (0, 2000), (0, 4000), (0, 8000)]
)


async def let_time_pass(database: Database) -> None:
    """Make what waits in the database due, as if its time had come."""
    if database.url.startswith("sqlite"):
        with sqlite3.connect(database.url.removeprefix("sqlite:///")) as file:
            file.execute("UPDATE holdfast_jobs SET retry_after = 1 WHERE retry_after IS NOT NULL")
        return
    connection = await asyncpg.connect(database.url)
    await connection.execute("UPDATE holdfast.jobs SET retry_after = 'epoch' WHERE retry_after IS NOT NULL")
    await connection.close()


async def waits_of(job: JobHandle[None]) -> list[int]:
    return [event.meta["delay_ms"] for event in await job.events() if event.kind is EventKind.RETRY]


def waits_after(attempt: int) -> Callable[[Job], bool]:
    return lambda job: job.attempt == attempt and job.retry_after is not None


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(GRADING, id="grading", marks=pytest.mark.clause("RET-1")),
        pytest.param(CONVERTER, id="converter", marks=pytest.mark.clause("RET-2")),
        pytest.param(CRITICISER, id="criticiser", marks=pytest.mark.clause("RET-3")),
    ],
)
async def test_a_failing_job_waits_in_its_shape_and_ends_after_its_attempts(
    hold: Holdfast, database: Database, shape: Shape
) -> None:
    runs: list[int] = []

    @hold.job("hopeless", attempts=shape.attempts, backoff=shape.backoff)
    async def hopeless() -> None:
        runs.append(len(runs) + 1)
        raise ConnectionResetError("again")

    async with hold.worker(poll=0.05):
        job = await hopeless.submit()
        for number in range(1, shape.attempts):
            await eventually(job.read, waits_after(number))
            await let_time_pass(database)
        ended = await hold.wait(job.id, timeout=TIMEOUT)

    waits = await waits_of(job)
    assert ended.status is Status.FAILED
    assert len(runs) == shape.attempts
    assert len(waits) == len(shape.waits)
    assert all(least <= wait <= most for wait, (least, most) in zip(waits, shape.waits, strict=True))


def answered(headers: dict[str, str]) -> httpx.HTTPStatusError:
    """Give what a client raises after the answer to slow down."""
    response = httpx.Response(429, headers=headers, request=httpx.Request("POST", "http://service.test/"))
    return httpx.HTTPStatusError("429", request=response.request, response=response)


@pytest.mark.clause("RET-4")
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        pytest.param({"retry-after": "7"}, 7000, 7000, id="seconds"),
        pytest.param(
            {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:59:50 GMT"},
            9000,
            9000,
            id="a date",
        ),
        pytest.param({"retry-after-ms": "2500", "retry-after": "60"}, 2500, 2500, id="milliseconds go first"),
        pytest.param({"retry-after": "1e9"}, 300_000, 300_000, id="never above the ceiling"),
        pytest.param({"retry-after": "1"}, 2000, 2000, id="never below the backoff"),
        pytest.param({"retry-after": "soon"}, 2000, 2000, id="unreadable"),
    ],
)
async def test_a_service_that_says_how_long_to_wait_is_left_alone_for_so_long(
    hold: Holdfast, headers: dict[str, str], least: int, most: int
) -> None:
    @hold.job("asking", backoff=Backoff.exponential(initial=2, ceiling=300, jitter=0))
    async def asking() -> None:
        raise answered(headers)

    async with hold.worker(poll=0.05):
        job = await asking.submit()
        waiting = await eventually(job.read, waits_after(1))

    [wait] = await waits_of(job)
    assert least <= wait <= most
    assert waiting.retry_after is not None
    assert waiting.last_attempt_at is not None
    assert (waiting.retry_after - waiting.last_attempt_at).total_seconds() >= wait / 1000
