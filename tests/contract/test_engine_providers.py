"""Jobs that call a provider: let through while it is well, held with their attempts while it is not."""

import asyncio
from collections import Counter

import pytest

from holdfast import Breaker, ErrorClass, Holdfast, JobFailed, JobHandle, Permanent, Status, current
from holdfast.core.providers.provider_state import ProviderState
from holdfast.errors import ConfigError, StateRefused
from holdfast.testing import inline
from holdfast.types import EventKind
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
    submitted,
    until,
)
from tests.contract.steps import PATIENCE


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
            await handle.result(timeout=PATIENCE)

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
            await handle.result(timeout=PATIENCE)

    kinds = Counter(event.kind for event in await hold.providers.events("llm"))
    assert kinds["closed"] == 1
    levels = [line["level"] for line in logger.lines("provider opened")]
    assert levels == ["warning"] + ["info"] * (kinds["opened"] - 1), "who watches is called once"


async def _opened_again(hold: Holdfast) -> bool:
    events = await hold.providers.events("llm")
    return sum(event.kind == "opened" for event in events) >= 2


@pytest.mark.clause("BRK-2")
async def test_a_trial_that_fails_costs_its_job_no_attempt(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=BRIEF), attempts=3)
    service.error = down()
    service.gate.clear()

    async def all_called() -> bool:
        return service.at_once == 4

    async with hold.worker(slots=4, poll=0.05):
        handles = await submitted(job, 4)
        await until(all_called)
        service.gate.set()  # all fail together, and nobody tries again in between
        await until(lambda: _tried(hold, 6))  # more trials than all jobs have attempts left
        service.error = None
        for handle in handles:
            await handle.result(timeout=PATIENCE)

    failures = [await retries(hold, handle) for handle in handles]
    assert sum(failures) == 4  # those that opened it, and no trial


async def retries(hold: Holdfast, handle: JobHandle[int]) -> int:
    return sum(event.kind is EventKind.RETRY for event in await hold.events(handle.id))


async def _tried(hold: Holdfast, times: int) -> bool:
    events = await hold.providers.events("llm", limit=1_000)
    return sum(event.kind == "tried" for event in events) >= times


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
                await handle.result(timeout=PATIENCE)
        assert (await hold.providers.show("llm")).state == "half-open"
        assert (await hold.providers.show("llm")).trials == 0
        service.error = None
        for handle in await submitted(job, 3):
            await handle.result(timeout=PATIENCE)
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
            await handle.result(timeout=PATIENCE)

    assert set(service.calls[-2:]) == {100, 101}


