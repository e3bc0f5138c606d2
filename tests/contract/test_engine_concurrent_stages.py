"""Stages that run side by side, each with a count of its own."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Retryable, Status
from holdfast.core.jobs.stages import StageStatus
from holdfast.errors import StageFailed
from holdfast.ports import Store
from tests.builders import a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, claimed, eventually

Call = Callable[[], Coroutine[Any, Any, Any]]


async def by_gather(*calls: Call) -> list[Any]:
    return list(await asyncio.gather(*[call() for call in calls]))


async def by_task_group(*calls: Call) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call()) for call in calls]
    return [task.result() for task in tasks]


async def by_gather_with_errors(*calls: Call) -> list[Any]:
    return list(await asyncio.gather(*[call() for call in calls], return_exceptions=True))


TOGETHER = pytest.mark.parametrize("together", [by_gather, by_task_group])


@pytest.mark.clause("STG-2")
@pytest.mark.parametrize("together", [by_gather, by_task_group, by_gather_with_errors])
async def test_a_failure_of_one_takes_nothing_from_the_one_beside_it(
    hold: Holdfast, store: Store, together: Callable[..., Awaitable[list[Any]]]
) -> None:
    runs: Counter[str] = Counter()
    healed = asyncio.Event()

    @hold.stage("flaky", attempts=3)
    async def flaky() -> str:
        runs["flaky"] += 1
        if runs["flaky"] < 3:
            raise Retryable("hiccup")
        healed.set()
        return "flaky"

    @hold.stage("steady", attempts=1)
    async def steady() -> str:
        runs["steady"] += 1
        if together is not by_gather_with_errors:
            await healed.wait()
        return "steady"

    @hold.job("both", attempts=1)
    async def both() -> list[str]:
        return await together(flaky, steady)

    async with hold.worker(poll=0.05):
        job = await both.submit()
        assert await job.result(timeout=TIMEOUT) == ["flaky", "steady"]

    assert runs["flaky"] == 3
    rows = {row.key.name: (row.status, row.attempt) for row in await store.stages([job.id])}
    assert rows == {"flaky": (StageStatus.DONE, 3), "steady": (StageStatus.DONE, 1)}


@pytest.mark.clause("STG-1")
@TOGETHER
async def test_a_stage_that_ended_beside_a_failing_one_is_not_run_again(
    hold: Holdfast, together: Callable[..., Awaitable[list[Any]]]
) -> None:
    runs: Counter[str] = Counter()
    quick_is_stored = asyncio.Event()

    @hold.stage("quick", attempts=1)
    async def quick() -> str:
        runs["quick"] += 1
        return "quick"

    @hold.stage("slow")
    async def slow() -> str:
        runs["slow"] += 1
        await quick_is_stored.wait()
        if runs["slow"] == 1:
            raise Retryable("hiccup")
        return "slow"

    @hold.job("both")
    async def both() -> list[str]:
        async def first() -> str:
            answer = await quick()
            quick_is_stored.set()
            return answer

        return await together(first, slow)

    async with hold.worker(poll=0.05):
        assert await (await both.submit()).result(timeout=TIMEOUT) == ["quick", "slow"]

    assert runs == {"quick": 1, "slow": 2}


@pytest.mark.clause("STG-1")
async def test_keys_distinguish_calls_whatever_their_order(hold: Holdfast, store: Store) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("translate")
    async def translate(language: str) -> str:
        runs[language] += 1
        return language.upper()

    @hold.job("all")
    async def everything() -> dict[str, str]:
        languages = ["de", "fr", "it"]
        runs["body"] += 1
        if runs["body"] > 1:
            languages.reverse()
        texts = await by_gather(*[_translated(language) for language in languages])
        if runs["body"] == 1:
            raise Retryable("again, in the reverse order")
        return dict(zip(languages, texts, strict=True))

    def _translated(language: str) -> Call:
        return lambda: translate.options(key=language)(language)

    async with hold.worker(poll=0.05):
        job = await everything.submit()
        assert await job.result(timeout=TIMEOUT) == {"de": "DE", "fr": "FR", "it": "IT"}

    assert runs == {"body": 2, "de": 1, "fr": 1, "it": 1}
    keys = {str(row.key) for row in await store.stages([job.id])}
    assert keys == {"translate[de]", "translate[fr]", "translate[it]"}


@pytest.mark.clause("STG-1")
async def test_many_stages_at_once_are_each_stored_once(hold: Holdfast, store: Store) -> None:
    runs: Counter[int] = Counter()

    @hold.stage("square")
    async def square(n: int) -> int:
        runs[n] += 1
        return n * n

    @hold.job("many")
    async def many(first: int) -> int:
        numbers = range(first, first + 25)
        return sum(await asyncio.gather(*[square.options(key=str(n))(n) for n in numbers]))

    async with hold.worker(poll=0.05):
        jobs = await many.submit_many([[0], [100], [200], [300]])
        results = await asyncio.gather(*[job.result(timeout=TIMEOUT) for job in jobs])

    assert results == [sum(n * n for n in range(first, first + 25)) for first in (0, 100, 200, 300)]
    assert set(runs.values()) == {1}
    assert len(await store.stages([job.id for job in jobs])) == 100


@pytest.mark.clause("STG-3")
@TOGETHER
async def test_an_exhausted_stage_fails_the_job_though_others_run_beside_it(
    hold: Holdfast, together: Callable[..., Awaitable[list[Any]]]
) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("bad", attempts=2)
    async def bad() -> None:
        runs["bad"] += 1
        raise Retryable("down")

    @hold.stage("endless")
    async def endless() -> None:
        await asyncio.Event().wait()

    @hold.job("both", attempts=9)
    async def both() -> None:
        await together(bad, endless)

    async with hold.worker(poll=0.05):
        job = await both.submit()
        with pytest.raises(JobFailed, match="down"):
            await job.result(timeout=TIMEOUT)

    assert (runs["bad"], (await job.read()).stage) == (2, "bad")


@pytest.mark.clause("STG-2")
async def test_a_crash_is_charged_to_the_stages_in_progress_and_to_no_other(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    """The worker that dies is played by the store: it stored two of three stages and does nothing afterwards."""
    failures: dict[str, str] = {}

    @hold.stage("once", attempts=1)
    async def once() -> str:
        return "once"

    @hold.stage("twice", attempts=2)
    async def twice() -> str:
        return "twice"

    @hold.stage("later", attempts=1)
    async def later() -> str:
        return "later"

    async def tried(stage: Call, name: str) -> str:
        try:
            return str(await stage())
        except StageFailed as error:
            failures[name] = error.failure.error_class
            return "lost"

    @hold.job("three", attempts=9)
    async def three() -> list[str]:
        return await by_gather(
            *[lambda s=s, n=n: tried(s, n) for s, n in ((once, "once"), (twice, "twice"), (later, "later"))]
        )

    job = await three.submit()
    claim = await claimed(store, "doomed")
    await store.settle(
        "doomed", [a_stage(claim, name, status=StageStatus.STARTED) for name in ("once", "twice")]
    )
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=1)
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == ["lost", "twice", "later"]

    assert failures == {"once": ErrorClass.WORKER_LOST}


@pytest.mark.clause("STG-2")
@pytest.mark.clause("JOB-7")
@TOGETHER
async def test_a_shutdown_gives_stages_that_run_side_by_side_their_attempts_back(
    hold: Holdfast, store: Store, together: Callable[..., Awaitable[list[Any]]]
) -> None:
    runs: Counter[str] = Counter()
    both_run, may_end = asyncio.Barrier(3), asyncio.Event()

    async def work(name: str) -> str:
        runs[name] += 1
        if runs[name] == 1:
            await both_run.wait()
        await may_end.wait()
        return name

    one = hold.stage("one", attempts=1)(work)
    two = hold.stage("two", attempts=1)(work)

    @hold.job("both", attempts=1)
    async def both() -> list[str]:
        return await together(lambda: one("one"), lambda: two("two"))

    job = await both.submit()
    async with hold.worker(poll=0.05, grace=0):
        async with asyncio.timeout(TIMEOUT):
            await both_run.wait()
    stopped = await job.read()
    may_end.set()
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == ["one", "two"]

    assert (stopped.status, stopped.attempt) == (Status.QUEUED, 0)
    assert {row.attempt for row in await store.stages([job.id])} == {1}


async def test_two_calls_side_by_side_under_one_key_are_refused(hold: Holdfast) -> None:
    @hold.stage("fetch")
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    @hold.job("work", attempts=1)
    async def work() -> list[int]:
        return await asyncio.gather(*(fetch.options(key="same")(n) for n in (1, 2)))

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await (await work.submit()).result(timeout=TIMEOUT)

    assert failed.value.failure.error_class is ErrorClass.STAGE_MISMATCH


async def test_of_stages_that_fail_together_the_one_that_must_wait_longest_decides(hold: Holdfast) -> None:
    @hold.stage("slow", backoff=Backoff.constant(200))
    async def slow() -> None:
        raise TimeoutError("slow")

    @hold.stage("quick", backoff=Backoff.constant(1))
    async def quick() -> None:
        await asyncio.sleep(0.01)
        raise TimeoutError("quick")

    @hold.job("work")
    async def work() -> None:
        await asyncio.gather(slow(), quick(), return_exceptions=True)

    job = await work.submit()
    async with hold.worker(poll=0.05):
        read = await eventually(job.read, lambda job: job.retry_after is not None)

    assert read.retry_after is not None
    assert read.retry_after - read.updated_at > timedelta(seconds=100)
