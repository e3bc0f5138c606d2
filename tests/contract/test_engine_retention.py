"""What has ended is kept for a while, and a key for longer than its job."""

from datetime import timedelta

import pytest

from holdfast import JobFilter, Permanent, Retention, Status
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import ALL, failed, opened, run_archiver
from tests.contract.messages import GradingRequest, declare_request
from tests.contract.steps import TIMEOUT, eventually

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEPT = Retention(finished=HOUR, keys=DAY)


@pytest.mark.clause("DLQ-3")
async def test_finished_jobs_are_deleted_when_their_time_is_over_and_their_keys_later(
    database: Database, logger: Logger, clock: DatabaseClock
) -> None:
    runs: list[int] = []
    async with opened(database, logger, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> str:
            runs.append(1)
            return "hello"

        async with hold.worker(poll=0.05):
            handle = await greet.options(key="k").submit()
            await handle.result(timeout=TIMEOUT)
        await run_archiver(hold, clock)
        assert (await handle.read()).status is Status.COMPLETED

        await clock.advance(HOUR)
        await run_archiver(hold, clock)
        again = await greet.options(key="k").submit()
        assert (again.id, again.existing) == (handle.id, True), "nothing runs twice for a key"
        assert await again.result(timeout=TIMEOUT) == "hello"
        assert (await again.events())[-1].kind == "purged"

        await clock.advance(DAY)
        await run_archiver(hold, clock)
        async with hold.worker(poll=0.05):
            other = await greet.options(key="k").submit()
            await other.result(timeout=TIMEOUT)

    assert other.id != handle.id
    assert len(runs) == 2


@pytest.mark.clause("DLQ-3")
async def test_a_failed_job_is_kept_for_as_long_as_its_letter(
    database: Database, logger: Logger, clock: DatabaseClock
) -> None:
    async with opened(database, logger, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> None:
            raise Permanent("no")

        job_id = await failed(hold, greet)
        await clock.advance(2 * DAY)
        await run_archiver(hold, clock)

        assert (await hold.read(job_id)).status is Status.FAILED
        assert [letter.job_id for letter in await hold.dead_letters.list(ALL)] == [job_id]


async def test_what_waits_or_runs_is_not_deleted_however_old_it_is(
    database: Database, logger: Logger, clock: DatabaseClock
) -> None:
    async with opened(database, logger, retention=KEPT) as hold:

        @hold.job("greet")
        async def greet() -> None: ...

        handle = await greet.options(key="k").submit()
        await clock.advance(2 * DAY)
        await run_archiver(hold, clock)

        assert (await handle.read()).status is Status.QUEUED
        assert (await greet.options(key="k").submit()).id == handle.id


@pytest.mark.parametrize("timeout", [None, DAY], ids=["for ever", "for a day"])
async def test_a_job_that_waits_long_gets_the_same_result_again_from_one_that_is_gone(
    database: Database, logger: Logger, clock: DatabaseClock, timeout: timedelta | None
) -> None:
    runs: list[int] = []
    async with opened(database, logger, retention=KEPT) as hold:

        @hold.job("draft")
        async def draft(number: int) -> dict[str, str]:
            runs.append(number)
            return {"text": f"“{number}”"}

        @hold.job("publish")
        async def publish() -> str:
            first = await (await draft.submit(1)).result(timeout=timeout)
            await hold.wait_for("approved")
            second = await (await draft.submit(2)).result(timeout=timeout)
            await hold.wait_for("approved")
            return first["text"] + second["text"]

        job = await publish.submit()
        for number in (1, 2):
            async with hold.worker(poll=0.05):
                await eventually(
                    job.read, lambda found: found.waiting and not found.pending
                )  # for the signal
            [child, *_] = await hold.find(JobFilter(name="draft"))
            for _ in range(2):  # its job goes first; its key stays as long as the job that submitted it lives
                await clock.advance(2 * DAY)
                await run_archiver(hold, clock)
            assert (await hold.read(child.id)).purged_at is not None
            assert runs == list(range(1, number + 1))
            await hold.signal(job.id, "approved")
        async with hold.worker(poll=0.05):
            assert await job.result(timeout=TIMEOUT) == "“1”“2”"

    assert runs == [1, 2], "nothing was submitted again"


async def test_the_keys_of_what_a_job_has_submitted_go_when_it_has_ended(
    database: Database, logger: Logger, clock: DatabaseClock
) -> None:
    async with opened(database, logger, retention=KEPT) as hold:

        @hold.job("child")
        async def child() -> None: ...

        @hold.job("parent")
        async def parent() -> None:
            await (await child.submit()).result()

        async with hold.worker(poll=0.05):
            await (await parent.submit()).result(timeout=TIMEOUT)
        await clock.advance(2 * DAY)
        await run_archiver(hold, clock)

        assert await hold.runtime.store.retention.purge_keys(older_than=timedelta(0), limit=9) == 0, (
            "it was deleted without a request"
        )
    assert [line["count"] for line in logger.lines("records purged") if line["what"] == "keys"] == [1]


@pytest.mark.clause("OUT-3")
async def test_skipped_messages_are_deleted_a_week_later(
    database: Database, logger: Logger, clock: DatabaseClock
) -> None:
    async with opened(database, logger) as hold:
        declare_request(hold)
        await hold.publish(GradingRequest(requestId="r1"))
        [message] = await hold.outbox.list()
        await hold.outbox.skip([message.id], actor="kim")
        await run_archiver(hold, clock)
        assert len(await hold.outbox.list()) == 1

        await clock.advance(7 * DAY)
        await run_archiver(hold, clock)

        assert await hold.outbox.list() == []
    [line] = [line for line in logger.lines("records purged") if line["what"] == "messages"]
    assert line["count"] == 1