@pytest.mark.clause("BRK-1")
async def test_a_429_makes_everybody_wait_and_opens_no_breaker(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm"))
    service.error = limited(after=0.3)

    async with hold.worker(slots=1, poll=0.05):
        handles = await submitted(job, 6)
        await held(hold, "llm", 6)
        status = await hold.providers.show("llm")
        assert status.state == "limited"
        await until(lambda: _tried(hold, 2))
        service.error = None
        for handle in handles:
            await handle.result(timeout=PATIENCE)

    # One call met the first 429; all others until it was over were trials, and then five jobs were left.
    tried = [event for event in await hold.providers.events("llm", limit=1_000) if event.kind == "tried"]
    assert len(service.calls) - len(tried) == 1 + 5
    # Whoever met the first 429 spent an attempt, and nobody else.
    assert sorted([await retries(hold, handle) for handle in handles]) == [0, 0, 0, 0, 0, 1]


async def test_a_spent_quota_blocks_the_provider_after_one_call(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    service.error = Permanent("no money", error_class=ErrorClass.QUOTA_EXHAUSTED)

    async with hold.worker(slots=1, poll=0.05):
        first, *rest = await submitted(job, 20)
        with pytest.raises(JobFailed):
            await first.result(timeout=PATIENCE)
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
    service.gate.clear()

    async with hold.worker(slots=8, poll=0.05):
        handles = await submitted(job, 40)

        async def all_called() -> bool:
            return len(service.calls) == 8

        await until(all_called)
        service.gate.set()
        await held(hold, "llm", 37)

    ended = Counter([(await hold.read(handle.id)).status for handle in handles])
    assert ended == {Status.FAILED: 3, Status.QUEUED: 37}
    assert len(logger.lines("provider opened")) == 1


@pytest.mark.clause("BRK-2")
@pytest.mark.clause("BRK-6")
async def test_a_backup_takes_over_from_a_broken_provider_and_the_history_says_so(
    hold: Holdfast, service: Service, logger: Logger
) -> None:
    asked: list[str | None] = []
    llm = hold.provider("llm", breaker=STEADY, backup="llm-eu")
    hold.provider("llm-eu")

    @hold.stage(provider=llm, attempts=9)
    async def ask() -> str:
        asked.append(current().provider)
        if current().provider == "llm":
            raise down()
        return "answer"

    @hold.job("review")
    async def review() -> str:
        return await ask()

    async with hold.worker(slots=1, poll=0.05):
        for _ in range(3):
            handle = await review.submit()
            assert await handle.result(timeout=PATIENCE) == "answer"

    assert asked == ["llm"] * 4 + ["llm-eu"] * 3
    [stage] = [event for event in await hold.events(handle.id) if event.kind is EventKind.STAGE]
    assert stage.meta["provider"] == "llm-eu"
    assert logger.lines("backup used")[0]["backup"] == "llm-eu"


@pytest.mark.clause("BRK-6")
@pytest.mark.clause("RET-7")
async def test_a_backup_has_the_last_word_when_the_attempts_are_spent(hold: Holdfast) -> None:
    asked: list[str | None] = []
    stt = hold.provider("stt", backup=hold.provider("stt-2"))

    @hold.stage(provider=stt, attempts=3)
    async def transcribe() -> str:
        asked.append(current().provider)
        if current().provider == "stt":
            raise down()
        return "words"

    @hold.job("grade")
    async def grade() -> str:
        return await transcribe()

    async with hold.worker(slots=1, poll=0.05):
        assert await (await grade.submit()).result(timeout=PATIENCE) == "words"

    assert asked == ["stt", "stt", "stt", "stt-2"]


@pytest.mark.clause("BRK-6")
async def test_two_that_back_each_other_up_are_each_asked_once_in_the_last_attempt(hold: Holdfast) -> None:
    asked: list[str | None] = []
    one = hold.provider("one", backup="two")
    hold.provider("two", backup="one")

    @hold.stage(provider=one, attempts=1)
    async def ask() -> None:
        asked.append(current().provider)
        raise down()

    @hold.job("review")
    async def review() -> None:
        await ask()

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed):
            await (await review.submit()).result(timeout=PATIENCE)

    assert asked == ["one", "two"]


@pytest.mark.clause("BRK-6")
async def test_a_provider_that_asks_for_patience_gets_it_and_its_backup_is_not_asked(
    hold: Holdfast, service: Service
) -> None:
    hold.provider("llm-eu")
    job = declared(hold, service, hold.provider("llm", backup="llm-eu"))
    service.error = limited(after=60)

    async with hold.worker(slots=1, poll=0.05):
        await submitted(job, 3)
        await held(hold, "llm", 2)  # the first waits for its retry

    assert len(service.calls) == 1


async def test_a_backup_that_is_declared_nowhere_stops_the_start(hold: Holdfast) -> None:
    hold.provider("llm", backup="llm-eu")

    with pytest.raises(ConfigError, match="backup 'llm-eu', which is not declared"):
        async with hold.worker():
            pass


@pytest.mark.clause("BRK-6")
async def test_no_more_calls_are_under_way_than_the_concurrency_allows_over_all_workers(
    hold: Holdfast, service: Service, database: Database
) -> None:
    job = declared(hold, service, hold.provider("llm", concurrency=3))
    async with Holdfast(database.url) as other:
        declared(other, service, other.provider("llm", concurrency=3))
        async with hold.worker(slots=8, poll=0.05), other.worker(slots=8, poll=0.05):
            service.gate.clear()
            handles = await submitted(job, 30)

            async def full() -> bool:
                return service.at_once == 3

            await until(full)
            service.gate.set()
            for handle in handles:
                await handle.result(timeout=PATIENCE)

    assert service.most_at_once == 3
    assert Counter(service.calls) == Counter(range(30))


@pytest.mark.clause("BRK-6")
async def test_whoever_waits_long_for_a_limit_leaves_its_slot_to_others(
    hold: Holdfast, service: Service
) -> None:
    slow = declared(hold, service, hold.provider("llm", concurrency=1))
    quick = declared(hold, Service(), hold.provider("mail"))
    service.gate.clear()

    async with hold.worker(slots=2, poll=0.05):
        handles = await submitted(slow, 5)
        for handle in await submitted(quick, 3):
            await handle.result(timeout=PATIENCE)
        service.gate.set()
        for handle in handles:
            assert await handle.result(timeout=PATIENCE) in range(5)

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
            await handle.result(timeout=PATIENCE)

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
            await (await review.submit()).result(timeout=PATIENCE)


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
            await (await review.submit()).result(timeout=PATIENCE)


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
        service.gate.clear()  # so that its first call is its only one
        new = await job.submit(99)
        await until(called)
        assert await reasons(hold, await hold.read(new.id)) == []
        service.error = None
        service.gate.set()
        for handle in [*handles, new]:
            await handle.result(timeout=PATIENCE)


async def _last_reasons(hold: Holdfast) -> list[str]:
    found = await hold.find()
    return list((await hold.runtime.store.reasons([job.id for job in found])).values())


async def test_a_job_without_stages_takes_a_permit_for_its_call(hold: Holdfast, service: Service) -> None:
    llm = hold.provider("llm", breaker=STEADY)

    @hold.job("review", attempts=2)
    async def review(number: int) -> str:
        async with llm.permit() as provider:
            await service.call(number)
        return provider

    async with hold.worker(slots=1, poll=0.05):
        assert await (await review.submit(0)).result(timeout=PATIENCE) == "llm"
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
        assert await (await review.submit(0)).result(timeout=PATIENCE) == "llm"
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
            await (await review.submit()).result(timeout=PATIENCE)


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


async def test_an_operator_opens_a_provider_and_its_jobs_wait_until_it_is_resumed(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    await hold.providers.open("llm", actor="ann", reason="maintenance")

    async with hold.worker(slots=2, poll=0.05):
        [handle] = await submitted(job, 1)
        await held(hold, "llm", 1)
        status = await hold.providers.show("llm")
        assert (status.state, status.actor, status.reason) == ("forced open", "ann", "maintenance")
        assert await reasons(hold, await hold.read(handle.id)) == ["llm is forced open by ann: maintenance"]
        await hold.providers.resume("llm", actor="bob")
        assert await handle.result(timeout=PATIENCE) == 0

    kinds = [event.kind for event in await hold.providers.events("llm")]
    assert kinds == ["resumed", "ordered"]


async def test_a_paused_provider_has_no_backup_and_one_that_is_forced_open_has(hold: Holdfast) -> None:
    llm = hold.provider("llm", backup=hold.provider("llm-eu"))

    @hold.stage(provider=llm)
    async def ask() -> str | None:
        return current().provider

    @hold.job("review")
    async def review() -> str | None:
        return await ask()

    await hold.providers.pause("llm", actor="ann")
    async with hold.worker(slots=2, poll=0.05):
        handle = await review.submit()
        await held(hold, "llm", 1)
        await hold.providers.open("llm", actor="ann")
        assert await (await review.submit()).result(timeout=PATIENCE) == "llm-eu"
        assert await handle.result(timeout=PATIENCE) == "llm-eu"


async def test_an_observed_provider_is_called_whatever_its_breaker_would_do(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=1)
    await hold.providers.observe("llm", actor="ann")
    service.error = down()

    async with hold.worker(slots=1, poll=0.05):
        for handle in await submitted(job, 8):
            with pytest.raises(JobFailed):
                await handle.result(timeout=PATIENCE)

    assert len(service.calls) == 8
    assert "opened" in [event.kind for event in await hold.providers.events("llm")]


async def test_a_probe_sends_one_held_job_ahead_of_time(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=9)
    service.error = down()
    async with hold.worker(slots=2, poll=0.05):
        handles = await submitted(job, 6)
        await held(hold, "llm", 6)
        calls = len(service.calls)
        await hold.providers.probe("llm", actor="ann")
        await until(lambda: _tried(hold, 1))
        await held(hold, "llm", 6)
        assert len(service.calls) == calls + 1
        service.error = None
        await hold.providers.probe("llm", actor="ann")
        for handle in handles:
            await handle.result(timeout=PATIENCE)


async def test_orders_that_make_no_sense_are_refused(hold: Holdfast) -> None:
    hold.provider("llm")

    with pytest.raises(ConfigError, match="there is no provider 'lmm'; known are: llm"):
        await hold.providers.open("lmm", actor="ann")
    with pytest.raises(StateRefused, match="has no override to clear"):
        await hold.providers.resume("llm", actor="ann")
    with pytest.raises(StateRefused, match="nothing to probe"):
        await hold.providers.probe("llm", actor="ann")


async def test_plain_code_handles_providers_too(hold: Holdfast) -> None:
    hold.provider("llm")

    def operate() -> str:
        hold.providers.pause_sync("llm", actor="ann")
        state = hold.providers.show_sync("llm").state
        hold.providers.resume_sync("llm", actor="ann")
        return state

    assert await asyncio.to_thread(operate) == "paused"
    await asyncio.to_thread(hold.close_sync)


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
        ended = await hold.wait(late.id, timeout=PATIENCE)

    assert ended.failure is not None
    assert ended.failure.error_class is ErrorClass.TIMEOUT


async def test_a_worker_that_stops_gives_a_job_back_that_waits_for_its_turn(
    hold: Holdfast, service: Service
) -> None:
    job = declared(hold, service, hold.provider("llm", concurrency=1))
    service.gate.clear()

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


async def test_inline_jobs_ask_no_provider(hold: Holdfast, service: Service) -> None:
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=1)
    service.error = down()

    with inline(hold) as ended:
        for number in range(8):
            await job.submit(number)

    assert [job.status for job in ended] == [Status.FAILED] * 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "fast"}, "Not a rate"),
        ({"rate": "0/s"}, "Not a rate"),
        ({"concurrency": 0}, "lets no call through"),
        ({"retry_budget": 2.0}, "retry_budget=2.0 must be a fraction"),
        ({"timeout": "soon"}, "soon"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"rate": 60}, "rate must be text such as '60/min', not 60"),
        ({"rate": "60/10"}, "Not a rate: '60/10'"),
        ({"concurrency": "8"}, "a whole number, such as 8, not '8'"),
        ({"concurrency": True}, "a whole number, such as 8, not True"),
        ({"retry_budget": "0.2"}, "retry_budget='0.2' must be a fraction"),
        ({"breaker": {"window": 5}}, "breaker= takes a Breaker, .* and not a dict"),
        ({"breaker": False}, "breaker= takes a Breaker, .* and not a bool"),
        ({"backup": 5}, "backup= takes a provider or its name, and not 5"),
        ({"backup": "llm"}, "'llm' cannot be its own backup"),
        ({"key": "customer"}, "key= takes a function"),
        ({"concurrency_per_key": 2}, "need key="),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(sorted(value.items())),
)
def test_a_declaration_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    hold = Holdfast("sqlite:///never-opened.db")

    with pytest.raises(ConfigError, match=message):
        hold.provider("llm", **options)  # type: ignore[arg-type]  # that is what it is about


