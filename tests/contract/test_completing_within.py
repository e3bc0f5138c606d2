"""A function may end its job in a transaction of its own: its rows and the end are committed together, or neither is."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import ErrorClass, Holdfast, Status, current
from holdfast.core.jobs.transitions import complete
from holdfast.errors import PayloadInvalid, StateRefused, WithinUnsupported
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.testing import inline, simulation
from holdfast.types import Completion, EventKind
from tests.builders import a_job
from tests.contract.callers import POSTGRES, SQLITE, Caller, InThread, a_caller
from tests.contract.conftest import Database, DatabaseClock, Logger, PostgresDatabase, SqliteFile
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def caller(database: Database, store: Store) -> AsyncIterator[Caller]:
    """An application with a connection of its own, of the most common driver."""
    made = caller_of(database, "aiosqlite" if isinstance(database, SqliteFile) else "asyncpg")
    await made.open()
    await made.begin()
    await made.run("CREATE TABLE orders (number integer)")
    await made.commit()
    yield made
    await made.close()


def caller_of(database: Database, name: str) -> Caller:
    if isinstance(database, SqliteFile):
        return a_caller(name, path=database.path)
    return a_caller(name, dsn=database.url)


async def orders_in(database: Database) -> int:
    """Count the caller's rows, on another connection."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as file:
            return int(file.execute("SELECT count(*) FROM orders").fetchone()[0])
    connection = await asyncpg.connect(database.url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM orders"))
    finally:
        await connection.close()


@pytest.mark.clause("SLA-3")
async def test_a_commit_ends_the_job_with_its_result(
    store: Store, caller: Caller, database: Database
) -> None:
    claim = await a_claim(store)

    await caller.begin()
    await caller.insert(7)
    settled = await store.settle_within(caller.within, complete(claim, '"done"'))
    before = (await store.get(claim.id)).status
    await caller.commit()

    job = await store.get(claim.id)
    assert (settled, before) == (Settled.WRITTEN, Status.PROCESSING)
    assert (job.status, job.result, await orders_in(database)) == (Status.COMPLETED, '"done"', 1)
    kinds = [event.kind for event in await store.events(claim.id)]
    assert kinds == [EventKind.QUEUED, EventKind.PROCESSING, EventKind.COMPLETED]


async def test_a_rollback_leaves_the_job_leased(store: Store, caller: Caller, database: Database) -> None:
    claim = await a_claim(store)

    await caller.begin()
    await caller.insert(7)
    await store.settle_within(caller.within, complete(claim, '"done"'))
    await caller.rollback()

    assert await orders_in(database) == 0
    assert (await store.get(claim.id)).status is Status.PROCESSING
    assert await store.settle("worker", [complete(claim, '"later"')]) == [Settled.WRITTEN]


@pytest.mark.clause("JOB-6")
async def test_a_worker_that_lost_its_lease_ends_nothing_in_a_transaction(
    store: Store, caller: Caller, clock: DatabaseClock
) -> None:
    slow = await a_claim(store)
    await clock.advance(2 * LEASE)
    await store.reclaim(limit=10)
    quick = await claimed(store)

    await caller.begin()
    settled = await store.settle_within(caller.within, complete(slow, '"slow"'))
    await caller.commit()

    assert settled is Settled.FENCED
    assert (await store.get(slow.id)).lease_token == quick.token


@pytest.mark.clause("SLA-3")
@pytest.mark.parametrize("swept", [False, True], ids=["before the sweep", "after the sweep"])
async def test_a_result_after_the_deadline_is_kept_as_late(
    store: Store, caller: Caller, clock: DatabaseClock, swept: bool
) -> None:
    claim = await a_claim(store, a_job(deadline=MINUTE))
    await clock.advance(2 * MINUTE)
    if swept:
        await store.expire(limit=10)

    await caller.begin()
    settled = await store.settle_within(caller.within, complete(claim, '"late"'))
    await caller.commit()

    job = await store.get(claim.id)
    assert settled is (Settled.LATE if swept else Settled.TIMED_OUT)
    assert (job.status, job.result, job.late_result) == (Status.FAILED, None, '"late"')
    assert job.failure is not None
    assert job.failure.error_class is ErrorClass.TIMEOUT


DRIVERS = [("sqlite", name) for name in SQLITE] + [("postgres", name) for name in POSTGRES]


@pytest.mark.clause("OUT-1", "jobs")
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize(("kind", "driver"), DRIVERS, ids=[f"{kind}-{name}" for kind, name in DRIVERS])
async def test_every_kind_of_connection_can_end_a_job(
    kind: str, driver: str, commits: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database: Database = (
        SqliteFile(str(tmp_path / "jobs.db"))
        if kind == "sqlite"
        else PostgresDatabase(request.getfixturevalue("postgres_dsn"))
    )
    hold = Holdfast(database.url)
    caller = caller_of(database, driver)

    @hold.job("order", attempts=1)
    async def order(number: int) -> str:
        here = current()
        await caller.begin()
        await caller.insert(number)
        if isinstance(caller, InThread):
            within = caller.plain.within
            done = await caller._do(copy_context().run, lambda: here.complete_sync("ended", within=within))
        else:
            done = await here.complete("ended", within=caller.within)
        assert done == Completion(late=False)
        await (caller.commit() if commits else caller.rollback())
        return "ignored"

    async with hold:
        await caller.open()
        await caller.begin()
        await caller.run("CREATE TABLE orders (number integer)")
        await caller.commit()
        async with hold.worker(poll=0.05):
            handle = await order.submit(7)
            job = await hold.wait(handle.id, timeout=TIMEOUT)
        await caller.close()

    if commits:
        assert (job.status, job.result) == (Status.COMPLETED, '"ended"')
    else:
        assert job.failure is not None
        assert (job.status, job.failure.error_class) == (Status.FAILED, ErrorClass.CONFLICT)
        assert "rolled back or is still open" in job.failure.message


async def test_a_rolled_back_completion_is_retried_and_succeeds_in_the_next_attempt(
    hold: Holdfast, caller: Caller, database: Database
) -> None:
    @hold.job("order")
    async def order() -> None:
        await caller.begin()
        await caller.insert(current().attempt)
        await current().complete(within=caller.within)
        await (caller.rollback() if current().attempt == 1 else caller.commit())

    async with hold.worker(poll=0.05):
        job = await hold.wait((await order.submit()).id, timeout=TIMEOUT)

    assert (job.status, job.attempt, await orders_in(database)) == (Status.COMPLETED, 2, 1)


async def test_a_transaction_that_is_repeated_in_the_same_attempt_ends_the_job_once(
    hold: Holdfast, caller: Caller, database: Database
) -> None:
    @hold.job("order")
    async def order() -> str:
        for number in (1, 2):
            await caller.begin()
            await caller.insert(number)
            await current().complete(f"transaction {number}", within=caller.within)
            await (caller.rollback() if number == 1 else caller.commit())
        await caller.begin()
        with pytest.raises(StateRefused, match="has ended already"):
            await current().complete("once more", within=caller.within)
        await caller.rollback()
        return "ignored"

    async with hold.worker(poll=0.05):
        handle = await order.submit()

        assert await handle.result(timeout=TIMEOUT) == "transaction 2"
    assert ((await handle.read()).attempt, await orders_in(database)) == (1, 1)


async def test_an_error_after_the_commit_changes_nothing_but_the_log(
    hold: Holdfast, caller: Caller, logger: Logger
) -> None:
    @hold.job("order")
    async def order() -> None:
        await caller.begin()
        await current().complete(within=caller.within)
        await caller.commit()
        raise ValueError("the mail was not sent")

    async with hold.worker(poll=0.05):
        handle = await order.submit()
        await handle.result(timeout=TIMEOUT)

    [line] = logger.lines("error after completion")
    assert (line["job_id"], line["message"]) == (handle.id, "ValueError: the mail was not sent")
    assert [line["job_id"] for line in logger.lines("job completed")] == [handle.id]


async def test_an_error_that_rolls_the_completion_back_fails_the_attempt(
    hold: Holdfast, caller: Caller
) -> None:
    @hold.job("order", attempts=1)
    async def order() -> None:
        await caller.begin()
        try:
            await current().complete(within=caller.within)
            raise ValueError("no stock")
        finally:
            await caller.rollback()

    async with hold.worker(poll=0.05):
        job = await hold.wait((await order.submit()).id, timeout=TIMEOUT)

    assert job.failure is not None
    assert (job.status, job.failure.message) == (Status.FAILED, "ValueError: no stock")


async def test_a_completed_job_starts_nothing_more(hold: Holdfast, caller: Caller) -> None:
    refused: list[str] = []

    @hold.stage()
    async def later() -> None:
        raise AssertionError

    @hold.job("other")
    async def other() -> None: ...

    @hold.job("order")
    async def order() -> None:
        await caller.begin()
        await current().complete(within=caller.within)
        await caller.commit()
        for start in (later, other.submit, lambda: hold.sleep(5), lambda: hold.wait_for("go")):
            try:
                await start()
            except StateRefused as error:
                refused.append(str(error))

    async with hold.worker(poll=0.05):
        handle = await order.submit()
        await hold.wait(handle.id, timeout=TIMEOUT)

    assert refused == ["the job was completed; return from its function"] * 4
    assert (await handle.read()).status is Status.COMPLETED


async def test_a_late_completion_says_so(hold: Holdfast, caller: Caller) -> None:
    answers: list[Completion] = []
    passed = asyncio.Event()

    @hold.job("order", deadline="300ms", on_deadline="finish")
    async def order() -> str:
        await passed.wait()
        await caller.begin()
        answers.append(await current().complete("too late", within=caller.within))
        await caller.commit()
        return "ignored"

    async with hold.worker(poll=0.05):
        handle = await order.submit()
        timed_out = await hold.wait(handle.id, timeout=TIMEOUT)
        passed.set()
        async with asyncio.timeout(TIMEOUT):
            while (job := await handle.read()).late_at is None:
                await asyncio.sleep(0.01)

    assert timed_out.status is Status.FAILED
    assert answers == [Completion(late=True)]
    assert (job.status, job.late_result) == (Status.FAILED, '"too late"')


async def test_a_job_is_completed_in_its_own_function_only(hold: Holdfast, caller: Caller) -> None:
    @hold.stage(attempts=1)
    async def inside() -> None:
        await current().complete(within=caller.within)

    @hold.job("order", attempts=1)
    async def order() -> None:
        await inside()

    async with hold.worker(poll=0.05):
        job = await hold.wait((await order.submit()).id, timeout=TIMEOUT)

    assert job.failure is not None
    assert "complete() was called inside a stage" in job.failure.message


async def test_a_connection_that_is_refused_leaves_the_job_to_its_function(hold: Holdfast) -> None:
    @hold.job("order", attempts=1)
    async def order() -> str:
        with pytest.raises(WithinUnsupported, match="it takes a"):
            await current().complete("never", within="a connection")
        with pytest.raises(PayloadInvalid, match="result"):
            await current().complete(7, within="a connection")
        return "returned"

    async with hold.worker(poll=0.05):
        assert await (await order.submit()).result(timeout=TIMEOUT) == "returned"


def elsewhere_completed(hold: Holdfast) -> Callable[[], Coroutine[Any, Any, list[str]]]:
    """Declare jobs that complete themselves on a connection to another database; return what runs them."""
    elsewhere = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    @hold.job("async order")
    async def order() -> str:
        await current().complete("ended", within=elsewhere)
        return "ignored"

    @hold.job("plain order")
    def plain_order() -> str:
        current().complete_sync("ended", within=elsewhere)
        return "ignored"

    async def run() -> list[str]:
        handles = [await order.submit(), await plain_order.submit()]
        async with hold.worker():
            return [await handle.result() for handle in handles]

    return run


def test_inline_a_completion_takes_effect_at_once() -> None:
    hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=1)
    run = elsewhere_completed(hold)

    with inline(hold):
        assert asyncio.run(run()) == ["ended", "ended"]


def test_in_a_simulation_a_completion_takes_effect_at_once() -> None:
    hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db", attempts=1)
    run = elsewhere_completed(hold)

    with simulation(hold) as simulated:
        assert simulated.run(run()) == ["ended", "ended"]
