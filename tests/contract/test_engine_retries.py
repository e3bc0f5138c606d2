"""Retries through the whole engine: how many, how far apart, and when there are none."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import Backoff, ErrorClass, Event, Holdfast, Job, JobFailed, Permanent, Retryable, Status
from holdfast.errors import BadResponse
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import TIMEOUT, eventually


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


class Script:
    """Raises one error after the other, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.runs = 0

    def play(self) -> str:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        return "in the end"


@pytest.mark.clause("RET-6")
async def test_a_failed_attempt_is_tried_again_until_one_succeeds(hold: Holdfast) -> None:
    script = Script(ConnectionResetError("reset"), TimeoutError("slow"))

    @hold.job("flaky")
    async def flaky() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        job = await flaky.submit()
        assert await job.result(timeout=TIMEOUT) == "in the end"

    assert script.runs == 3
    assert kinds(await job.events()).count(EventKind.RETRY) == 2
    assert (await job.read()).attempt == 3


@pytest.mark.clause("FAIL-4")
async def test_a_failure_that_cannot_be_retried_ends_the_retries_at_once(hold: Holdfast) -> None:
    script = Script(Retryable("later"), Permanent("never", error_class=ErrorClass.POLICY_REJECTED))

    @hold.job("judge", attempts=9)
    async def judge() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        job = await judge.submit()
        with pytest.raises(JobFailed, match="never") as raised:
            await job.result(timeout=TIMEOUT)

    assert script.runs == 2
    assert raised.value.failure.error_class is ErrorClass.POLICY_REJECTED
    assert not raised.value.failure.retryable
    assert kinds(await job.events())[-1] is EventKind.FAILED


@pytest.mark.clause("FAIL-4")
async def test_a_programming_error_is_not_retried(hold: Holdfast) -> None:
    script = Script(AttributeError("no such attribute"))

    @hold.job("buggy", attempts=9)
    async def buggy() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as raised:
            await (await buggy.submit()).result(timeout=TIMEOUT)

    assert (script.runs, raised.value.failure.error_class) == (1, ErrorClass.BUG)


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_the_attempts_count_the_first_one(hold: Holdfast, attempts: int) -> None:
    script = Script(*[Retryable("no") for _ in range(99)])

    @hold.job("hopeless", attempts=attempts)
    async def hopeless() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        job = await hopeless.submit()
        with pytest.raises(JobFailed, match="no"):
            await job.result(timeout=TIMEOUT)

    assert script.runs == attempts
    ended = await job.read()
    assert (ended.status, ended.attempt, ended.last_attempt) == (Status.FAILED, attempts, attempts)


async def test_a_malformed_answer_is_retried_twice_whatever_the_budget(hold: Holdfast) -> None:
    script = Script(*[BadResponse("not JSON") for _ in range(99)])

    @hold.job("parse", attempts=9)
    async def parse() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await (await parse.submit()).result(timeout=TIMEOUT)

    assert script.runs == 3


@pytest.mark.clause("RET-5")
@pytest.mark.clause("RET-6")
async def test_each_wait_is_worked_out_when_its_attempt_has_failed(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    script = Script(Retryable("first", after=100), Retryable("second", after=200), Retryable("third"))

    @hold.job("waiting", attempts=9, backoff=Backoff.constant(60))
    async def waiting() -> str:
        return script.play()

    job = await waiting.submit()
    parked: list[Job] = []
    async with hold.worker(poll=0.05):
        for attempt in (1, 2, 3):
            parked.append(await eventually(job.read, _parked_after(attempt)))
            await clock.advance(timedelta(seconds=201))
            await store.promote(limit=1)
        assert await job.result(timeout=TIMEOUT) == "in the end"

    waits = [each.retry_after - each.updated_at for each in parked if each.retry_after is not None]
    assert waits == [timedelta(seconds=100), timedelta(seconds=200), timedelta(seconds=60)]
    assert [(each.status, each.attempt, each.leased_by) for each in parked] == [
        (Status.QUEUED, attempt, None) for attempt in (1, 2, 3)
    ]
    assert all(each.last_attempt_at and each.last_attempt_at <= each.updated_at for each in parked)


def _parked_after(attempt: int) -> Callable[[Job], bool]:
    return lambda job: job.attempt == attempt and job.retry_after is not None


async def test_a_failed_job_is_retried_and_may_succeed(hold: Holdfast) -> None:
    script = Script(Permanent("the key is wrong"))

    @hold.job("repaired")
    async def repaired() -> str:
        return script.play()

    async with hold.worker(poll=0.05):
        job = await repaired.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)
        brought_back = await job.retry()
        assert await job.result(timeout=TIMEOUT) == "in the end"

    assert brought_back.generation == 2
    assert kinds(await job.events())[-3:] == [EventKind.REPLAYED, EventKind.PROCESSING, EventKind.COMPLETED]
