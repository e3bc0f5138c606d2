"""Virtual time for the tests of users: their own `Holdfast`, the real engine, and a worker that can die."""

import asyncio
import contextlib
import inspect
import random
import threading
import unittest
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Status
from holdfast.app.portal import Portal
from holdfast.errors import ConfigError, ResultTimeout
from holdfast.testing import Simulation, Stuck, simulated, simulation
from holdfast.testing.delegation import PASSED_ON

NOWHERE = "sqlite:////a/folder/that/does/not/exist/jobs.db"
"""A test that opened this database, and not that of a simulation, would fail."""

LEASE = timedelta(seconds=90)

hold = Holdfast(NOWHERE, attempts=3, backoff=Backoff.constant(300))
log: list[Any] = []
sims_to_kill: list[Simulation] = []


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    log.clear()
    sims_to_kill.clear()
    yield
    assert not {*PASSED_ON, "_submit_here"} & set(vars(hold)), "the object is as it was before"
    assert type(hold._portal) is Portal


@hold.job("greet", queue="mail")
async def greet(name: str) -> str:
    return f"hello {name}"


@hold.job("flaky")
async def flaky(failures: int) -> int:
    log.append("flaky")
    if len(log) <= failures:
        raise ConnectionError("no route")
    return len(log)


@hold.job("plain")
def plain(name: str) -> str:
    hold.sleep_sync("1d")
    return greet.options(key="once").submit_sync(name).result_sync()


@hold.job("spread", attempts=6, backoff=Backoff.full_jitter(initial=10, ceiling=300))
async def spread() -> None:
    log.append(asyncio.get_running_loop().time())
    raise ConnectionError("no route")


@hold.job("waiting", timeout="60s", attempts=1)
async def waiting_forever() -> None:
    await asyncio.Event().wait()


@hold.job("endless")
async def endless() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append("the end")


@hold.job("nested")
async def nested(name: str) -> str:
    return await (await greet.submit(name)).result()


@hold.stage()
async def charge(amount: int) -> str:
    log.append(("charge", amount))
    return f"paid {amount}"


@hold.stage()
async def ship(what: str) -> str:
    log.append(("ship", what))
    if sims_to_kill:
        try:
            await sims_to_kill.pop().kill_worker()
        finally:
            log.append("cleanup")
    return f"shipped, {what}"


@hold.job("order")
async def order(amount: int) -> str:
    return await ship(await charge(amount))


@hold.stage(attempts=3)
def add(one: int, two: int) -> int:
    log.append("add")
    if log.count("add") == 1:
        raise ConnectionError("no route")
    return one + two


@hold.job("sum")
def total(numbers: list[int]) -> int:
    result = 0
    for number in numbers:
        result = add(result, number)
    return result


stuck_in_thread = threading.Event()


@hold.job("blocking")
def blocking() -> str:
    log.append("blocking")
    if log.count("blocking") == 1:
        stuck_in_thread.wait()
    return "free"


@simulated(hold)
async def test_a_job_runs(sim: Simulation) -> None:
    job = await greet.submit("Ada")

    assert await job.result() == "hello Ada"


@simulated(hold)
async def test_a_failed_attempt_is_made_again_after_the_backoff(sim: Simulation) -> None:
    job = await flaky.submit(1)
    await sim.advance("4m59s")
    assert ((await job.read()).status, log) == (Status.QUEUED, ["flaky"])

    await sim.advance("1s")

    assert (await job.read()).status is Status.COMPLETED


@simulated(hold)
async def test_waiting_for_a_result_lets_time_pass(sim: Simulation) -> None:
    began = sim.now
    job = await flaky.submit(2)

    assert await job.result() == 3
    assert sim.now - began == timedelta(minutes=10)


@simulated(hold)
async def test_no_time_passes_while_nothing_waits_for_it(sim: Simulation) -> None:
    began = sim.now

    await (await order.submit(30)).result()

    assert sim.now == began


@simulated(hold)
async def test_advancing_by_nothing_lets_all_happen_that_can_happen_now(sim: Simulation) -> None:
    began = sim.now
    job = await greet.submit("Ada")

    await sim.advance(0)

    assert ((await job.read()).status, sim.now) == (Status.COMPLETED, began)


