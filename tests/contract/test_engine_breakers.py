"""Jobs that call a provider: let through while its breaker is closed, held with their attempts while it is open."""

import asyncio
from collections import Counter

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, Permanent, Status
from holdfast.testing import inline
from tests.contract.conftest import Database, Logger
from tests.contract.services import (
    BRIEF,
    STEADY,
    Service,
    declared,
    down,
    held,
    in_state,
    limited,
    reasons,
    retries,
    submitted,
    tried,
    until,
)
from tests.contract.steps import TIMEOUT


@pytest.mark.clause("BRK-1")
@pytest.mark.clause("BRK-2")
async def test_a_broken_provider_is_not_called_and_its_jobs_wait_with_their_attempts(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=5)
    service.error = down()

    async with hold.worker(slots=1, poll=0.05):
        handles = await submitted(job, 10)
        await held(hold, "llm", 10)
        calls = len(service.calls)

    assert calls == 4
    status = await hold.providers.show("llm")
    assert (status.state, status.trials) == ("open", 0)
    for handle in handles:
        seen = await hold.read(handle.id)
        assert (seen.status, seen.held_by) == (Status.QUEUED, "llm")
        assert seen.attempt == sum(number == handles.index(handle) for number in service.calls)
        assert (await reasons(hold, seen))[-1].startswith("llm is open: ")


@pytest.mark.clause("BRK-2")
async def test_jobs_of_another_provider_run_although_those_of_a_broken_one_came_first(
    hold: Holdfast, service: Service
) -> None:
    broken = declared(hold, service, hold.provider("llm", breaker=STEADY))
    well = declared(hold, Service(), hold.provider("mail"))
    service.error = down()

    async with hold.worker(slots=2, poll=0.05):
        await submitted(broken, 30)
        for handle in await submitted(well, 10):
            await handle.result(timeout=TIMEOUT)

    assert (await hold.providers.show("mail")).state == "closed"


@pytest.mark.clause("BRK-3")
async def test_three_trials_close_it_and_the_held_jobs_complete(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=BRIEF), attempts=5)
    service.error = down()

    async with hold.worker(slots=4, poll=0.05):
        handles = await submitted(job, 8)
        await until(lambda: _opened_again(hold))
        service.error = None
        for handle in handles:
            await handle.result(timeout=TIMEOUT)

    kinds = Counter(event.kind for event in await hold.providers.events("llm"))
    assert kinds["closed"] == 1
    levels = [line["level"] for line in logger.lines("provider opened")]
    assert levels == ["warning"] + ["info"] * (kinds["opened"] - 1), "one warning, however often it opens"


async def _opened_again(hold: Holdfast) -> bool:
    events = await hold.providers.events("llm")
    return sum(event.kind == "opened" for event in events) >= 2


@pytest.mark.clause("BRK-2")
async def test_a_trial_that_fails_costs_its_job_no_attempt(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=BRIEF), attempts=3)
    service.error = down()
    service.answering.clear()

    async def all_called() -> bool:
        return service.at_once == 4

    async with hold.worker(slots=4, poll=0.05):
        handles = await submitted(job, 4)
        await until(all_called)
        service.answering.set()  # all fail together, and no job tries again in between
        await until(lambda: tried(hold, 6))  # more trials than all jobs have attempts left
        service.error = None
        for handle in handles:
            await handle.result(timeout=TIMEOUT)

    failures = [await retries(hold, handle) for handle in handles]
    assert sum(failures) == 4  # those that opened it, and no trial


@pytest.mark.clause("BRK-3")
async def test_a_trial_that_ends_in_the_callers_own_mistake_says_nothing(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=BRIEF))
    service.error = down()

    async with hold.worker(slots=4, poll=0.05):
        first = await submitted(job, 4)
        await in_state(hold, "llm", "open")
        service.error = Permanent("no such model", error_class=ErrorClass.SCHEMA_INVALID)
        for handle in first:
            with pytest.raises(JobFailed):
                await handle.result(timeout=TIMEOUT)
        assert (await hold.providers.show("llm")).state == "half-open"
        assert (await hold.providers.show("llm")).trials == 0
        service.error = None
        for handle in await submitted(job, 3):
            await handle.result(timeout=TIMEOUT)
        await in_state(hold, "llm", "closed")


@pytest.mark.clause("BRK-5")
async def test_after_recovery_newcomers_stand_behind_those_who_were_held(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=5)
    service.error = down()
    async with hold.worker(slots=4, poll=0.05):
        old = await submitted(job, 12)
        await held(hold, "llm", 12)
        service.error = None
        service.calls.clear()
        await hold.providers.close("llm", actor="ann")
        await hold.providers.resume("llm", actor="ann")
        new = [await job.submit(100), await job.submit(101)]
        for handle in [*old, *new]:
            await handle.result(timeout=TIMEOUT)

    assert set(service.calls[-2:]) == {100, 101}


