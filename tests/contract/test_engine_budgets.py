"""Each stage has its own attempts: what one spends, no other pays."""

from collections import Counter
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, Permanent, Retryable, Status
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.stages import StageStatus
from holdfast.errors import StageFailed
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.builders import a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, claimed


async def crash(store: Store, clock: DatabaseClock) -> Claim:
    """Claim a job as a worker that then dies, and let its lease run out."""
    claim = await claimed(store, "doomed")
    await clock.advance(LEASE + timedelta(seconds=1))
    assert await store.reclaim(limit=10) == [claim.id]
    return claim


@pytest.mark.clause("STG-2")
async def test_a_failure_in_one_stage_takes_nothing_from_another(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    def tries(name: str, needed: int) -> None:
        runs[name] += 1
        if runs[name] < needed:
            raise Retryable(f"{name} {runs[name]}")

    @hold.stage("first", attempts=3)
    async def first() -> None:
        tries("first", 3)

    @hold.stage("second", attempts=3)
    async def second() -> None:
        tries("second", 3)

    @hold.stage("third", attempts=1)
    async def third() -> None:
        tries("third", 1)

    @hold.job("review", attempts=1)
    async def review() -> str:
        await first()
        await second()
        await third()
        return "through"

    async with hold.worker(poll=0.05):
        assert await (await review.submit()).result(timeout=TIMEOUT) == "through"

    assert runs == {"first": 3, "second": 3, "third": 1}


@pytest.mark.clause("STG-3")
async def test_an_exhausted_stage_fails_the_job_in_its_name(hold: Holdfast, store: Store) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("fetch", attempts=1)
    async def fetch() -> str:
        runs["fetch"] += 1
        return "page"

    @hold.stage("llm", attempts=2)
    async def llm() -> str:
        runs["llm"] += 1
        raise Retryable("overloaded", error_class=ErrorClass.OVERLOADED)

    @hold.job("review", attempts=9)
    async def review() -> str:
        return await fetch() + await llm()

    async with hold.worker(poll=0.05):
        job = await review.submit()
        with pytest.raises(JobFailed) as raised:
            await job.result(timeout=TIMEOUT)

    ended = await job.read()
    assert runs == {"fetch": 1, "llm": 2}
    assert (ended.status, ended.stage, ended.last_attempt) == (Status.FAILED, "llm", 2)
    assert raised.value.failure.error_class is ErrorClass.OVERLOADED
    last = (await job.events())[-1]
    assert (last.kind, last.meta["stage"]) == (EventKind.FAILED, "llm")
    [failed] = [row for row in await store.stages([job.id]) if row.status is StageStatus.FAILED]
    assert (str(failed.key), failed.attempt) == ("llm", 2)


@pytest.mark.clause("STG-3")
@pytest.mark.clause("FAIL-4")
async def test_a_stage_that_cannot_be_retried_fails_the_job_at_once(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("llm", attempts=9)
    async def llm() -> None:
        runs["llm"] += 1
        raise Permanent("no such model")

    @hold.job("review", attempts=9)
    async def review() -> None:
        await llm.options(key="de")()

    async with hold.worker(poll=0.05):
        job = await review.submit()
        with pytest.raises(JobFailed, match="no such model"):
            await job.result(timeout=TIMEOUT)

    assert (runs["llm"], (await job.read()).stage) == (1, "llm[de]")


@pytest.mark.clause("STG-3")
async def test_a_job_may_go_on_without_a_stage_and_never_meets_it_again(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()
    caught: list[StageFailed] = []

    @hold.stage("optional", attempts=2)
    async def optional() -> str:
        runs["optional"] += 1
        raise Retryable("down")

    @hold.stage("needed", attempts=2)
    async def needed() -> str:
        runs["needed"] += 1
        if runs["needed"] == 1:
            raise Retryable("hiccup")
        return "enough"

    @hold.stage("last", attempts=1)
    async def last() -> str:
        runs["last"] += 1
        return "done"

    @hold.job("tolerant", attempts=1)
    async def tolerant() -> str:
        try:
            await optional()
        except StageFailed as error:
            caught.append(error)
        return await needed() + await last()

    async with hold.worker(poll=0.05):
        job = await tolerant.submit()
        assert await job.result(timeout=TIMEOUT) == "enoughdone"

    assert runs == {"optional": 2, "needed": 2, "last": 1}
    assert [error.stage for error in caught] == ["optional", "optional"]
    assert "down" in str(caught[-1])


async def test_code_that_catches_everything_does_not_hide_a_retry(hold: Holdfast) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("llm", attempts=3)
    async def llm() -> str:
        runs["llm"] += 1
        if runs["llm"] < 3:
            raise Retryable("hiccup")
        return "answer"

    @hold.job("careless")
    async def careless() -> str:
        try:
            return await llm()
        except Exception:
            return "hidden"

    @hold.job("reckless")
    async def reckless() -> str:
        try:
            return await llm()
        except BaseException:
            return "hidden"

    async with hold.worker(poll=0.05):
        assert await (await careless.submit()).result(timeout=TIMEOUT) == "answer"
        runs.clear()
        assert await (await reckless.submit()).result(timeout=TIMEOUT) == "answer"


@pytest.mark.clause("STG-2")
async def test_a_crash_is_charged_to_the_stage_in_progress(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    """The worker that dies is played by the store: it claims, stores one stage, and does nothing afterwards."""
    runs: Counter[str] = Counter()

    @hold.stage("fetch", attempts=2)
    async def fetch() -> str:
        runs["fetch"] += 1
        return "page"

    @hold.stage("llm", attempts=2)
    async def llm(page: str) -> str:
        runs["llm"] += 1
        raise Retryable("once, and it is over")

    @hold.job("review", attempts=5)
    async def review() -> str:
        return await llm(await fetch())

    job = await review.submit()
    await crash(store, clock)
    await crash_after_fetch(store, clock)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="once, and it is over"):
            await job.result(timeout=TIMEOUT)

    assert runs == {"llm": 1}
    [failed] = [row for row in await store.stages([job.id]) if row.status is StageStatus.FAILED]
    assert (str(failed.key), failed.attempt) == ("llm", 2)


async def crash_after_fetch(store: Store, clock: DatabaseClock) -> None:
    claim = await claimed(store, "doomed")
    await store.settle("doomed", [a_stage(claim, "fetch", attempt=claim.attempt)])
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=10)


@pytest.mark.clause("STG-2")
async def test_a_stage_that_took_its_worker_down_once_too_often_is_not_begun_again(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    runs: Counter[str] = Counter()

    @hold.stage("deadly", attempts=2)
    async def deadly() -> None:
        runs["deadly"] += 1

    @hold.job("review", attempts=9)
    async def review() -> str:
        try:
            await deadly()
        except StageFailed as error:
            return error.failure.error_class.value
        return "survived"

    job = await review.submit()
    for _ in range(2):
        await crash(store, clock)
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == ErrorClass.WORKER_LOST

    assert runs == {}