@simulated(hold)
async def test_a_delay_of_a_year_passes_in_no_time(sim: Simulation) -> None:
    began = sim.now
    job = await greet.options(delay="365d").submit("Ada")

    await job.result()

    assert sim.now - began == timedelta(days=365)


@simulated(hold)
async def test_a_year_with_nothing_in_it_passes_in_no_time(sim: Simulation) -> None:
    await (await greet.submit("Ada")).result()
    began = sim.now

    await sim.advance("365d")

    assert sim.now - began == timedelta(days=365)


@simulated(hold)
async def test_jobs_with_many_due_times_start_exactly_then(sim: Simulation) -> None:
    began = sim.now
    delays = [timedelta(seconds=seconds) for seconds in (1, 7, 59, 3_600, 86_400)]
    jobs = [await greet.options(delay=delay).submit("Ada") for delay in delays]

    for job in jobs:
        await job.result()

    started = [(await job.read()).started_at for job in jobs]
    assert [at - began for at in started if at is not None] == delays


@simulated(hold, start=datetime(2024, 2, 28, 23, tzinfo=UTC))
async def test_time_begins_where_the_test_says(sim: Simulation) -> None:
    await sim.advance("2h")

    assert sim.now == datetime(2024, 2, 29, 1, tzinfo=UTC)


@simulated(hold)
async def test_time_begins_at_the_present_for_code_that_asks_the_machine(sim: Simulation) -> None:
    job = await greet.options(run_at=datetime.now(UTC) + timedelta(hours=1)).submit("Ada")
    await sim.advance(0)
    assert (await job.read()).status is Status.QUEUED

    await sim.advance("61m")

    assert (await job.read()).status is Status.COMPLETED


@simulated(hold)
async def test_a_timeout_of_a_job_ends_it_in_virtual_time(sim: Simulation) -> None:
    began = sim.now
    job = await waiting_forever.submit()

    with pytest.raises(JobFailed) as caught:
        await job.result()

    assert caught.value.failure.error_class is ErrorClass.NETWORK_TIMEOUT
    assert sim.now - began == timedelta(seconds=60)


@simulated(hold)
async def test_a_timeout_of_the_test_ends_its_wait_in_virtual_time(sim: Simulation) -> None:
    job = await endless.submit()

    with pytest.raises(ResultTimeout):
        await job.result(timeout="1h")

    assert await job.cancel() is Status.PROCESSING
    await sim.advance(0)
    assert (await job.read()).status is Status.CANCELLED


@simulated(hold)
async def test_a_job_may_submit_another_and_wait_for_it(sim: Simulation) -> None:
    assert await (await nested.submit("Ada")).result() == "hello Ada"


@simulated(hold)
async def test_a_long_job_keeps_its_lease(sim: Simulation) -> None:
    job = await endless.submit()

    await sim.advance("1h")

    assert [event.kind for event in await job.events()] == ["queued", "processing"]


def delays_with(seed: int) -> list[float]:
    log.clear()

    @simulated(hold, seed=seed)
    async def fail_again_and_again() -> None:
        with pytest.raises(JobFailed):
            await (await spread.submit()).result()

    fail_again_and_again()
    return list(log)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_gives_the_same_delays(seed: int) -> None:
    assert delays_with(seed) == delays_with(seed)


def test_another_seed_gives_other_delays() -> None:
    assert len({tuple(delays_with(seed)) for seed in range(4)}) == 4


@simulated(hold)
async def test_each_simulation_begins_with_an_empty_database(sim: Simulation) -> None:
    assert await hold.find() == []
    await greet.submit("Ada")


@simulated(hold)
async def test_the_next_simulation_does_so_too(sim: Simulation) -> None:
    assert await hold.find() == []
    await greet.submit("Ada")


@simulated(hold)
async def test_plain_jobs_and_stages_run_in_threads(sim: Simulation) -> None:
    job = await total.submit([1, 2, 3])

    assert await job.result() == 6
    assert log == ["add"] * 4


@simulated(hold)
async def test_a_job_taken_over_goes_on_at_the_stage_where_its_worker_died(sim: Simulation) -> None:
    sims_to_kill.append(sim)
    began = sim.now
    job = await order.submit(30)

    assert await job.result() == "shipped, paid 30"

    assert log == [("charge", 30), ("ship", "paid 30"), ("ship", "paid 30")]
    assert timedelta(0) < sim.now - began - LEASE < timedelta(seconds=1)


