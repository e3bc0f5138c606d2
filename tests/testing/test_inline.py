"""Jobs that run where they are submitted."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Permanent, Status, current
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.testing import inline, simulation
from holdfast.testing.delegation import PASSED_ON
from holdfast.types import EventKind, PublicCode

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=3, backoff=Backoff.constant(300))
log: list[Any] = []


@pytest.fixture(autouse=True)
def a_clean_slate() -> None:
    log.clear()


@hold.job("greet", queue="mail", priority=5)
async def greet(name: str) -> str:
    log.append(asyncio.get_running_loop())
    return f"hello {name}"


@hold.job("plain")
def plain(name: str) -> str:
    hold.sleep_sync("1d")
    return greet.options(key="once").submit_sync(name).result_sync()


@hold.job("flaky")
async def flaky(failures: int) -> int:
    log.append(current().attempt)
    if len(log) <= failures:
        raise ConnectionError("no route")
    return len(log)


@hold.job("refused")
async def refused() -> None:
    raise Permanent("the account is closed", error_class=ErrorClass.NOT_FOUND, code=PublicCode.GW_4XX)


@hold.stage()
async def fetch(page: str) -> str:
    log.append(f"fetch {page}")
    return page.upper()


@hold.stage(attempts=2)
async def save(text: str) -> str:
    log.append(f"save {text}")
    if log.count(f"save {text}") == 1:
        raise ConnectionError("no route")
    return text


@hold.job("archive")
async def archive(page: str) -> str:
    return await save(await fetch(page))


@hold.stage(attempts=2)
def resize(name: str) -> str:
    log.append(threading.current_thread())
    if len(log) == 2:
        raise ConnectionError("no route")
    return f"small {name}"


@hold.job("thumbnail")
def thumbnail(name: str) -> str:
    log.append(threading.current_thread())
    return resize(name) + resize(name + "2")


@hold.job("thumbnail-async")
async def thumbnail_async(name: str) -> str:
    return await resize.in_thread(name)


@hold.job("family")
async def family(children: int) -> list[str]:
    jobs = await asyncio.gather(*(child.submit(number) for number in range(children)))
    return [await job.result() for job in jobs]


@hold.job("child")
async def child(number: int) -> str:
    for _ in range(10 - number):
        await asyncio.sleep(0)
    return f"child {number}"


@hold.job("endless")
async def endless() -> None:
    await endless.options(delay="1h").submit()


@hold.job("waits")
async def waits() -> None:
    log.append("waiting")
    await asyncio.Event().wait()


async def test_a_job_has_ended_when_submit_returns() -> None:
    with inline(hold):
        job = await greet.submit("Ada")

        assert (await job.read()).status is Status.COMPLETED
        assert await job.result() == "hello Ada"


async def test_a_job_runs_on_the_event_loop_of_its_caller() -> None:
    with inline(hold):
        await greet.submit("Ada")

    assert log == [asyncio.get_running_loop()]


async def test_retries_are_made_at_once_and_recorded_as_they_would_have_been() -> None:
    with inline(hold):
        job = await flaky.submit(2)

        assert await job.result() == 3
        retries = [event for event in await job.events() if event.kind is EventKind.RETRY]
    assert log == [1, 2, 3]
    assert [event.meta["delay_ms"] for event in retries] == [300_000, 300_000]


async def test_a_job_that_fails_says_so_when_its_result_is_asked_for() -> None:
    with inline(hold):
        spent, closed = await flaky.submit(99), await refused.submit()

        with pytest.raises(JobFailed, match="no route"):
            await spent.result()
        with pytest.raises(JobFailed, match="the account is closed"):
            await closed.result()
    assert log == [1, 2, 3]


async def test_a_delay_is_skipped() -> None:
    with inline(hold):
        late = await greet.options(delay="365d").submit("Ada")
        dated = await greet.options(run_at=datetime.now(UTC) + timedelta(days=700)).submit("Bob")

        job = await late.read()
        assert ((await late.read()).status, (await dated.read()).status) == (
            Status.COMPLETED,
            Status.COMPLETED,
        )
    assert job.started_at is not None
    assert job.started_at - job.created_at >= timedelta(days=365)


async def test_a_job_keeps_the_queue_and_priority_it_was_submitted_with() -> None:
    with inline(hold):
        job = await (await greet.options(queue="slow").submit("Ada")).read()

    assert (job.queue, job.priority) == ("slow", 5)


async def test_a_finished_stage_is_not_run_again() -> None:
    with inline(hold):
        assert await (await archive.submit("a")).result() == "A"

    assert log == ["fetch a", "save A", "save A"]


async def test_a_plain_job_and_its_stages_share_a_thread() -> None:
    with inline(hold):
        assert await (await thumbnail.submit("a")).result() == "small asmall a2"

    first, second = log[:2], log[2:]
    assert (len(first), len(second)) == (2, 3), "two attempts, of which the first failed in its first stage"
    assert len(set(first)) == len(set(second)) == 1
    assert threading.current_thread() not in log


async def test_a_plain_stage_of_an_async_job_runs_in_a_thread() -> None:
    log.append("so that it does not fail")
    log.append("so that it does not fail")

    with inline(hold):
        assert await (await thumbnail_async.submit("a")).result() == "small a"

    assert log[2] is not threading.current_thread()


async def test_jobs_that_a_job_submits_are_run_too() -> None:
    with inline(hold) as ended:
        job = await family.submit(4)

        assert await job.result() == ["child 0", "child 1", "child 2", "child 3"]
    assert sorted(each.name for each in ended) == ["child"] * 4 + ["family"]
    assert ended[-1].name == "family"


async def test_a_job_that_submits_itself_for_ever_is_stopped() -> None:
    with inline(hold) as ended:
        await endless.submit()

    assert ended[0].failure is not None
    assert "use a simulation" in ended[0].failure.message


async def test_many_calls_run_in_their_order() -> None:
    with inline(hold) as ended:
        await greet.submit_many([("Ada",), ("Bob",)])

    assert [job.result for job in ended] == ['"hello Ada"', '"hello Bob"']


async def test_a_known_key_runs_nothing_again() -> None:
    with inline(hold) as ended:
        first = await greet.options(key="k").submit("Ada")
        second = await greet.options(key="k").submit("Ada")

    assert (second.id, second.existing, len(ended)) == (first.id, True, 1)


async def test_a_job_that_is_retried_runs_at_once() -> None:
    with inline(hold) as ended:
        job = await flaky.submit(4)
        assert (await job.read()).status is Status.FAILED

        brought_back = await job.retry()

    assert (brought_back.status, brought_back.generation) == (Status.COMPLETED, 2)
    assert [each.status for each in ended] == [Status.FAILED, Status.COMPLETED]


async def test_a_submission_within_a_transaction_runs_at_once() -> None:
    with inline(hold):
        assert await (await greet.options(within=object()).submit("Ada")).result() == "hello Ada"


async def test_a_worker_has_nothing_to_do() -> None:
    with inline(hold) as ended:
        async with hold, hold.worker(slots=3) as worker:
            await worker.ready.wait()
            await greet.submit("Ada")

    assert [job.leased_by for job in ended] == ["inline"]


async def test_a_caller_who_gives_up_stops_the_job() -> None:
    with inline(hold) as ended:
        submitting = asyncio.create_task(waits.submit())
        while not log:
            await asyncio.sleep(0)

        submitting.cancel()
        await asyncio.wait([submitting])

        [job] = await hold.find()
    assert (submitting.cancelled(), job.status, ended) == (True, Status.QUEUED, [])


def test_plain_code_may_use_blocking_verbs() -> None:
    with inline(hold) as ended:
        job = greet.submit_sync("Ada")

        assert (job.read_sync().status, job.result_sync()) == (Status.COMPLETED, "hello Ada")
        assert hold.read_sync(job.id) == ended[0]


def test_a_plain_job_may_use_blocking_verbs_inline() -> None:
    with inline(hold):
        assert plain.submit_sync("Ada").result_sync() == "hello Ada"


def test_a_plain_job_may_have_a_deadline_inline() -> None:
    with inline(hold):
        assert plain.options(deadline="30d").submit_sync("Ada").result_sync() == "hello Ada"


def test_a_blocking_submission_within_a_transaction_runs_at_once() -> None:
    with inline(hold), closing(sqlite3.connect(":memory:")) as connection:
        job = greet.options(within=connection).submit_sync("Ada")

        assert job.result_sync() == "hello Ada"


def test_afterwards_blocking_verbs_lead_to_the_database_of_the_object_again() -> None:
    with inline(hold):
        job = greet.submit_sync("Ada")

    with pytest.raises(StoreUnavailable, match="does/not/exist"):
        job.read_sync()
    hold.close_sync()


def test_plain_code_may_run_one_loop_after_the_other() -> None:
    with inline(hold) as ended:
        job = asyncio.run(family.submit(3))
        asyncio.run(family.submit(3))

        assert asyncio.run(job.result()) == ["child 0", "child 1", "child 2"]
    assert len(ended) == 8


async def test_two_loops_at_once_are_refused() -> None:
    def elsewhere() -> None:
        asyncio.run(greet.submit("Bob"))

    with inline(hold):
        waiting = asyncio.create_task(waits.submit())
        while not log:
            await asyncio.sleep(0)

        with pytest.raises(ConfigError, match="on another event loop"):
            await asyncio.to_thread(elsewhere)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_the_object_is_as_before_even_after_an_error() -> None:
    before = dict(vars(hold))

    with pytest.raises(JobFailed), inline(hold):
        await (await refused.submit()).result()

    assert vars(hold) == before
    assert not set(PASSED_ON) & set(vars(hold))


def test_one_block_at_a_time_has_the_object() -> None:
    with inline(hold):
        with pytest.raises(ConfigError, match="already"), inline(hold):
            log.append("begun")
        with pytest.raises(ConfigError, match="already"), simulation(hold):
            log.append("begun")

    assert log == []


async def test_each_block_begins_with_an_empty_database() -> None:
    for _ in range(2):
        with inline(hold):
            assert await hold.find() == []
            await greet.submit("Ada")
