"""Recurring jobs in tests: what is due when time passes has run, in order, as often as it is due."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Holdfast, Status
from holdfast.errors import ConfigError
from holdfast.testing import Simulation, Stuck, inline, simulated, simulation

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=3, backoff=Backoff.constant(300))
ran: list[tuple[str, str]] = []
clock: list[Callable[[], datetime]] = []


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    ran.clear()
    yield
    clock.clear()


def note(name: str) -> None:
    ran.append((name, f"{clock[0]():%H:%M}" if clock else ""))


@hold.every("1h")
@hold.job("hourly")
async def hourly() -> None:
    note("hourly")


@hold.every("30m", missed="all")
@hold.job("half-hourly", queue="often")
async def half_hourly() -> None:
    note("half-hourly")


@hold.cron("0 14 * * *", missed="skip")
@hold.job("at two")
def at_two() -> None:
    note("at two")


@hold.job("flaky")
async def flaky() -> str:
    if not any(name == "flaky" for name, _ in ran):
        note("flaky")
        raise ConnectionError("no route")
    return "through"


@hold.job("sleeper", queue="slow")
async def sleeper() -> None:
    await hold.sleep("2h")
    note("sleeper")


@simulated(hold, start=NOON)
async def test_each_tick_runs_at_its_time_when_time_advances(sim: Simulation) -> None:
    clock.append(lambda: sim.now)

    await sim.advance("59m59s")
    assert ran == [("half-hourly", "12:30")]

    await sim.advance("1s")
    assert sorted(ran[1:]) == [("half-hourly", "13:00"), ("hourly", "13:00")]

    ran.clear()
    await sim.advance("1h")
    assert [(ran[0]), *sorted(ran[1:])] == [
        ("half-hourly", "13:30"),
        ("at two", "14:00"),
        ("half-hourly", "14:00"),
        ("hourly", "14:00"),
    ]


@simulated(hold, start=NOON)
async def test_a_day_has_as_many_ticks_as_in_production(sim: Simulation) -> None:
    await sim.advance("1d")

    assert [ran.count((name, "")) for name in ("half-hourly", "hourly", "at two")] == [48, 24, 1]


@simulated(hold, start=NOON)
async def test_several_workers_run_each_tick_once(sim: Simulation) -> None:
    async with hold.worker(), hold.worker():
        await sim.advance("2h")

    assert [ran.count((name, "")) for name in ("half-hourly", "hourly")] == [4, 2]


@simulated(hold, start=NOON)
async def test_missed_ticks_are_run_or_skipped_as_each_schedule_says(sim: Simulation) -> None:
    clock.append(lambda: sim.now)
    await sim.advance(0)
    await sim.pause_worker()
    await sim.advance("3h10m")
    assert ran == []

    await sim.resume_worker()
    await sim.advance(0)

    assert sorted(ran) == [("half-hourly", "15:10")] * 6 + [("hourly", "15:10")]


@simulated(hold, start=NOON)
async def test_a_worker_that_takes_over_from_a_dead_one_goes_on_with_the_schedules(sim: Simulation) -> None:
    await sim.advance("1h")

    await sim.kill_worker()
    await sim.advance("1h")

    assert ran.count(("hourly", "")) == 2


@simulated(hold, start=NOON)
async def test_a_long_wait_of_a_job_lets_ticks_pass(sim: Simulation) -> None:
    await (await sleeper.submit()).result()

    assert ran.count(("hourly", "")) == 2


@simulated(hold, start=NOON)
async def test_ticks_before_a_job_that_is_due_are_no_standstill(sim: Simulation) -> None:
    await (await flaky.options(delay="4d").submit()).result()

    assert (sim.now - NOON, ran.count(("half-hourly", ""))) == (timedelta(days=4, minutes=5), 192)


def test_a_test_that_waits_for_what_no_recurring_job_brings_is_stuck() -> None:
    async def main() -> None:
        await hold.wait((await flaky.options(queue="without a worker").submit()).id)

    with (
        simulation(hold, queues=["default", "often"], start=NOON) as sim,
        pytest.raises(Stuck, match="recurring jobs, which have run 100 times"),
    ):
        sim.run(main())


async def test_inline_what_is_due_in_the_time_that_is_skipped_runs_in_order() -> None:
    with inline(hold, start=NOON + timedelta(minutes=10)) as ended:
        clock.append(hold.runtime.clock.now)
        job = await sleeper.submit()

    names = [job.name for job in ended]
    assert (names[0], names[-1]) == ("half-hourly", "sleeper")
    assert names.count("half-hourly") == 4  # 12:30, 13:00, 13:30, 14:00
    assert (names.count("hourly"), names.count("at two")) == (2, 1)
    assert {one.status for one in ended} == {Status.COMPLETED}
    assert job.id == ended[-1].id


async def test_inline_the_wait_for_a_retry_lets_ticks_pass() -> None:
    with inline(hold, start=NOON + timedelta(minutes=28)) as ended:
        await flaky.submit()

    assert [job.name for job in ended] == ["half-hourly", "flaky"]


async def test_inline_without_a_wait_nothing_recurs() -> None:
    with inline(hold) as ended:
        await hourly.submit()

    assert [job.name for job in ended] == ["hourly"]


def test_inline_begins_at_an_instant_with_a_time_zone() -> None:
    with (
        pytest.raises(ConfigError, match="start must have a time zone"),
        inline(hold, start=datetime(2030, 1, 1)),
    ):
        pass