@simulated(hold)
async def test_the_history_shows_the_lost_worker(sim: Simulation) -> None:
    job = await endless.submit()
    await sim.advance("10m")

    await sim.kill_worker()
    await sim.advance("2m")

    events = await job.events()
    workers = [event.meta["worker"] for event in events if event.kind == "processing"]
    assert [event.kind for event in events] == ["queued", "processing", "queued", "processing"]
    assert len(set(workers)) == 2


@simulated(hold)
async def test_a_killed_worker_runs_no_cleanup(sim: Simulation) -> None:
    await endless.submit()
    await sim.advance(0)

    await sim.kill_worker()
    await sim.advance("10m")

    assert log == []


@simulated(hold, lease="10s")
async def test_a_short_lease_is_taken_over_soon(sim: Simulation) -> None:
    sims_to_kill.append(sim)
    began = sim.now

    await (await order.submit(30)).result()

    assert timedelta(seconds=10) <= sim.now - began < timedelta(seconds=11)


@simulated(hold)
async def test_a_job_that_kills_every_worker_ends(sim: Simulation) -> None:
    sims_to_kill.extend([sim] * 5)
    job = await order.submit(30)

    with pytest.raises(JobFailed) as caught:
        await job.result()

    assert caught.value.failure.error_class is ErrorClass.WORKER_LOST
    assert log.count(("charge", 30)) == 1


@simulated(hold)
async def test_what_the_test_does_goes_on_when_the_worker_dies(sim: Simulation) -> None:
    slow = await flaky.submit(1)
    waiting = asyncio.create_task(slow.result())
    submitting = [asyncio.create_task(greet.submit(str(number))) for number in range(20)]
    await asyncio.sleep(0)

    await sim.kill_worker()

    jobs = await asyncio.gather(*submitting)
    assert await waiting == 2
    assert [await job.result() for job in jobs] == [f"hello {number}" for number in range(20)]


@pytest.mark.parametrize("moment", range(60))
def test_a_worker_may_die_at_any_step(moment: int) -> None:
    @simulated(hold)
    async def die_after_some_steps(sim: Simulation) -> None:
        jobs = [await nested.submit("Ada"), await order.submit(5), await total.submit([1])]
        for _ in range(moment):
            await asyncio.sleep(0)
        await sim.kill_worker()
        assert [await job.result() for job in jobs] == ["hello Ada", "shipped, paid 5", 1]

    die_after_some_steps()


@simulated(hold)
async def test_a_worker_may_die_while_a_thread_of_it_blocks(sim: Simulation) -> None:
    stuck_in_thread.clear()
    job = await blocking.submit()
    while not log:
        await asyncio.sleep(0)

    await sim.kill_worker()

    assert await job.result() == "free"
    stuck_in_thread.set()


@simulated(hold)
async def test_a_paused_worker_does_nothing_until_it_goes_on(sim: Simulation) -> None:
    await sim.pause_worker()
    job = await greet.submit("Ada")
    await sim.advance("1d")
    assert (await job.read()).status is Status.QUEUED

    await sim.resume_worker()

    assert await job.result() == "hello Ada"


@simulated(hold)
async def test_a_worker_that_comes_back_after_its_lease_can_write_nothing(sim: Simulation) -> None:
    job = await endless.submit()
    await sim.advance(0)
    await sim.pause_worker()

    async with hold.worker() as other:
        await sim.advance("3m")
        await sim.resume_worker()
        await sim.advance("3m")

        assert (await job.read()).leased_by == other.name
        assert log == ["the end"], "the worker that came back lost its lease, and stopped the job"
        await job.cancel()


@simulated(hold)
async def test_a_worker_of_the_test_stops_gracefully(sim: Simulation) -> None:
    await sim.pause_worker()
    async with hold.worker(slots=2, queues=["default"]) as worker:
        job = await order.submit(30)
        assert await job.result() == "shipped, paid 30"
        assert worker.options.slots == 2

    late = await order.submit(40)
    await sim.advance("1h")
    assert (await late.read()).status is Status.QUEUED


