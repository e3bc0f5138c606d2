"""Concurrency, rates and the retry budget of a provider limit all workers together, and each key on its own."""

import asyncio
from collections import Counter

import pytest

from holdfast import Breaker, Holdfast, JobFailed, Status
from holdfast.core.providers.provider_state import ProviderState
from holdfast.errors import ConfigError
from tests.contract.conftest import Database
from tests.contract.services import Service, declared, down, reasons, submitted, until
from tests.contract.steps import TIMEOUT


@pytest.mark.clause("BRK-6")
async def test_no_more_calls_are_under_way_than_the_concurrency_allows_over_all_workers(
    hold: Holdfast, service: Service, database: Database
) -> None:
    job = declared(hold, service, hold.provider("llm", concurrency=3))
    async with Holdfast(database.url) as other:
        declared(other, service, other.provider("llm", concurrency=3))
        async with hold.worker(slots=8, poll=0.05), other.worker(slots=8, poll=0.05):
            service.answering.clear()
            handles = await submitted(job, 30)

            async def full() -> bool:
                return service.at_once == 3

            await until(full)
            service.answering.set()
            for handle in handles:
                await handle.result(timeout=TIMEOUT)

    assert service.most_at_once == 3
    assert Counter(service.calls) == Counter(range(30))


@pytest.mark.clause("BRK-6")
async def test_a_job_that_waits_long_for_a_limit_leaves_its_slot_to_others(
    hold: Holdfast, service: Service
) -> None:
    slow = declared(hold, service, hold.provider("llm", concurrency=1))
    quick = declared(hold, Service(), hold.provider("mail"))
    service.answering.clear()

    async with hold.worker(slots=2, poll=0.05):
        handles = await submitted(slow, 5)
        for handle in await submitted(quick, 3):
            await handle.result(timeout=TIMEOUT)
        service.answering.set()
        for handle in handles:
            assert await handle.result(timeout=TIMEOUT) in range(5)

    assert service.most_at_once == 1


@pytest.mark.clause("BRK-6")
async def test_one_customers_crowd_does_not_hold_up_another_customer(hold: Holdfast) -> None:
    begun: list[str] = []
    release = asyncio.Event()
    llm = hold.provider("llm", concurrency=4, key=lambda a: a.customer, concurrency_per_key=2)

    @hold.stage(provider=llm)
    async def ask(customer: str) -> None:
        begun.append(customer)
        await release.wait()

    @hold.job("review")
    async def review(customer: str) -> None:
        await ask(customer)

    async with hold.worker(slots=8, poll=0.05):
        crowd = [await review.submit("big") for _ in range(8)]
        small = [await review.submit("small") for _ in range(2)]

        async def four() -> bool:
            return len(begun) == 4

        await until(four)
        release.set()
        for handle in [*crowd, *small]:
            await handle.result(timeout=TIMEOUT)

    assert Counter(begun[:4]) == {"big": 2, "small": 2}


async def test_a_key_that_the_arguments_do_not_have_fails_the_job_with_one_clear_line(hold: Holdfast) -> None:
    llm = hold.provider("llm", key=lambda a: a.customer, rate_per_key="1/s")

    @hold.stage(provider=llm)
    async def ask(number: int) -> None: ...

    @hold.job("review")
    async def review() -> None:
        await ask(1)

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed, match="provider's key= finds none in the arguments"):
            await (await review.submit()).result(timeout=TIMEOUT)


@pytest.mark.parametrize("key", ["a\nb", "\x00", "x" * 201], ids=["two lines", "NUL", "too long"])
async def test_a_key_that_cannot_be_stored_is_refused_with_one_clear_line(hold: Holdfast, key: str) -> None:
    llm = hold.provider("llm", key=lambda a: a.customer, rate_per_key="1/s")

    @hold.stage(provider=llm)
    async def ask(customer: str) -> None: ...

    @hold.job("review")
    async def review() -> None:
        await ask(key.replace("\x00", "\x01"))  # the other is no argument at all

    with pytest.raises(ConfigError, match="Not a key"):
        llm.permit(key=key)
    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed, match="Not a key"):
            await (await review.submit()).result(timeout=TIMEOUT)


async def test_retries_beyond_the_budget_wait_and_first_calls_go_on(hold: Holdfast, service: Service) -> None:
    llm = hold.provider("llm", breaker=Breaker(window=1_000, minimum=1_000), retry_budget=0.1)
    job = declared(hold, service, llm, attempts=1_000)
    service.error = down()

    async with hold.worker(slots=4, poll=0.05):
        handles = await submitted(job, 3)

        async def some_held() -> bool:
            return any(reason.startswith("the retry budget of ") for reason in await _last_reasons(hold))

        async def called() -> bool:
            return 99 in service.calls

        await until(some_held)
        service.answering.clear()  # so that its first call is its only one
        new = await job.submit(99)
        await until(called)
        assert await reasons(hold, await hold.read(new.id)) == []
        service.error = None
        service.answering.set()
        for handle in [*handles, new]:
            await handle.result(timeout=TIMEOUT)


async def _last_reasons(hold: Holdfast) -> list[str]:
    found = await hold.find()
    return list((await hold.runtime.store.reasons([job.id for job in found])).values())


async def test_a_worker_that_stops_gives_a_job_back_that_waits_for_its_turn(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", concurrency=1))
    service.answering.clear()

    async with hold.worker(slots=2, poll=0.05, grace=0):
        handles = await submitted(job, 2)

        async def called() -> bool:
            return service.at_once == 1

        await until(called)

    for handle in handles:
        seen = await hold.read(handle.id)
        assert (seen.status, seen.attempt) == (Status.QUEUED, 0)
    _, rows = await hold.runtime.store.providers.read(["llm"])
    assert ProviderState.load(rows["llm"].state).quota.shares == {}


async def test_a_customer_without_a_key_shares_no_limit_with_another(hold: Holdfast) -> None:
    llm = hold.provider("llm", key=lambda a: a.customer, rate_per_key="1000/s")

    @hold.stage(provider=llm)
    async def ask(customer: int | None) -> None: ...

    @hold.job("review")
    async def review(customer: int | None) -> None:
        await ask(customer)

    async with llm.permit(key=7):
        pass
    async with hold.worker(slots=1, poll=0.05):
        await (await review.submit(7)).result(timeout=TIMEOUT)
        with pytest.raises(JobFailed, match="Not a key: None"):
            await (await review.submit(None)).result(timeout=TIMEOUT)
