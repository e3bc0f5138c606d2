"""Whether a deadline has passed is for the database's clock to say, also where the worker's clock disagrees."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, JobFailed, Status
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import cancel, release, time_out
from holdfast.ports import Store
from holdfast.ports.store import Extension, Settled
from holdfast.types import EventKind
from holdfast.wiring.assemble import assemble
from tests.builders import a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed, eventually, submitted

HOUR = timedelta(hours=1)
SOON = LEASE / 3
"""Longer than the tests take, and shorter than a lease: of what passes meanwhile, no lease runs out."""


class Watched:
    """A store that records what it answered to a worker which extends its leases."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._answers: asyncio.Queue[Extension] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def extend(self, held: Sequence[tuple[str, int]], *, lease: timedelta) -> Extension:
        answer = await self._store.extend(held, lease=lease)
        self._answers.put_nowait(answer)
        return answer

    async def next_answer(self) -> Extension:
        """Wait until the worker asks, and has its answer."""
        async with asyncio.timeout(TIMEOUT):
            return await self._answers.get()

    async def deadline_answered(self, job_id: str) -> None:
        """Wait until the store has answered the worker that the job's deadline has passed."""
        while job_id not in (await self.next_answer()).timed_out:
            pass


@pytest.fixture
def watched(database: Database) -> Watched:
    return Watched(database.new_store())