@simulated(hold)
async def test_an_application_may_open_and_close_it(sim: Simulation) -> None:
    for name in ("Ada", "Bob"):
        async with hold, hold.worker(queues=["mail"]):
            assert await (await greet.submit(name)).result() == f"hello {name}"

    assert len(await hold.find()) == 2


@simulated(hold)
async def test_a_submission_within_a_transaction_is_stored_at_once(sim: Simulation) -> None:
    job = await greet.options(within=object()).submit("Ada")

    assert await job.result() == "hello Ada"


@simulated(hold, queues=["default"], slots=1)
async def test_the_worker_is_as_the_test_configures_it(sim: Simulation) -> None:
    mail = await greet.submit("Ada")
    first, second = await endless.submit(), await endless.submit()

    await sim.advance("1h")

    assert [(await job.read()).status for job in (mail, first, second)] == ["queued", "processing", "queued"]


@simulated(hold)
async def test_other_arguments_come_from_fixtures(tmp_path: Path, sim: Simulation, capsys: Any) -> None:
    assert tmp_path.is_dir()
    assert sim.now


@pytest.mark.parametrize("name", ["Ada", "Bob"])
@simulated(hold)
async def test_parameters_are_passed_on(sim: Simulation, name: str) -> None:
    assert await (await greet.submit(name)).result() == f"hello {name}"


@simulated(hold)
async def test_a_test_need_not_ask_for_the_simulation() -> None:
    assert await (await greet.submit("Ada")).result() == "hello Ada"


class OrdersInUnittest(unittest.TestCase):
    def setUp(self) -> None:
        self.name = "Ada"

    @simulated(hold)
    async def test_a_method_of_a_test_case_can_be_simulated(self, sim: Simulation) -> None:
        await sim.advance("1h")
        assert await (await greet.submit(self.name)).result() == "hello Ada"


class OrdersInAsyncUnittest(unittest.IsolatedAsyncioTestCase):
    @simulated(hold)
    async def test_so_can_a_method_of_an_async_test_case(self, sim: Simulation) -> None:
        assert await (await greet.submit("Ada")).result() == "hello Ada"


def test_a_simulated_test_looks_plain_to_every_framework() -> None:
    @simulated(hold)
    async def test_it(sim: Simulation, tmp_path: Path) -> None:
        """Say what it is for."""

    assert not inspect.iscoroutinefunction(test_it)
    assert list(inspect.signature(test_it).parameters) == ["tmp_path"]
    assert (test_it.__name__, test_it.__doc__) == ("test_it", "Say what it is for.")


def test_without_the_decorator_a_coroutine_is_run_and_its_result_given() -> None:
    async def main() -> str:
        return await (await greet.submit("Ada")).result()

    with simulation(hold) as sim:
        assert sim.run(main()) == "hello Ada"
        before = sim.now
        sim.run(sim.advance("1h"))
        assert sim.now - before == timedelta(hours=1)


def test_what_a_test_raises_comes_out_and_the_object_is_as_before() -> None:
    before = dict(vars(hold))

    @simulated(hold)
    async def fails() -> None:
        await endless.submit()
        raise AssertionError("not as expected")

    with pytest.raises(AssertionError, match="not as expected"):
        fails()

    assert vars(hold) == before


def test_what_is_left_at_the_end_is_cancelled() -> None:
    @simulated(hold)
    async def leaves_things_behind(sim: Simulation) -> None:
        await endless.submit()
        await sim.advance(0)
        await sim.kill_worker()
        await sim.advance("2m")

    leaves_things_behind()

    assert log == ["the end", "the end"], "of the live worker and of the killed one"


def test_a_test_that_waits_for_a_queue_without_a_worker_gets_an_error() -> None:
    @simulated(hold, queues=["default"])
    async def waits(sim: Simulation) -> None:
        await (await greet.submit("Ada")).result()

    with pytest.raises(Stuck) as caught:
        waits()

    assert "The test waits in test_simulation.py, line" in str(caught.value)
    assert "Job 'greet' is in the queue 'mail'; perhaps no worker takes from it." in str(caught.value)


def test_a_test_that_waits_for_a_job_without_a_timeout_gets_an_error() -> None:
    @simulated(hold)
    async def waits(sim: Simulation) -> None:
        await (await endless.submit()).result()

    with pytest.raises(Stuck, match="Job 'endless' is running; perhaps it waits for something that never"):
        waits()


