"""What has ended is kept for a while, and a key for longer than its job."""

from datetime import timedelta

import pytest

from holdfast import JobNotFound, Permanent, Retention, Status
from tests.contract.conftest import Database, DatabaseClock, Journal
from tests.contract.letters import ALL, failed, keep_house, opened
from tests.contract.steps import PATIENCE

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEPT = Retention(finished=HOUR, keys=DAY)


@pytest.mark.clause("DLQ-3")
async def test_finished_jobs_are_deleted_when_their_time_is_over_and_their_keys_later(
    database: Database, journal: Journal, clock: DatabaseClock
) -> None:
    runs: list[int] = []
    async with opened(database, journal, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> None:
            runs.append(1)

        async with hold.worker(poll=0.05):
            handle = await greet.options(key="k").submit()
            await handle.result(timeout=PATIENCE)
        await keep_house(hold, clock)
        assert (await handle.read()).status is Status.COMPLETED

        await clock.advance(HOUR)
        await keep_house(hold, clock)
        with pytest.raises(JobNotFound):
            await handle.result(timeout=PATIENCE)
        again = await greet.options(key="k").submit()
        assert (again.id, again.existing) == (handle.id, True), "nothing runs twice for a key"

        await clock.advance(DAY)
        await keep_house(hold, clock)
        async with hold.worker(poll=0.05):
            other = await greet.options(key="k").submit()
            await other.result(timeout=PATIENCE)

    assert other.id != handle.id
    assert len(runs) == 2


@pytest.mark.clause("DLQ-3")
async def test_a_failed_job_is_kept_for_as_long_as_its_letter(
    database: Database, journal: Journal, clock: DatabaseClock
) -> None:
    async with opened(database, journal, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> None:
            raise Permanent("no")

        job_id = await failed(hold, greet)
        await clock.advance(2 * DAY)
        await keep_house(hold, clock)

        assert (await hold.read(job_id)).status is Status.FAILED
        assert [letter.job_id for letter in await hold.dead.list(ALL)] == [job_id]


async def test_what_waits_or_runs_is_not_deleted_however_old_it_is(
    database: Database, journal: Journal, clock: DatabaseClock
) -> None:
    async with opened(database, journal, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> None: ...

        handle = await greet.options(key="k").submit()
        await clock.advance(2 * DAY)
        await keep_house(hold, clock)

        assert (await handle.read()).status is Status.QUEUED
        assert (await greet.options(key="k").submit()).id == handle.id
