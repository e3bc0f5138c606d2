"""Asking twice runs once: the second caller gets the first one's job and its result."""

import asyncio

import pytest

from holdfast import Holdfast, JobFunction, Status, current
from holdfast.errors import KeyReused, VersionRefused
from holdfast.types import EventKind
from tests.contract.conftest import Database, Logger
from tests.contract.steps import TIMEOUT


@pytest.fixture
def runs() -> list[int]:
    return []


@pytest.fixture
def review(hold: Holdfast, runs: list[int]) -> JobFunction[[int], int]:
    @hold.job("review")
    async def review(n: int) -> int:
        runs.append(n)
        return n * 10

    return review


@pytest.mark.clause("IDM-1")
async def test_a_hundred_callers_with_one_key_share_one_job(
    hold: Holdfast, review: JobFunction[[int], int], runs: list[int]
) -> None:
    keyed = review.options(key="order-7")

    jobs = await asyncio.gather(*[keyed.submit(1) for _ in range(100)])
    async with hold.worker(poll=0.05):
        results = await asyncio.gather(*[job.result(timeout=TIMEOUT) for job in jobs])

    assert (len({job.id for job in jobs}), set(results), runs) == (1, {10}, [1])
    assert sorted(job.existing for job in jobs) == [False] + [True] * 99


@pytest.mark.clause("IDM-1")
async def test_another_payload_is_answered_with_the_first_job_and_a_warning(
    review: JobFunction[[int], int], logger: Logger
) -> None:
    first = await review.options(key="k").submit(1)

    same, other = await review.options(key="k").submit(1), await review.options(key="k").submit(2)

    assert (same.id, same.existing, same.payload_differs) == (first.id, True, False)
    assert (other.id, other.existing, other.payload_differs) == (first.id, True, True)
    [warning] = logger.lines("key reused with another payload")
    assert (warning["job_id"], warning["level"]) == (first.id, "warning")
    assert [(event.kind, event.meta) for event in await first.events()] == [
        (EventKind.QUEUED, {}),
        (EventKind.WARNING, {"reason": "key reused with another payload"}),
    ]


@pytest.mark.clause("IDM-1")
async def test_strict_keys_refuse_another_payload(
    hold: Holdfast, review: JobFunction[[int], int], database: Database
) -> None:
    await review.options(key="k").submit(1)
    strict = Holdfast(database.url, strict_keys=True, logger=hold.runtime.logger)

    @strict.job("review")
    async def strict_review(n: int) -> int:
        return n

    async with strict:
        assert (await strict_review.options(key="k").submit(1)).existing
        with pytest.raises(KeyReused, match="another payload"):
            await strict_review.options(key="k").submit(2)
        assert (await strict_review.options(key="k", strict_keys=False).submit(2)).payload_differs
    with pytest.raises(KeyReused):
        await review.options(key="k", strict_keys=True).submit(2)


@pytest.mark.clause("IDM-2")
async def test_a_completed_job_gives_its_stored_result(
    hold: Holdfast, review: JobFunction[[int], int], runs: list[int]
) -> None:
    async with hold.worker(poll=0.05):
        await (await review.options(key="k", subject="c1", version=1).submit(1)).result(timeout=TIMEOUT)
        by_key = await review.options(key="k").submit(1)
        by_version = await review.options(subject="c1", version=1).submit(1)
        results = [await job.result(timeout=TIMEOUT) for job in (by_key, by_version)]

    assert (results, runs) == ([10, 10], [1])
    assert (await by_key.read()).status is Status.COMPLETED


@pytest.mark.clause("IDM-3")
async def test_a_rerun_needs_a_higher_version_and_a_request(
    hold: Holdfast, review: JobFunction[[int], int], runs: list[int]
) -> None:
    async with hold.worker(poll=0.05):
        old = await review.options(subject="c1", version=1).submit(1)
        await old.result(timeout=TIMEOUT)
        with pytest.raises(VersionRefused, match="rerun=True"):
            await review.options(subject="c1", version=2).submit(2)
        new = await review.options(subject="c1", version=2, rerun=True).submit(2)
        with pytest.raises(VersionRefused, match="older"):
            await review.options(subject="c1", version=1, rerun=True).submit(1)
        results = [await old.result(timeout=TIMEOUT), await new.result(timeout=TIMEOUT)]

    assert (results, runs) == ([10, 20], [1, 2])


@pytest.mark.clause("IDM-4")
async def test_a_duplicate_of_a_running_job_is_not_started(hold: Holdfast) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    starts: list[int] = []

    @hold.job("long")
    async def long() -> str:
        starts.append(1)
        begun.set()
        await may_end.wait()
        return "once"

    async with hold.worker(poll=0.05):
        first = await long.options(key="k").submit()
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        second = await long.options(key="k").submit()
        may_end.set()
        results = [await job.result(timeout=TIMEOUT) for job in (first, second)]

    assert (first.id, results, starts) == (second.id, ["once", "once"], [1])


async def test_what_a_job_submits_is_submitted_once_however_often_it_runs(
    hold: Holdfast, review: JobFunction[[int], int], runs: list[int]
) -> None:
    @hold.stage()
    async def fan_out() -> list[str]:
        return [(await review.submit(3)).id]

    @hold.job("parent", attempts=3)
    async def parent() -> list[str]:
        ids = [(await review.submit(1)).id, (await review.submit(1)).id, *await fan_out()]
        if current().attempt < 3:
            raise ConnectionResetError("again")
        return ids

    async with hold.worker(poll=0.05):
        ids = await (await parent.submit()).result(timeout=TIMEOUT)
        for job_id in ids:
            await hold.wait(job_id, timeout=TIMEOUT)

    assert (len(set(ids)), sorted(runs)) == (3, [1, 1, 3])