@simulated(hold)
async def test_a_job_that_waits_for_ever_blocks_no_other_job(sim: Simulation) -> None:
    await endless.submit()
    began = sim.now

    await (await greet.options(delay="3h").submit("Ada")).result()

    assert sim.now - began == timedelta(hours=3)


def test_a_worker_that_breaks_ends_the_test() -> None:
    class Logger:
        verbose = False

        def debug(self, event: str, **fields: Any) -> None:
            raise RuntimeError(f"cannot write {event!r}")

        info = warning = error = debug

    broken = Holdfast(NOWHERE, logger=Logger())

    @simulated(broken)
    async def waits(sim: Simulation) -> None:
        await sim.advance("1h")

    with pytest.raises(RuntimeError, match="cannot write 'worker started'"):
        waits()


def test_a_worker_that_cannot_be_is_refused_before_the_test() -> None:
    @simulated(hold, slots=0)
    async def never_begins() -> None:
        log.append("begun")

    with pytest.raises(ConfigError, match="slots=0"):
        never_begins()
    assert log == []


def test_a_beginning_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="time zone"), simulation(hold, start=datetime(2030, 1, 1)):
        log.append("begun")

    assert log == []


def test_only_async_tests_can_be_simulated() -> None:
    def plain(sim: Simulation) -> None: ...

    with pytest.raises(ConfigError, match="plain is no `async def`"):
        simulated(hold)(plain)  # type: ignore[arg-type]


async def test_a_simulation_inside_a_running_loop_is_refused() -> None:
    with pytest.raises(ConfigError, match="brings its own event loop"), simulation(hold):
        log.append("begun")

    assert log == []


def test_a_simulation_inside_another_is_refused() -> None:
    with simulation(hold), pytest.raises(ConfigError, match="already"), simulation(hold):
        log.append("begun")

    assert log == []


def test_a_simulation_in_another_thread_is_refused() -> None:
    finished: list[str] = []

    def other() -> None:
        with contextlib.suppress(ConfigError), simulation(hold):
            log.append("begun")
        finished.append("done")

    with simulation(hold) as sim:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        sim.run(sim.advance("1h"))

    assert (finished, log) == (["done"], [])


@simulated(hold)
async def test_a_call_from_another_thread_is_refused(sim: Simulation) -> None:
    def elsewhere() -> None:
        asyncio.run(greet.submit("Ada"))

    with pytest.raises(ConfigError, match="call it there, not from a thread or from another loop"):
        await asyncio.to_thread(elsewhere)


@simulated(hold)
async def test_a_blocking_verb_is_refused_on_the_loop_and_beside_it(sim: Simulation) -> None:
    job = await greet.submit("Ada")

    with pytest.raises(ConfigError, match="write `await submit"):
        greet.submit_sync("Ada")
    for verb in (job.read_sync, lambda: hold.read_sync(job.id), lambda: greet.submit_sync("Ada")):
        with pytest.raises(ConfigError, match="call it there, not from a thread or from another loop"):
            await asyncio.to_thread(verb)


@simulated(hold)
async def test_a_plain_job_uses_blocking_verbs_in_virtual_time(sim: Simulation) -> None:
    began = sim.now

    job = await plain.submit("Ada")

    assert await job.result() == "hello Ada"
    assert sim.now - began >= timedelta(days=1)


def test_everything_that_touches_the_store_is_passed_on() -> None:
    # What `providers`, `dead` and `publish` do is passed on: they ask for it by names that begin with an underscore.
    harmless = {"job", "stage", "every", "cron", "handle", "load_result", "on_ticket", "provider"}
    harmless |= {
        "providers",
        "dead",
        "broker",
        "message",
        "consumer",
        "dead_letter_queue",
        "publish",
        "queue",
    }
    named = {name for kind in Holdfast.__mro__ if kind is not object for name in vars(kind)}
    public = {name for name in named if not name.startswith("_") and not name.endswith("_sync")}

    assert public - harmless == {name for name in PASSED_ON if not name.startswith("_")}


def test_chance_outside_is_left_alone() -> None:
    random.seed(7)
    expected = random.Random(7).random()

    with simulation(hold) as sim:
        sim.run(sim.advance("1d"))

    assert random.random() == expected
