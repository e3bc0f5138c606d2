"""Jobs of a queue with a transport are dispatched to its fleet, and run there as in a worker of Holdfast's own."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, Retryable, Status, current
from holdfast.engine.fleets.fleet_runner import RunOutcome
from holdfast.errors import ConfigError, JobFailed, StoreUnavailable
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.types import EventKind
from tests.contract.conftest import Database
from tests.contract.steps import LEASE, TIMEOUT, eventually
from tests.memory_fleet import MemoryFleet

AT_ONCE = Backoff(initial=0.001)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds in this process."""
    async with asyncio.timeout(TIMEOUT):
        while not holds():
            await asyncio.sleep(0.005)


async def double(n: int) -> int:
    return 2 * n


@pytest.fixture
def fleet(hold: Holdfast) -> MemoryFleet:
    made = MemoryFleet()
    hold.queue("grading", transport=made)
    return made


async def test_a_job_of_a_fleets_queue_is_dispatched_and_run_by_the_fleet(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    job = hold.job("double", queue="grading")(double)

    async with hold.worker(poll=0.05), fleet.running(hold):
        handles = [await job.submit(n) for n in range(20)]
        assert [await handle.result(timeout=TIMEOUT) for handle in handles] == [2 * n for n in range(20)]

    assert set(fleet.sent) == {handle.id for handle in handles}


async def test_a_worker_dispatches_and_does_not_run_the_jobs_of_a_fleets_queue(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    handle = await hold.job("double", queue="grading")(double).submit(1)
    other = await hold.job("own")(double).submit(4)

    async with hold.worker(poll=0.05, queues=["default", "grading"]):
        assert await other.result(timeout=TIMEOUT) == 8
        await until(lambda: bool(fleet.sent))

    assert (await handle.read()).status is Status.QUEUED


async def test_no_more_than_twice_the_slots_of_a_fleet_are_dispatched_at_a_time(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    job = hold.job("double", queue="grading")(double)
    await job.submit_many([(n,) for n in range(20)])
    last = await job.options(priority=9).submit(20)

    async with hold.worker(poll=0.02):
        await until(lambda: len(fleet.sent) == 2 * fleet.slots)
        await asyncio.sleep(0.2)

    assert len(fleet.sent) == 2 * fleet.slots
    assert last.id in fleet.sent


async def test_an_unavailable_broker_delays_dispatches_and_loses_none(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    job = hold.job("double", queue="grading")(double)
    fleet.unavailable = True

    async with hold.worker(poll=0.05), fleet.running(hold):
        handle = await job.submit(21)
        await until(lambda: fleet.tries > 1)
        fleet.unavailable = False

        assert await handle.result(timeout=TIMEOUT) == 42


async def test_a_dispatch_that_the_broker_does_not_confirm_is_sent_again(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    handle = await hold.job("double", queue="grading")(double).submit(21)
    fleet.refused = frozenset([handle.id])

    async with hold.worker(poll=0.02), fleet.running(hold):
        await until(lambda: fleet.tries > 1)
        fleet.refused = frozenset()

        assert await handle.result(timeout=TIMEOUT) == 42


async def test_a_dispatch_that_got_lost_is_sent_again(hold: Holdfast) -> None:
    fleet = MemoryFleet(resend=timedelta(seconds=0.2))
    hold.queue("grading", transport=fleet)
    handle = await hold.job("double", queue="grading")(double).submit(21)

    async with hold.worker(poll=0.02):
        await until(lambda: bool(fleet.sent))
        fleet.dispatches.clear()
        async with fleet.running(hold):
            assert await handle.result(timeout=TIMEOUT) == 42

    assert len(fleet.sent) > 1


@pytest.mark.clause("OBS-2")
async def test_dispatches_are_counted(database: Database) -> None:
    metrics = MetricRegistry()
    fleet = MemoryFleet(resend=timedelta(seconds=0.2))
    async with Holdfast(database.url, metrics=metrics) as hold:
        hold.queue("grading", transport=fleet)
        handle = await hold.job("double", queue="grading")(double).submit(21)
        async with hold.worker(poll=0.02):
            await until(lambda: metrics.value("dispatches_resent") > 0)
        async with fleet.runner(hold) as runner:
            await runner.run(handle.id)
            await runner.run(handle.id)

    assert metrics.value("dispatches_sent") == len(fleet.sent) > 1
    assert metrics.value("dispatches_skipped") == 1


@pytest.mark.clause("JOB-3")
async def test_a_dispatch_that_arrives_twice_or_late_runs_its_job_once(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    calls: list[int] = []

    @hold.job("noted", queue="grading")
    async def noted(n: int) -> int:
        calls.append(n)
        await asyncio.sleep(0.01)
        return n

    handle = await noted.submit(1)
    async with fleet.runner(hold) as runner:
        both = await asyncio.gather(runner.run(handle.id), runner.run(handle.id))
        late = await runner.run(handle.id)

    assert sorted(ran.outcome for ran in both) == [RunOutcome.COMPLETED, RunOutcome.SKIPPED]
    assert late.outcome is RunOutcome.SKIPPED
    assert calls == [1]


@pytest.mark.clause("JOB-3")
async def test_two_dispatches_of_a_job_that_are_claimed_together_run_it_once(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    job = hold.job("double", queue="grading")(double)
    first, second = await job.submit(1), await job.submit(2)

    async with fleet.runner(hold) as runner:  # while the first is claimed, the two others wait for one claim
        ran = await asyncio.gather(*map(runner.run, (first.id, second.id, second.id)))

    assert sorted(each.outcome for each in ran) == ["completed", "completed", "skipped"]


async def test_a_claim_of_a_fleet_whose_answer_is_lost_costs_no_attempt(
    hold: Holdfast, fleet: MemoryFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await hold.job("double", queue="grading", attempts=1)(double).submit(21)
    dispatches = hold.runtime.store.dispatches
    claim = dispatches.claim

    async def lose_the_answer(*args: Any, **kwargs: Any) -> Any:
        await claim(*args, **kwargs)
        raise StoreUnavailable("the answer was lost")

    async with fleet.runner(hold) as runner:
        monkeypatch.setattr(dispatches, "claim", lose_the_answer)
        with pytest.raises(StoreUnavailable):
            await runner.run(handle.id)
        monkeypatch.undo()
        await eventually(handle.read, lambda job: job.status is Status.QUEUED)
        ran = await runner.run(handle.id)

    assert (ran.outcome, (await handle.read()).attempt) == (RunOutcome.COMPLETED, 1)


async def test_what_a_dispatch_led_to_is_known_once_it_is_written(hold: Holdfast, fleet: MemoryFleet) -> None:
    @hold.job("fails", queue="grading", attempts=1)
    async def fails() -> None:
        raise ValueError("wrong")

    @hold.job("retried", queue="grading", attempts=3, backoff=AT_ONCE)
    async def retried() -> int:
        if current().attempt < 2:
            raise Retryable("later")
        return 7

    failing, trying = await fails.submit(), await retried.submit()
    async with fleet.runner(hold) as runner:
        failed, requeued = await runner.run(failing.id), await runner.run(trying.id)

    assert (failed.outcome, failed.failure is not None) == (RunOutcome.FAILED, True)
    assert (await failing.read()).status is Status.FAILED
    assert (requeued.outcome, (await trying.read()).status) == (RunOutcome.REQUEUED, Status.QUEUED)


@pytest.mark.parametrize("started", [True, False], ids=["running", "before it has started"])
async def test_an_attempt_that_reaches_the_time_limit_of_its_worker_fails_and_is_retried(
    hold: Holdfast, fleet: MemoryFleet, *, started: bool
) -> None:
    begun = asyncio.Event()

    @hold.job("endless", queue="grading", attempts=2, backoff=AT_ONCE)
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    handle = await endless.submit()
    async with fleet.runner(hold) as runner:
        running = asyncio.create_task(runner.run(handle.id))
        if started:
            await begun.wait()
        runner.reached_time_limit(handle.id)
        ran = await running

    [failed] = [event for event in await handle.events() if event.kind is EventKind.RETRY]
    assert ran.outcome is RunOutcome.REQUEUED
    assert failed.meta["error_class"] == "NETWORK_TIMEOUT"


@pytest.mark.clause("RET-4")
async def test_a_job_that_fails_in_a_fleet_is_retried_there_and_its_finished_stages_are_kept(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    done: list[str] = []

    @hold.stage("first")
    async def first() -> int:
        done.append("first")
        return 1

    @hold.job("staged", queue="grading", attempts=3, backoff=AT_ONCE)
    async def staged() -> int:
        value = await first()
        done.append("job")
        if len(done) < 4:
            raise Retryable("not yet")
        return value

    async with hold.worker(poll=0.02), fleet.running(hold):
        handle = await staged.submit()
        assert await handle.result(timeout=TIMEOUT) == 1

    assert done == ["first", "job", "job", "job"]


@pytest.mark.clause("JOB-10")
async def test_the_job_of_a_dead_process_of_the_same_machine_is_run_again_at_once(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    handle = await hold.job("double", queue="grading")(double).submit(21)
    store = hold.runtime.store
    [claim] = await store.dispatches.claim("dead", [handle.id], lease=LEASE)

    async with fleet.runner(hold, dead=["dead"]) as runner:
        ran = await runner.run(handle.id)

    assert (ran.outcome, ran.result) == (RunOutcome.COMPLETED, "42")
    assert (await handle.read()).lease_token > claim.token


async def test_the_job_of_a_process_that_lives_is_left_to_it(hold: Holdfast, fleet: MemoryFleet) -> None:
    handle = await hold.job("double", queue="grading")(double).submit(21)
    await hold.runtime.store.dispatches.claim("alive", [handle.id], lease=LEASE)

    async with fleet.runner(hold, dead=["dead"]) as runner:
        ran = await runner.run(handle.id)

    assert ran.outcome is RunOutcome.SKIPPED
    assert (await handle.read()).leased_by == "alive"


@pytest.mark.clause("JOB-7")
async def test_a_job_in_a_fleet_is_cancelled(hold: Holdfast, fleet: MemoryFleet) -> None:
    started = asyncio.Event()

    @hold.job("endless", queue="grading")
    async def endless() -> None:
        started.set()
        await asyncio.sleep(TIMEOUT)

    handle = await endless.submit()
    async with fleet.runner(hold) as runner:
        running = asyncio.create_task(runner.run(handle.id))
        await started.wait()
        await handle.cancel()
        ran = await running

    assert (ran.outcome, (await handle.read()).status) == (RunOutcome.CANCELLED, Status.CANCELLED)


@pytest.mark.clause("JOB-6")
async def test_a_job_that_runs_longer_than_its_lease_keeps_it(hold: Holdfast, fleet: MemoryFleet) -> None:
    lease = timedelta(seconds=3)

    @hold.job("long", queue="grading")
    async def long() -> str:
        await asyncio.sleep(1.5 * lease.total_seconds())
        return "done"

    handle = await long.submit()
    async with hold.worker(poll=0.02), fleet.runner(hold, lease=lease) as runner:
        ran = await runner.run(handle.id)

    assert ran.outcome is RunOutcome.COMPLETED
    assert (await handle.read()).losses == 0


async def test_a_runner_that_is_shut_down_releases_its_job_with_its_attempt(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    started = asyncio.Event()

    @hold.job("endless", queue="grading")
    async def endless() -> None:
        started.set()
        await asyncio.sleep(TIMEOUT)

    handle = await endless.submit()
    async with fleet.runner(hold) as runner:
        running = asyncio.create_task(runner.run(handle.id))
        await started.wait()
        await runner.shut_down(at_once=True)
        ran = await running

    job = await handle.read()
    assert (ran.outcome, job.status, job.attempt) == (RunOutcome.REQUEUED, Status.QUEUED, 0)


@pytest.mark.clause("BRK-2")
async def test_a_job_whose_provider_refuses_calls_is_held_in_a_fleet_and_costs_no_attempt(
    hold: Holdfast, fleet: MemoryFleet
) -> None:
    model = hold.provider("model")
    calls: list[int] = []

    @hold.stage("ask", provider=model)
    async def ask() -> int:
        calls.append(1)
        return 1

    @hold.job("asks", queue="grading", attempts=1)
    async def asks() -> int:
        return await ask()

    await hold.providers.pause("model", actor="ann", reason="deploy")
    async with hold.worker(poll=0.02), fleet.running(hold):
        handle = await asks.submit()
        await until(lambda: handle.id in fleet.sent)

        job = await eventually(handle.read, lambda job: job.held_by is not None)
        assert job.attempt == 0
        await hold.providers.resume("model", actor="ann", reason="done")
        assert await handle.result(timeout=TIMEOUT) == 1

    assert calls == [1]


async def test_a_queue_with_two_transports_is_refused(hold: Holdfast, fleet: MemoryFleet) -> None:
    with pytest.raises(ConfigError, match="declared twice"):
        hold.queue("grading", transport=MemoryFleet())


async def test_a_failed_job_of_a_fleet_raises_in_its_waiter(hold: Holdfast, fleet: MemoryFleet) -> None:
    @hold.job("fails", queue="grading", attempts=1)
    async def fails() -> None:
        raise ValueError("wrong")

    async with hold.worker(poll=0.02), fleet.running(hold):
        handle = await fails.submit()
        with pytest.raises(JobFailed):
            await handle.result(timeout=TIMEOUT)
