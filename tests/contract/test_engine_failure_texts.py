"""Whatever texts jobs fail with, the worker's event loop has time for its leases."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from holdfast import Holdfast, JobFailed, Redactor, Status
from holdfast.types import Pattern
from tests.contract.conftest import Database
from tests.contract.steps import TIMEOUT


class Probe:
    """Looks at every `probe` in a text that is redacted, and remembers in which thread."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self, _: str) -> bool:
        self.seen.append(threading.current_thread().name)
        self.begun.set()
        return self.free.wait(TIMEOUT)


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def hold(database: Database, probe: Probe) -> AsyncIterator[Holdfast]:
    """An application whose redactor can be watched."""
    redactor = Redactor(patterns=[Pattern("probe", re.compile("probe"), probe)])
    async with Holdfast(database.url, redactor=redactor) as hold:
        yield hold


@asynccontextmanager
async def counted_turns(turns: list[str]) -> AsyncIterator[None]:
    """Note each turn of the event loop among *turns*."""

    async def note() -> None:
        while True:
            turns.append("turn")
            await asyncio.sleep(0)

    task = asyncio.create_task(note())
    try:
        yield
    finally:
        task.cancel()


LONG = "probe " + "and so on\n" * 100_000


@pytest.mark.parametrize("place", ["job", "stage"])
async def test_a_long_text_is_redacted_once_and_off_the_loop(
    hold: Holdfast, probe: Probe, place: str
) -> None:
    @hold.stage("inner", attempts=1)
    async def inner() -> None:
        raise RuntimeError(LONG)

    @hold.job("outer", attempts=1)
    async def outer() -> None:
        if place == "stage":
            await inner()
        raise RuntimeError(LONG)

    async with hold.worker(poll=0.05):
        job = await outer.submit()
        with pytest.raises(JobFailed) as raised:
            await job.result(timeout=TIMEOUT)

    assert len(probe.seen) == 1
    assert probe.seen != [threading.main_thread().name]
    assert "[probe:" in raised.value.failure.message
    assert "characters left out" in raised.value.failure.stack


async def test_between_two_failures_the_loop_has_a_turn(hold: Holdfast, probe: Probe) -> None:
    together = asyncio.Barrier(20)

    @hold.job("fails", attempts=1)
    async def fails() -> None:
        await together.wait()
        raise RuntimeError("a short text with a probe")

    async with hold.worker(slots=20, poll=0.05), counted_turns(probe.seen):
        jobs = [await fails.submit() for _ in range(20)]
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.result(timeout=TIMEOUT)

    main = threading.main_thread().name
    assert probe.seen.count(main) == 20
    assert not any(one == other == main for one, other in pairwise(probe.seen))


async def test_a_job_that_is_cancelled_while_its_text_is_redacted_is_cancelled(
    hold: Holdfast, probe: Probe
) -> None:
    probe.free.clear()

    @hold.job("fails", attempts=1)
    async def fails() -> None:
        raise RuntimeError(LONG)

    async with hold.worker(poll=0.05):
        job = await fails.submit()
        assert await asyncio.to_thread(probe.begun.wait, TIMEOUT)
        await hold.cancel(job.id)
        ended = await hold.wait(job.id, timeout=TIMEOUT)
        probe.free.set()

    assert ended.status is Status.CANCELLED