@pytest.fixture
async def hold(watched: Watched, database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    """A Holdfast whose database has a clock that the test moves, beside the worker's own, which runs."""

    def with_that_store(*args: Any, **options: Any) -> Any:
        return replace(assemble(*args, **options), store=watched)

    made = Holdfast(
        database.url, attempts=3, backoff=Backoff.none(), logger=logger.writer, assemble=with_that_store
    )
    async with made:
        yield made


async def begin_a_brief_job(hold: Holdfast) -> None:
    """Have a job run whose deadline will have the worker ask about all that it runs."""
    begun = asyncio.Event()

    @hold.job("brief", deadline=1)
    async def brief() -> None:
        begun.set()
        await asyncio.Event().wait()

    await brief.submit()
    await asyncio.wait_for(begun.wait(), TIMEOUT)


@pytest.mark.clause("SLA-2")
@pytest.mark.clause("SLA-3")
async def test_a_handler_that_may_finish_goes_on_when_the_database_is_ahead(
    hold: Holdfast, watched: Watched, clock: DatabaseClock, logger: Logger
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @hold.stage("look")
    async def look() -> str:
        return "seen"

    @hold.job("slow", deadline=SOON, on_deadline="finish")
    async def slow() -> str:
        begun.set()
        await over.wait()
        return await look()

    async with hold.worker(poll=0.02):
        job = await slow.submit()
        await begin_a_brief_job(hold)
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await clock.advance(SOON)
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)
        await watched.deadline_answered(job.id)
        over.set()
        found = await eventually(job.read, lambda now: now.late_at is not None)

    assert found.late_result == '"seen"'
    assert logger.lines("lease lost") == logger.lines("write fenced") == []


@pytest.mark.clause("SLA-2")
async def test_a_handler_is_stopped_when_the_database_is_ahead(
    hold: Holdfast, clock: DatabaseClock, logger: Logger
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @hold.job("slow", deadline=SOON)
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with hold.worker(poll=0.02):
        job = await slow.submit()
        await begin_a_brief_job(hold)
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await clock.advance(SOON)
        await asyncio.wait_for(stopped.wait(), TIMEOUT)

    found = await job.read()
    assert (found.status, found.timed_out_at is not None) == (Status.FAILED, True)
    assert logger.lines("lease lost") == logger.lines("write fenced") == logger.lines("job failed") == []
    assert sum(line["jobs"] for line in logger.lines("job timed out")) == 2


@pytest.mark.clause("SLA-2")
async def test_a_handler_has_the_time_that_the_database_gives_it_when_that_is_behind(
    hold: Holdfast, watched: Watched, clock: DatabaseClock
) -> None:
    runs: list[int] = []
    begun, stopped = asyncio.Event(), asyncio.Event()

    @hold.job("slow", deadline=1)
    async def slow() -> None:
        runs.append(1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with hold.worker(poll=0.02):
        job = await slow.submit()
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await clock.advance(-HOUR)
        early = await watched.next_answer()  # it asks because its own clock says that the time is over
        still_running = not stopped.is_set()
        await clock.advance(HOUR + SOON)
        await asyncio.wait_for(stopped.wait(), TIMEOUT)
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)

    found = await job.read()
    assert (early, still_running, runs) == (Extension(frozenset(), frozenset()), True, [1])
    assert found.timed_out_at is not None
    assert found.deadline_at is not None
    assert found.timed_out_at >= found.deadline_at
    assert [event.kind for event in await job.events()][-1] is EventKind.EXPIRED


async def a_late_claim(store: Store, clock: DatabaseClock) -> Claim:
    """Claim a job, and let the sweep end it at its deadline."""
    claim = await a_claim(store, a_job(deadline=HOUR))
    await clock.advance(HOUR)
    assert await store.expire(limit=10) == [claim.id]
    return claim


@pytest.mark.clause("SLA-2")
async def test_a_worker_cannot_time_a_job_out_before_its_deadline(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store, a_job(deadline=HOUR))

    assert await store.settle("worker", [time_out(claim)]) == [Settled.EARLY]

    assert (await store.get(claim.id)).status is Status.PROCESSING
    await clock.advance(HOUR)
    assert await store.settle("worker", [time_out(claim)]) == [Settled.TIMED_OUT]
    assert (await store.get(claim.id)).timed_out_at is not None


async def test_a_stage_beside_it_does_not_make_an_early_end_a_written_one(store: Store) -> None:
    claim = await a_claim(store, a_job(deadline=HOUR))

    answers = await store.settle("worker", [a_stage(claim), time_out(claim)])

    assert answers == [Settled.WRITTEN, Settled.EARLY]
    assert (await store.get(claim.id)).status is Status.PROCESSING


async def test_a_job_without_a_deadline_is_not_timed_out(store: Store) -> None:
    claim = await a_claim(store)

    assert await store.settle("worker", [time_out(claim)]) == [Settled.EARLY]

    assert (await store.get(claim.id)).status is Status.PROCESSING


@pytest.mark.clause("SLA-3")
async def test_what_comes_under_a_lease_that_the_deadline_ended_is_distinguished_from_what_lost_its_lease(
    store: Store, clock: DatabaseClock
) -> None:
    late = await a_late_claim(store, clock)
    await submitted(store, a_job())
    lost = await claimed(store)
    await store.settle("worker", [release(lost, "worker shut down")])

    for change in (a_stage(late), time_out(late), cancel(late), release(late, "worker shut down")):
        assert await store.settle("worker", [change]) == [Settled.OVER]
    for change in (a_stage(lost), time_out(lost), cancel(lost), release(lost, "worker shut down")):
        assert await store.settle("worker", [change]) == [Settled.FENCED]

    assert (await store.get(late.id)).late_at is None


async def test_a_lease_that_the_deadline_ended_is_not_a_lost_one(store: Store, clock: DatabaseClock) -> None:
    late = await a_late_claim(store, clock)
    overdue = await a_claim(store, a_job(deadline=HOUR))
    await clock.advance(HOUR)
    lost, held = await a_claim(store), await a_claim(store)
    await store.settle("worker", [release(lost, "worker shut down")])

    extension = await store.extend(
        [(claim.id, claim.token) for claim in (late, overdue, lost, held)], lease=LEASE
    )

    assert extension == Extension(
        lost=frozenset({lost.id}),
        cancel_requested=frozenset(),
        timed_out=frozenset({late.id, overdue.id}),
    )


async def test_after_a_retry_the_lease_that_the_deadline_ended_is_a_lost_one(
    store: Store, clock: DatabaseClock
) -> None:
    late = await a_late_claim(store, clock)
    await store.retry(late.id)

    extension = await store.extend([(late.id, late.token)], lease=LEASE)

    assert extension.lost == {late.id}
    assert await store.settle("worker", [time_out(late)]) == [Settled.FENCED]
