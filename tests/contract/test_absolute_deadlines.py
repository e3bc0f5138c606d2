"""A deadline may be an instant: it is stored as it was given, also if it has passed when the job arrives."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import ErrorClass, Holdfast, Job, Status
from holdfast.core.jobs.transitions import complete, time_out
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_job
from tests.contract.callers import a_caller
from tests.contract.conftest import Database, DatabaseClock, SqliteFile
from tests.contract.steps import LEASE, TIMEOUT, a_claim, submitted

HOUR = timedelta(hours=1)
PAST = datetime(2020, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


def timed_out(job: Job) -> bool:
    return job.failure is not None and job.failure.error_class is ErrorClass.TIMEOUT


@pytest.mark.clause("SLA-2")
@pytest.mark.parametrize("count", [1, 3])
async def test_a_job_has_the_deadline_that_it_was_given(store: Store, count: int) -> None:
    at = datetime(2040, 1, 1, 9, 0, 0, 7, tzinfo=UTC)
    jobs = [a_job(deadline_at=at + number * HOUR) for number in range(count)]

    await submitted(store, *jobs)

    assert [(await store.get(job.id)).deadline_at for job in jobs] == [job.deadline_at for job in jobs]


@pytest.mark.clause("SLA-2")
@pytest.mark.parametrize("count", [1, 3])
async def test_a_job_that_arrives_after_its_deadline_is_ended_by_the_sweep(store: Store, count: int) -> None:
    ids = await submitted(store, *[a_job(deadline_at=PAST) for _ in range(count)])

    assert sorted(await store.expire(limit=10)) == sorted(ids)

    for job_id in ids:
        job = await store.get(job_id)
        assert (job.status, timed_out(job), job.deadline_at) == (Status.FAILED, True, PAST)
        assert job.started_at is None


@pytest.mark.clause("SLA-2")
async def test_a_worker_that_claims_such_a_job_before_the_sweep_ends_it(store: Store) -> None:
    claim = await a_claim(store, a_job(deadline_at=PAST))

    assert claim.time_left is not None
    assert claim.time_left < 0
    assert await store.settle("worker", [time_out(claim)]) == [Settled.TIMED_OUT]

    assert timed_out(await store.get(claim.id))


@pytest.mark.clause("SLA-3")
async def test_a_result_after_the_instant_is_late(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store, a_job(deadline_at=await clock.now() + HOUR))
    await clock.advance(2 * HOUR)

    assert await store.settle("worker", [complete(claim, '"late"')]) == [Settled.TIMED_OUT]

    job = await store.get(claim.id)
    assert (timed_out(job), job.result, job.late_result) == (True, None, '"late"')


@pytest.mark.clause("SLA-2")
async def test_a_function_whose_deadline_has_passed_on_arrival_is_never_called(hold: Holdfast) -> None:
    called: list[int] = []

    @hold.job("grade")
    async def grade(number: int) -> None:
        called.append(number)

    async with hold.worker():
        one = await grade.options(deadline_at=PAST).submit(1)
        many = await grade.options(deadline_at=PAST).submit_many([(2,), (3,)])
        jobs = [await hold.wait(handle.id, timeout=TIMEOUT) for handle in (one, *many)]

    assert called == []
    assert [(job.status, timed_out(job)) for job in jobs] == [(Status.FAILED, True)] * 3


@pytest.mark.clause("SLA-2")
async def test_a_deadline_is_stored_in_the_callers_transaction(
    hold: Holdfast, database: Database, store: Store
) -> None:
    @hold.job("grade")
    async def grade() -> None: ...

    file = database.path if isinstance(database, SqliteFile) else None
    caller = a_caller("aiosqlite" if file else "asyncpg", dsn=None if file else database.url, path=file)
    await caller.open()

    await caller.begin()
    handle = await caller.submit(grade.options(deadline_at=PAST))
    await caller.commit()
    await caller.close()

    assert (await store.get(handle.id)).deadline_at == PAST
    assert await store.claim("worker", "other", limit=1, lease=LEASE) == []
