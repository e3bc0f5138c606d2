"""Whatever comes out of a handler is its own failure: no worker and no neighbour dies of it."""

import asyncio
import sys
from typing import Any

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobFunction, JobHandle, Retryable
from holdfast.types import Failure
from tests.builders import a_job
from tests.contract.steps import TIMEOUT


class Weird(BaseException):
    """Neither an error nor anything else that is known."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


async def failure_of(job: JobHandle[Any]) -> Failure:
    with pytest.raises(JobFailed) as raised:
        await job.result(timeout=TIMEOUT)
    return raised.value.failure


@pytest.fixture
def good(hold: Holdfast) -> JobFunction[[], str]:
    """A job that has nothing to do with the others."""

    @hold.job("good")
    async def good() -> str:
        return "fine"

    return good


@pytest.mark.parametrize(
    ("error", "known_as", "attempts"),
    [
        (SystemExit(3), ErrorClass.BUG, 1),
        (KeyboardInterrupt(), ErrorClass.BUG, 1),
        (asyncio.CancelledError(), ErrorClass.BUG, 1),
        (GeneratorExit(), ErrorClass.BUG, 1),
        (Weird("what"), ErrorClass.UNKNOWN, 3),
        (Unspeakable(), ErrorClass.UNKNOWN, 3),
        (BaseExceptionGroup("both", [SystemExit(), ValueError("no")]), ErrorClass.BUG, 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
@pytest.mark.parametrize("place", ["job", "stage", "thread"])
async def test_an_error_of_any_kind_ends_its_job_only(
    hold: Holdfast,
    good: JobFunction[[], str],
    *,
    error: BaseException,
    known_as: ErrorClass,
    attempts: int,
    place: str,
) -> None:
    runs: list[int] = []

    def fail() -> None:
        runs.append(1)
        raise error

    @hold.stage("inner")
    async def inner() -> None:
        fail()

    async def outer() -> None:
        await inner() if place == "stage" else fail()

    bad = hold.job("bad")(fail if place == "thread" else outer)
    async with hold.worker(poll=0.05):
        jobs = [await good.submit(), await bad.submit(), await good.submit()]
        failure = await failure_of(jobs[1])
        results = [await jobs[0].result(timeout=TIMEOUT), await jobs[2].result(timeout=TIMEOUT)]
        after = await (await good.submit()).result(timeout=TIMEOUT)

    assert (failure.error_class, len(runs)) == (known_as, attempts)
    assert (*results, after) == ("fine", "fine", "fine")
    assert failure.message


async def test_leaving_the_process_from_a_thread_leaves_nothing(
    hold: Holdfast, good: JobFunction[[], str]
) -> None:
    @hold.job("leave")
    def leave() -> None:
        sys.exit("I am done")

    async with hold.worker(poll=0.05):
        failure = await failure_of(await leave.submit())

        assert failure.error_class is ErrorClass.BUG
        assert await (await good.submit()).result(timeout=TIMEOUT) == "fine"


async def test_a_handler_that_cancels_itself_spends_its_attempt(hold: Holdfast) -> None:
    @hold.job("suicidal")
    async def suicidal() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with hold.worker(poll=0.05):
        job = await suicidal.submit()
        failure = await failure_of(job)

    assert failure.error_class is ErrorClass.BUG
    assert (await job.read()).attempt == 1


async def test_an_iterator_that_ends_in_a_thread_is_an_error_like_others(hold: Holdfast) -> None:
    @hold.job("exhausted", attempts=1)
    def exhausted() -> int:
        nothing: list[int] = []
        return next(iter(nothing))

    async with hold.worker(poll=0.05):
        failure = await failure_of(await exhausted.submit())

    assert "StopIteration" in failure.message


async def test_the_error_of_a_task_group_is_the_error_of_its_members(hold: Holdfast) -> None:
    @hold.job("grouped", attempts=2)
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_refused())
            group.create_task(_refused())

    async with hold.worker(poll=0.05):
        failure = await failure_of(await grouped.submit())

    assert failure.error_class is ErrorClass.CONNECT_FAILED


async def _refused() -> None:
    raise ConnectionRefusedError("connection refused")


async def test_a_result_of_another_type_than_declared_fails_the_job(hold: Holdfast) -> None:
    @hold.job("liar")
    async def liar() -> int:
        return "not a number"  # type: ignore[return-value]  # that is the point

    async with hold.worker(poll=0.05):
        failure = await failure_of(await liar.submit())

    assert failure.error_class is ErrorClass.SCHEMA_INVALID
    assert not failure.retryable


async def test_a_job_may_outlive_the_code_that_took_its_arguments(hold: Holdfast) -> None:
    """Arguments that were stored by an older version, and that the function no longer takes."""

    @hold.job("renamed")
    async def renamed(new_name: int) -> int:
        return new_name

    old = a_job(name="renamed", args='{"old_name":1}')
    await hold.runtime.store.submit([old])
    async with hold.worker(poll=0.05):
        failure = await failure_of(hold.handle(old.id, "renamed"))

    assert failure.error_class is ErrorClass.SCHEMA_INVALID


async def test_a_failure_keeps_its_stack_for_operators_and_not_for_its_message(hold: Holdfast) -> None:
    @hold.job("deep", attempts=1)
    async def deep() -> None:
        raise Retryable("said aloud")

    async with hold.worker(poll=0.05):
        failure = await failure_of(await deep.submit())

    assert failure.message == "said aloud"
    assert "in deep" in failure.stack
