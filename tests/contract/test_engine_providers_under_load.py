"""Providers with more jobs than they can take, calls side by side, and databases that were put back."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable

import asyncpg
import pytest

from holdfast import Holdfast, JobFailed, JobFunction, JobHandle, Status
from holdfast.errors import ConfigError
from holdfast.types import EventKind, Provider
from tests.contract.conftest import Database, SqliteFile
from tests.contract.services import Service, declared, held, limited, submitted, until
from tests.contract.steps import TIMEOUT


async def when(holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await until(look)


async def most_held(hold: Holdfast, name: str, least: int) -> None:
    """Wait until at least *least* jobs are held for a provider: now and then one is released as a trial."""

    async def look() -> bool:
        return (await hold.providers.show(name)).held >= least

    await until(look)


async def results(*handles: JobHandle[int]) -> list[int]:
    return [await handle.result(timeout=TIMEOUT) for handle in handles]


async def holds_of(hold: Holdfast, handle: JobHandle[int]) -> int:
    """How often a job was held."""
    return sum(event.kind is EventKind.HELD for event in await hold.events(handle.id))


class Crowd:
    """Jobs that never end: for each that is done another is submitted, until the test stops it."""

    def __init__(self, hold: Holdfast, llm: Provider, *, queue: str = "default") -> None:
        self.over = False
        self.calls = 0

        @hold.stage(f"{queue}-ask", provider=llm)
        async def ask() -> None:
            self.calls += 1
            await asyncio.sleep(0.01)  # a call takes its time; no assertion relies on that

        @hold.job(f"{queue}-crowd", queue=queue)
        async def one_of_many() -> None:
            await ask()
            if not self.over:
                await one_of_many.submit()

        self.job: JobFunction[[], None] = one_of_many


@pytest.mark.clause("BRK-6")
async def test_a_worker_that_comes_later_gets_its_part_of_the_places_though_another_never_stops(
    hold: Holdfast,
) -> None:
    llm = hold.provider("llm", concurrency=4)
    busy = Crowd(hold, llm, queue="a")
    small = declared(hold, Service(), llm)
    async with hold.worker(slots=12, queues=["a"], poll=0.05):
        for _ in range(24):
            await busy.job.submit()
        await when(lambda: busy.calls > 24)

        async with hold.worker(slots=4, poll=0.05):
            assert await results(*await submitted(small, 8)) == list(range(8))

        busy.over = True


@pytest.mark.clause("BRK-6")
async def test_jobs_that_were_held_for_a_limit_are_done_although_newcomers_never_stop(
    hold: Holdfast, service: Service
) -> None:
    llm = hold.provider("llm", concurrency=2)
    old = declared(hold, service, llm)
    newcomers = Crowd(hold, llm)
    service.answering.clear()
    async with hold.worker(slots=16, poll=0.05):
        handles = await submitted(old, 8)
        await most_held(hold, "llm", 4)
        for _ in range(32):
            await newcomers.job.submit()
        service.answering.set()

        assert await results(*handles) == list(range(8))
        newcomers.over = True


async def put_back(database: Database, version: int) -> None:
    """Put the row of a provider back, or away: as after a restored backup, or after a manual cleanup."""
    change = f"UPDATE {{}} SET version = {version}" if version else "DELETE FROM {}"
    if isinstance(database, SqliteFile):
        with sqlite3.connect(database.path) as connection:
            connection.execute(change.format("holdfast_providers"))
        connection.close()
    else:
        server = await asyncpg.connect(database.url)
        await server.execute(change.format("holdfast.providers"))
        await server.close()


@pytest.mark.clause("BRK-4")
@pytest.mark.parametrize("version", [0, 1], ids=["gone", "earlier"])
async def test_jobs_go_on_when_the_providers_row_was_put_back(
    hold: Holdfast, service: Service, database: Database, version: int
) -> None:
    job = declared(hold, service, hold.provider("llm"))

    async def was_written_often() -> bool:
        await results(await job.submit(0))
        _, rows = await hold.runtime.store.providers.read(["llm"])
        return "llm" in rows and rows["llm"].version >= 4

    async with hold.worker(slots=4, poll=0.05):
        await until(was_written_often)

        await put_back(database, version)

        assert await results(*await submitted(job, 3)) == list(range(3))


@pytest.mark.clause("BRK-6")
async def test_jobs_that_wait_for_a_backups_limit_are_held_for_that_and_not_again_and_again(
    hold: Holdfast, service: Service
) -> None:
    backup = hold.provider("llm-eu", concurrency=1)
    job = declared(hold, service, hold.provider("llm", backup=backup))
    await hold.providers.open("llm", actor="ann")
    service.answering.clear()

    async with hold.worker(slots=8, poll=0.05):
        handles = await submitted(job, 8)
        await most_held(hold, "llm-eu", 5)
        service.answering.set()
        await results(*handles)

    assert service.most_at_once == 1
    assert max([await holds_of(hold, handle) for handle in handles]) <= 4


@pytest.mark.clause("BRK-6")
async def test_a_backups_rate_that_is_used_up_holds_each_job_once(hold: Holdfast, service: Service) -> None:
    backup = hold.provider("llm-eu", rate="1/h")
    job = declared(hold, service, hold.provider("llm", backup=backup))
    await hold.providers.open("llm", actor="ann")

    async with hold.worker(slots=4, poll=0.05):
        first, *rest = await submitted(job, 10)
        await held(hold, "llm-eu", 9)

    assert len(service.calls) == 1
    counts = [await holds_of(hold, handle) for handle in [first, *rest]]
    assert sorted(counts) == [0] + [1] * 9


@pytest.mark.clause("BRK-3")
async def test_of_two_calls_side_by_side_one_is_the_trial_and_the_job_completes(hold: Holdfast) -> None:
    llm = hold.provider("llm")
    errors = [limited(0.1)]

    async def ask() -> None:
        async with llm.permit():
            await asyncio.sleep(0.1)  # a trial that takes its time can be stopped in the middle
            if errors:
                raise errors.pop()

    @hold.job("review", attempts=3)
    async def review() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            group.create_task(ask())
        return "done"

    async with hold.worker(slots=1, poll=0.05):
        assert await (await review.submit()).result(timeout=TIMEOUT) == "done"


async def test_a_permit_inside_a_stage_of_the_same_provider_is_the_stages_own(hold: Holdfast) -> None:
    llm = hold.provider("llm", concurrency=1)

    @hold.stage(provider=llm)
    async def ask() -> str:
        async with llm.permit() as provider:
            return provider

    @hold.job("review")
    async def review() -> str:
        return await ask()

    async with hold.worker(slots=2, poll=0.05):
        assert await (await review.submit()).result(timeout=TIMEOUT) == "llm"

    assert (await hold.providers.show("llm")).calls == 1


@pytest.mark.parametrize("wait", ["sleep", "wait_for"])
async def test_a_job_that_waits_inside_a_permits_block_is_refused_at_once(hold: Holdfast, wait: str) -> None:
    llm = hold.provider("llm")
    runs: list[str] = []

    @hold.job("review", attempts=3)
    async def review() -> None:
        runs.append(wait)
        async with llm.permit():
            await (hold.sleep("1h") if wait == "sleep" else hold.wait_for("approved"))

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed, match="not inside a stage or a permit's block") as caught:
            await (await review.submit()).result(timeout=TIMEOUT)

    assert caught.value.failure is not None
    assert not caught.value.failure.retryable
    assert len(runs) == 1
    assert (await hold.providers.show("llm")).failed == 0


async def test_in_a_permits_block_the_result_of_another_job_can_be_awaited(hold: Holdfast) -> None:
    llm = hold.provider("llm")

    @hold.job("child")
    async def child() -> int:
        return 7

    @hold.job("parent")
    async def parent() -> int:
        async with llm.permit():
            return await (await child.submit()).result()

    async with hold.worker(slots=2, poll=0.05):
        assert await results(await parent.submit()) == [7]


@pytest.mark.clause("JOB-11")
async def test_a_plain_function_that_is_cancelled_while_it_waits_for_a_permit_makes_no_call(
    hold: Holdfast,
) -> None:
    llm = hold.provider("llm", concurrency=1)
    begun, called, ended = list[int](), list[int](), list[int]()
    release = threading.Event()

    @hold.job("review")
    def review(number: int) -> int:
        begun.append(number)
        try:
            with llm.permit():
                called.append(number)
                release.wait(TIMEOUT)
        finally:
            ended.append(number)
        return number

    async with hold.worker(slots=2, poll=0.05):
        first = await review.submit(1)
        await when(lambda: called == [1])
        second = await review.submit(2)
        await when(lambda: 2 in begun)
        await hold.cancel(second.id)
        assert (await hold.wait(second.id, timeout=TIMEOUT)).status is Status.CANCELLED
        release.set()
        await results(first)
        await when(lambda: 2 in ended)

    assert called == [1]


async def test_what_a_plain_function_brings_too_late_is_taken_and_held_against_the_provider(
    hold: Holdfast,
) -> None:
    llm = hold.provider("llm", timeout=0.05)

    @hold.job("review")
    def review() -> int:
        with llm.permit():
            threading.Event().wait(0.2)
        return 7

    async with hold.worker(slots=1, poll=0.05):
        assert await results(await review.submit()) == [7]

    status = await hold.providers.show("llm")
    assert (status.failed, status.calls) == (1, 1)


def test_a_stage_cannot_call_a_provider_of_another_holdfast() -> None:
    here, elsewhere = Holdfast("sqlite:///never-opened.db"), Holdfast("sqlite:///never-opened.db")
    here.provider("llm")
    theirs = elsewhere.provider("llm")

    with pytest.raises(ConfigError, match="provider 'llm' was declared with another Holdfast"):
        here.stage(provider=theirs)


async def test_nor_can_a_job_take_a_permit_of_one(hold: Holdfast) -> None:
    theirs = Holdfast("sqlite:///never-opened.db").provider("llm")

    @hold.job("review")
    async def review() -> None:
        async with theirs.permit():
            pass

    async with hold.worker(slots=1, poll=0.05):
        with pytest.raises(JobFailed, match="provider 'llm' was not declared here"):
            await (await review.submit()).result(timeout=TIMEOUT)


@pytest.mark.parametrize("override", ["close", "observe"])
async def test_an_override_that_lets_every_call_through_holds_no_job_when_it_is_cleared(
    hold: Holdfast, service: Service, override: str
) -> None:
    job = declared(hold, service, hold.provider("llm"))
    set_override = hold.providers.close if override == "close" else hold.providers.observe
    await set_override("llm", actor="ann")
    await hold.providers.resume("llm", actor="ann")

    async with hold.worker(slots=2, poll=0.05):
        handles = await submitted(job, 4)
        await results(*handles)

    assert [await holds_of(hold, handle) for handle in handles] == [0] * 4
