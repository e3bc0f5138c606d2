"""A job that another session has locked, such as an operator's open transaction, delays itself and no other job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import Transition, complete, release
from holdfast.ports.store import Extension, Settled
from holdfast.stores.postgres import connections
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_job, a_stage

LEASE = timedelta(seconds=90)
TIMEOUT = 20.0


@pytest.fixture(autouse=True)
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SESSION, "lock_timeout", "100ms")


@pytest.fixture
async def store(postgres_dsn: str, short_lock_timeout: None) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(postgres_dsn)
    await made.apply_schema()
    await made.open()
    yield made
    await made.close()


async def claims(store: PostgresStore, count: int) -> list[Claim]:
    await store.submit([a_job() for _ in range(count)])
    return sorted(await store.claim("worker", "default", limit=count, lease=LEASE))


@asynccontextmanager
async def locked(dsn: str, *job_ids: str) -> AsyncIterator[None]:
    """Lock jobs as an operator does who looks at them in a transaction that is left open."""
    operator = await asyncpg.connect(dsn)
    try:
        async with operator.transaction():
            await operator.execute(
                "SELECT FROM holdfast.jobs WHERE id = ANY($1::text[]::uuid[]) FOR UPDATE", list(job_ids)
            )
            yield
    finally:
        await operator.close()


async def expires_at(store: PostgresStore, claim: Claim) -> Any:
    return (await store.get(claim.id)).lease_expires_at


@pytest.mark.clause("JOB-5")
async def test_leases_are_extended_except_of_a_locked_job_which_is_not_lost(
    postgres_dsn: str, store: PostgresStore
) -> None:
    first, second, gone = await claims(store, 3)
    await store.settle("worker", [release(gone, "worker shut down")])
    before = [await expires_at(store, claim) for claim in (first, second)]

    async with locked(postgres_dsn, first.id):
        extension = await store.extend(
            [(claim.id, claim.token) for claim in (first, second, gone)], lease=LEASE
        )

    assert extension == Extension(
        lost=frozenset({gone.id}), cancel_requested=frozenset(), locked=frozenset({first.id})
    )
    after = [await expires_at(store, claim) for claim in (first, second)]
    assert (after[0] == before[0], after[1] > before[1]) == (True, True)
    again = await store.extend([(first.id, first.token)], lease=LEASE)
    assert again == Extension(frozenset(), frozenset())


async def test_a_batch_is_settled_except_for_a_locked_job(postgres_dsn: str, store: PostgresStore) -> None:
    first, second, third, fourth = await claims(store, 4)
    batch: list[Transition] = [
        a_stage(first),
        complete(first, "1"),
        release(second, "worker shut down"),
        complete(third, "3"),
        a_stage(fourth),
        complete(fourth, "4"),
    ]

    async with locked(postgres_dsn, first.id, third.id):
        settled = await store.settle("worker", batch)

    assert settled == [
        Settled.LOCKED,
        Settled.LOCKED,
        Settled.WRITTEN,
        Settled.LOCKED,
        Settled.WRITTEN,
        Settled.WRITTEN,
    ]
    assert (await store.get(second.id)).status is Status.QUEUED
    assert (await store.get(first.id)).lease_token == first.token
    left = [change for change, answer in zip(batch, settled, strict=True) if answer is Settled.LOCKED]
    assert await store.settle("worker", left) == [Settled.WRITTEN] * 3


async def test_a_stage_that_was_written_does_not_speak_for_an_end_that_was_not(
    postgres_dsn: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [claim] = await claims(store, 1)
    write, locks = store._settlement._finish, locked(postgres_dsn, claim.id)

    async def finish_after_the_operator_came(ends: list[Any]) -> Any:
        await locks.__aenter__()
        return await write(ends)

    monkeypatch.setattr(store._settlement, "_finish", finish_after_the_operator_came)
    try:
        settled = await store.settle("worker", [a_stage(claim), complete(claim, "1")])
    finally:
        await locks.__aexit__(None, None, None)

    assert settled == [Settled.WRITTEN, Settled.LOCKED]


async def test_one_locked_job_does_not_stop_the_other_jobs_of_its_worker(
    postgres_dsn: str, store: PostgresStore
) -> None:
    hold, begun, may_end = Holdfast(postgres_dsn), asyncio.Event(), asyncio.Event()

    @hold.stage("compute")
    async def compute() -> int:
        return 1

    @hold.job("long")
    async def long() -> str:
        begun.set()
        await may_end.wait()
        await compute()
        return "done"

    @hold.job("short")
    async def short(number: int) -> int:
        return number

    async with hold, hold.worker(poll=0.05), asyncio.timeout(TIMEOUT):
        job = await long.submit()
        await begun.wait()
        async with locked(postgres_dsn, job.id):
            may_end.set()
            for number in range(5):
                assert await (await short.submit(number)).result() == number
            assert (await job.read()).status is Status.PROCESSING
        assert await job.result() == "done"

    assert (await store.get(job.id)).lease_token == 1