@pytest.mark.clause("BRK-1")
async def test_a_429_makes_all_jobs_wait_and_opens_no_breaker(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm"))
    service.error = limited(after=0.3)

    async with hold.worker(slots=1, poll=0.05):
        handles = await submitted(job, 6)
        await held(hold, "llm", 6)
        status = await hold.providers.show("llm")
        assert status.state == "limited"
        await until(lambda: tried(hold, 2))
        service.error = None
        for handle in handles:
            await handle.result(timeout=TIMEOUT)

    # One call met the first 429; all others until it was over were trials, and then five jobs were left.
    trials = [event for event in await hold.providers.events("llm", limit=1_000) if event.kind == "tried"]
    assert len(service.calls) - len(trials) == 1 + 5
    # The job that met the first 429 spent an attempt, and no other.
    assert sorted([await retries(hold, handle) for handle in handles]) == [0, 0, 0, 0, 0, 1]


async def test_a_spent_quota_blocks_the_provider_after_one_call(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    service.error = Permanent("no money", error_class=ErrorClass.QUOTA_EXHAUSTED)

    async with hold.worker(slots=1, poll=0.05):
        first, *rest = await submitted(job, 20)
        with pytest.raises(JobFailed):
            await first.result(timeout=TIMEOUT)
        await held(hold, "llm", len(rest))

    assert len(service.calls) == 1
    assert (await hold.providers.show("llm")).state == "blocked"
    [line] = logger.lines("provider opened")
    assert (line["level"], line["cause"]) == ("error", "blocked")


async def test_refused_credentials_fail_three_jobs_and_hold_all_others_even_those_under_way(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    service.error = Permanent("bad key", error_class=ErrorClass.AUTH_DENIED)
    service.answering.clear()

    async with hold.worker(slots=8, poll=0.05):
        handles = await submitted(job, 40)

        async def all_called() -> bool:
            return len(service.calls) == 8

        await until(all_called)
        service.answering.set()
        await held(hold, "llm", 37)

    ended = Counter([(await hold.read(handle.id)).status for handle in handles])
    assert ended == {Status.FAILED: 3, Status.QUEUED: 37}
    assert len(logger.lines("provider opened")) == 1


async def test_a_call_that_takes_too_long_is_stopped_and_counts_as_failed(hold: Holdfast) -> None:
    llm = hold.provider("llm", timeout=0.05, breaker=STEADY)

    @hold.stage(provider=llm, attempts=9)
    async def ask() -> None:
        await asyncio.Event().wait()

    @hold.job("review")
    async def review() -> None:
        await ask()

    async with hold.worker(slots=1, poll=0.05):
        await review.submit()
        await held(hold, "llm", 1)

    assert (await hold.providers.show("llm")).state == "open"


@pytest.mark.clause("BRK-4")
async def test_what_is_known_of_a_provider_outlives_the_workers(
    hold: Holdfast, service: Service, database: Database
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=9)
    service.error = down()
    async with hold.worker(slots=1, poll=0.05):
        await submitted(job, 6)
        await held(hold, "llm", 6)
    calls = len(service.calls)

    async with Holdfast(database.url) as other:
        declared(other, service, other.provider("llm", breaker=STEADY))
        async with other.worker(slots=8, poll=0.05):
            await job.submit(6)
            await held(other, "llm", 7)

    assert len(service.calls) == calls


async def test_cancel_and_deadline_reach_a_job_that_is_held(hold: Holdfast, service: Service) -> None:
    llm = hold.provider("llm")

    @hold.stage(provider=llm)
    async def ask() -> None: ...

    @hold.job("review")
    async def review() -> None:
        await ask()

    await hold.providers.pause("llm", actor="ann")
    async with hold.worker(slots=2, poll=0.05):
        cancelled = await review.submit()
        await held(hold, "llm", 1)
        assert await hold.cancel(cancelled.id) is Status.CANCELLED
        late = await review.options(deadline=1).submit()

        async def was_held() -> bool:
            return bool(await reasons(hold, await hold.read(late.id)))

        await until(was_held)
        ended = await hold.wait(late.id, timeout=TIMEOUT)

    assert ended.failure is not None
    assert ended.failure.error_class is ErrorClass.TIMEOUT


async def test_inline_jobs_ask_no_provider(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=1)
    service.error = down()

    with inline(hold) as ended:
        for number in range(8):
            await job.submit(number)

    assert [job.status for job in ended] == [Status.FAILED] * 8
