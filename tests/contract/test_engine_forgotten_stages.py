"""A stage that is called and not awaited does not run, so its job has not done its work."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, Status
from holdfast.types import StageFunction
from tests.contract.steps import TIMEOUT


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def send(hold: Holdfast, sent: list[str]) -> StageFunction[[str], Coroutine[Any, Any, str]]:
    @hold.stage
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    return send


async def forgets(send: Any) -> str:
    send("Ada")
    return "done"


async def returns_it(send: Any) -> Any:
    return send("Ada")


async def returns_many(send: Any) -> Any:
    return [send.options(key=name)(name) for name in ("Ada", "Bob")]


async def starts_a_task(send: Any) -> str:
    asyncio.create_task(send("Ada"))  # noqa: RUF006 - forgotten, which is the point
    return "done"


async def awaits_the_first_only(send: Any) -> str:
    await send("Eve")
    send("Ada")
    return "done"


@pytest.mark.parametrize("body", [forgets, returns_it, returns_many, starts_a_task, awaits_the_first_only])
async def test_a_job_that_awaits_no_stage_fails_once_and_names_it(
    hold: Holdfast,
    send: StageFunction[[str], Coroutine[Any, Any, str]],
    sent: list[str],
    body: Callable[[Any], Awaitable[Any]],
) -> None:
    runs = []

    @hold.job("order")
    async def order() -> Any:
        runs.append(1)
        return await body(send)

    async with hold.worker(poll=0.05):
        job = await order.submit()
        with pytest.raises(JobFailed, match="stage 'send' was called and never awaited") as caught:
            await job.result(timeout=TIMEOUT)

    assert caught.value.failure is not None
    assert (caught.value.failure.error_class, caught.value.failure.retryable) == (ErrorClass.BUG, False)
    assert (len(runs), "Ada" in sent) == (1, False)


async def test_a_plain_stage_that_an_async_job_does_not_await_is_named(hold: Holdfast) -> None:
    @hold.stage
    def resize(name: str) -> str:
        return f"small {name}"

    @hold.job("thumbnail")
    async def thumbnail() -> None:
        resize.in_thread("a.png")  # type: ignore[unused-coroutine]  # which is the point

    async with hold.worker(poll=0.05):
        job = await thumbnail.submit()
        with pytest.raises(JobFailed, match="stage 'resize' was called and never awaited"):
            await job.result(timeout=TIMEOUT)


async def test_a_stage_that_was_called_off_before_it_began_is_not_forgotten(
    hold: Holdfast, send: StageFunction[[str], Coroutine[Any, Any, str]], sent: list[str]
) -> None:
    @hold.job("order")
    async def order() -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(send("Ada"), timeout=0)
        return "in time or not at all"

    async with hold.worker(poll=0.05):
        job = await order.submit()
        assert await job.result(timeout=TIMEOUT) == "in time or not at all"

    assert ((await job.read()).status, sent) == (Status.COMPLETED, [])


@pytest.mark.filterwarnings("ignore:coroutine 'send' was never awaited")
async def test_a_job_that_fails_before_it_awaits_is_judged_by_its_own_error(
    hold: Holdfast, send: StageFunction[[str], Coroutine[Any, Any, str]]
) -> None:
    @hold.job("order")
    async def order() -> None:
        waiting = send("Ada")
        raise KeyError("customer")
        await waiting

    async with hold.worker(poll=0.05):
        job = await order.submit()
        with pytest.raises(JobFailed, match="customer"):
            await job.result(timeout=TIMEOUT)
