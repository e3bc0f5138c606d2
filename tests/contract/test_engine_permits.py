"""Code outside a stage asks for a permit before it calls a provider."""

import asyncio
from collections import Counter

import pytest

from holdfast import Holdfast, JobFailed, Status
from holdfast.errors import ConfigError
from tests.contract.services import STEADY, Service, down, held, in_state, until
from tests.contract.steps import TIMEOUT


async def test_a_job_without_stages_takes_a_permit_for_its_call(hold: Holdfast, service: Service) -> None:
    llm = hold.provider("llm", breaker=STEADY)

    @hold.job("review", attempts=2)
    async def review(number: int) -> str:
        async with llm.permit() as provider:
            await service.call(number)
        return provider

    async with hold.worker(slots=1, poll=0.05):
        assert await (await review.submit(0)).result(timeout=TIMEOUT) == "llm"
        service.error = down()
        await asyncio.gather(*(review.submit(number) for number in range(1, 9)))
        await in_state(hold, "llm", "open")

        async def settled() -> bool:
            counts = Counter(job.status for job in await hold.find())
            return (await hold.providers.show("llm")).held == counts[Status.QUEUED]

        await until(settled)

    assert len(service.calls) == 4


async def test_a_plain_function_takes_a_permit_too(hold: Holdfast) -> None:
    llm = hold.provider("llm", breaker=STEADY)

    @hold.job("review", attempts=9)
    def review(number: int) -> str:
        with llm.permit() as provider:
            if number:
                raise down()
        return provider

    async with hold.worker(slots=1, poll=0.05):
        assert await (await review.submit(0)).result(timeout=TIMEOUT) == "llm"
        await review.submit(1)
        await held(hold, "llm", 1)


async def test_outside_a_job_every_call_is_made(hold: Holdfast) -> None:
    llm = hold.provider("llm")

    async with llm.permit() as provider:
        assert provider == "llm"
    with llm.permit() as provider:
        assert provider == "llm"


async def test_with_in_async_code_says_what_to_write(hold: Holdfast) -> None:
    llm = hold.provider("llm")

    @hold.job("review")
    async def review() -> None:
        with llm.permit():
            pass

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed, match="write `async with`"):
            await (await review.submit()).result(timeout=TIMEOUT)


async def test_a_permit_is_for_one_call_and_for_a_block(hold: Holdfast) -> None:
    permit = hold.provider("llm").permit()

    async with permit:
        pass
    with pytest.raises(ConfigError, match="is for one call; request one for each"):
        await permit.__aenter__()
    with pytest.raises(ConfigError, match="is for one call; request one for each"), permit:
        pass
    with pytest.raises(ConfigError, match="guards a block, not a function"):
        permit(print)