def test_a_provider_is_declared_once() -> None:
    hold = Holdfast("sqlite:///never-opened.db")
    hold.provider("llm")

    with pytest.raises(ConfigError, match="declared twice"):
        hold.provider("llm")


def test_a_stage_with_the_name_of_a_provider_is_told_what_to_give() -> None:
    hold = Holdfast("sqlite:///never-opened.db")
    hold.provider("llm")

    with pytest.raises(ConfigError, match="provider='llm' is not a provider; give what"):
        hold.stage(provider="llm")  # type: ignore[call-overload]  # that is what it is about


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


async def test_a_customer_without_a_key_is_nobody_elses_neighbour(hold: Holdfast) -> None:
    llm = hold.provider("llm", key=lambda a: a.customer, rate_per_key="1000/s")

    @hold.stage(provider=llm)
    async def ask(customer: int | None) -> None: ...

    @hold.job("review")
    async def review(customer: int | None) -> None:
        await ask(customer)

    async with llm.permit(key=7):
        pass
    async with hold.worker(slots=1, poll=0.05):
        await (await review.submit(7)).result(timeout=PATIENCE)
        with pytest.raises(JobFailed, match="Not a key: None"):
            await (await review.submit(None)).result(timeout=PATIENCE)


@pytest.mark.parametrize("actor", ["", None], ids=["empty", "none"])
async def test_nobody_can_lay_down_anything(hold: Holdfast, actor: str) -> None:
    hold.provider("llm")

    with pytest.raises(ConfigError, match="actor must not be empty"):
        await hold.providers.open("llm", actor=actor)


async def test_where_nothing_is_declared_an_unknown_provider_may_be_known_elsewhere(hold: Holdfast) -> None:
    with pytest.raises(ConfigError, match="known only where it is declared"):
        await hold.providers.show("mail")
