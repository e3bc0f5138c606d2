"""Recurring jobs are submitted once for each tick, over all workers; queues can be paused."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, JobFilter, Status
from holdfast.errors import ConfigError
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import TIMEOUT, eventually

MINUTE = timedelta(minutes=1)


async def test_a_schedule_begins_when_it_is_first_declared(store: Store, clock: DatabaseClock) -> None:
    now, none = await store.schedules.last_ticks(["hourly"])
    await store.schedules.begin(["hourly"])
    _, last_ticks = await store.schedules.last_ticks(["hourly"])
    await clock.advance(MINUTE)
    await store.schedules.begin(["hourly", "daily"])

    later, both = await store.schedules.last_ticks(["hourly", "daily"])

    assert none == {}
    assert abs(last_ticks["hourly"] - now) < timedelta(seconds=5)
    assert both["hourly"] == last_ticks["hourly"]
    assert both["daily"] - both["hourly"] >= MINUTE
    assert later - now >= MINUTE


async def test_a_store_gives_the_time_that_it_decides_by(store: Store, clock: DatabaseClock) -> None:
    before, (asked, _) = await store.now(), await store.schedules.last_ticks([])
    await clock.advance(MINUTE)

    after = await store.now()

    assert before <= asked
    assert after - before >= MINUTE


async def test_of_many_workers_that_see_a_tick_one_submits_it(store: Store, other_store: Store) -> None:
    await store.schedules.begin(["hourly"])
    _, last_ticks = await store.schedules.last_ticks(["hourly"])
    old = last_ticks["hourly"]

    moved = await asyncio.gather(
        *[
            each.schedules.advance("hourly", old, old + MINUTE, [a_job(name="tick")])
            for each in (store, other_store) * 5
        ]
    )

    assert sorted(moved) == [False] * 9 + [True]
    assert len(await store.find(JobFilter(name="tick"))) == 1
    assert (await store.schedules.last_ticks(["hourly"]))[1]["hourly"] == old + MINUTE


async def test_a_recurring_job_runs_without_a_submission(hold: Holdfast) -> None:
    ran = asyncio.Event()

    @hold.every("1s")
    @hold.job("beat")
    async def beat() -> None:
        ran.set()

    async with hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
        await ran.wait()


async def test_a_recurring_job_gets_the_arguments_of_its_schedule(hold: Holdfast) -> None:
    got: list[tuple[str, int]] = []
    both = asyncio.Event()

    async def collect(table: str, days: int = 1) -> None:
        got.append((table, days))
        if len(set(got)) == 2:
            both.set()

    job = hold.job("collect")(collect)
    hold.every("1s", args=("orders",), name="orders")(job)
    hold.cron("* * * * * *", kwargs={"table": "mails", "days": 7}, name="mails")(job)

    async with hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
        await both.wait()

    assert set(got) == {("orders", 1), ("mails", 7)}


async def test_arguments_that_the_function_does_not_accept_are_refused_with_the_schedule(
    hold: Holdfast,
) -> None:
    @hold.job("collect")
    async def collect(table: str, days: int = 1) -> None: ...

    for schedule, why in [
        (hold.every("1h", args=("orders", "soon")), "argument days"),
        (hold.every("1h", args=("orders", 1, 2)), "too many positional arguments"),
        (hold.cron("0 9 * * *", kwargs={"day": 1}), "missing a required argument: 'table'"),
    ]:
        with pytest.raises(ConfigError, match=why):
            schedule(collect)
    with pytest.raises(ConfigError, match="must be a tuple"):
        hold.every("1h", args="orders")
    assert hold._registry.recurring == []


async def test_a_schedule_that_cannot_be_kept_is_refused(hold: Holdfast) -> None:
    @hold.job("greet")
    async def greet(name: str) -> None: ...

    @hold.job("beat")
    async def beat() -> None: ...

    with pytest.raises(ConfigError, match="too often"):
        hold.every("10ms")
    with pytest.raises(ConfigError, match="Not a duration: 'now and then'"):
        hold.every("now and then")
    with pytest.raises(ConfigError, match="no cron expression"):
        hold.cron("every morning")
    with pytest.raises(ConfigError, match="no time zone"):
        hold.cron("0 9 * * *", tz="Middle/Earth")
    with pytest.raises(ConfigError, match="missed="):
        hold.every("1h", missed="never")  # type: ignore[call-overload]
    with pytest.raises(Exception, match="name"):
        hold.every("1h")(greet)  # type: ignore[arg-type]
    hold.every("1h")(beat)
    with pytest.raises(ConfigError, match="declared twice"):
        hold.every("2h")(beat)


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(hold: Holdfast) -> None:
    @hold.job("greet", queue="letters")
    async def greet() -> str:
        return "hello"

    @hold.job("other")
    async def other() -> None: ...

    assert await hold.queues.pause("letters", actor="ada", reason="the printer is on fire")
    assert not await hold.queues.pause("letters", actor="bob")
    job = await greet.submit()
    async with hold.worker(queues=["letters", "default"], poll=0.05):
        await (await other.submit()).result(timeout=TIMEOUT)
        assert (await job.read()).status is Status.QUEUED
        [pause] = await hold.runtime.store.queues.paused()
        assert (pause.queue, pause.actor, pause.reason) == ("letters", "ada", "the printer is on fire")

        assert await hold.queues.resume("letters", actor="ada")

        assert await job.result(timeout=TIMEOUT) == "hello"
    assert not await hold.queues.resume("letters", actor="ada")


async def test_with_weights_every_queue_is_served(hold: Holdfast) -> None:
    @hold.job("greet")
    async def greet() -> None: ...

    jobs = [await greet.options(queue=queue).submit() for queue in ("a", "b") * 10]
    async with hold.worker(slots=1, queues={"a": 9, "b": 1}, poll=0.05):
        for job in jobs:
            await job.result(timeout=TIMEOUT)

    with pytest.raises(ConfigError, match="weight"):
        async with hold.worker(queues={"a": 0}):
            pass


async def test_a_renamed_job_runs_what_was_stored_under_its_old_name(hold: Holdfast, store: Store) -> None:
    [job_id] = [receipt.id for receipt in await store.submit([a_job(name="old name")])]  # type: ignore[union-attr]

    @hold.job("new name", aliases=["old name"])
    async def renamed() -> str:
        return "found"

    async with hold.worker(poll=0.05):
        job = hold.handle(job_id, "new name")
        assert await job.result(timeout=TIMEOUT) == "found"
    await eventually(job.read, lambda found: found.name == "old name")
