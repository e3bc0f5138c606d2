"""A worker that meets a job it does not know leaves it, unspent, to one that does."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Backoff, Holdfast, JobFilter, Retryable, Status
from holdfast.cli.process.worker_health import held_gauge
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import Requeue, park_unrunnable, release
from holdfast.core.jobs.transitions import hold as hold_back
from holdfast.core.providers.holder import Holder
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.builders import a_job
from tests.contract.conftest import Database, Logger
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed, eventually, submitted


async def double(n: int) -> int:
    return 2 * n


def held_for_its_name(claim: Claim) -> Requeue:
    return hold_back(claim, "unknown here", held_by=Holder(job=claim.name, queue=claim.queue))


async def test_a_job_of_an_unknown_name_is_held_with_its_attempt(hold: Holdfast, store: Store) -> None:
    [job_id] = await submitted(store, a_job(name="from-tomorrow"))

    async with hold.worker(poll=0.05) as worker:
        job = await eventually(lambda: store.get(job_id), lambda job: job.retry_after is not None)

    assert (job.status, job.attempt, job.losses) == (Status.QUEUED, 0, 0)
    assert job.held_by == "no worker knows 'from-tomorrow'"
    last = (await store.events(job_id))[-1]
    assert (last.kind, last.meta) == (
        EventKind.HELD,
        {"reason": f"{worker.name} knows no job named 'from-tomorrow'"},
    )


async def test_a_worker_that_knows_the_job_takes_it_afterwards(
    hold: Holdfast, store: Store, database: Database
) -> None:
    [job_id] = await submitted(store, a_job(name="double", args='{"n":21}'))
    async with hold.worker(poll=0.05):
        await eventually(lambda: store.get(job_id), lambda job: job.retry_after is not None)

    async with Holdfast(database.url, logger=hold.runtime.logger) as newer:
        newer.job("double")(double)
        async with newer.worker(poll=0.05):
            job = await newer.wait(job_id, timeout=TIMEOUT)

    assert (job.result, job.last_attempt) == ("42", 1)


@pytest.mark.parametrize("waiting", [1, 40, 250])
async def test_jobs_held_for_their_name_all_go_to_the_worker_that_knows_it_and_to_no_other(
    hold: Holdfast, store: Store, database: Database, waiting: int
) -> None:
    ids = await submitted(store, *[a_job(name="double", args='{"n":21}') for _ in range(waiting)])
    async with hold.worker(slots=50, poll=0.05):
        for job_id in ids:
            await eventually(lambda it=job_id: store.get(it), lambda job: job.held_by is not None)  # type: ignore[misc]  # bound here
        async with Holdfast(database.url, logger=hold.runtime.logger) as newer:
            newer.job("double")(double)
            async with newer.worker(slots=5, poll=0.05):
                for job_id in ids:
                    assert (await newer.wait(job_id, timeout=TIMEOUT)).result == "42"

    for job_id in ids:
        kinds = [event.kind for event in await store.events(job_id)]
        assert kinds.count(EventKind.HELD) == 1


async def test_a_job_let_out_for_those_who_know_its_name_is_left_to_them(store: Store) -> None:
    held = await a_claim(store, a_job(name="double"))
    await store.settle("worker", [held_for_its_name(held)])
    assert await store.providers.release(Holder(job="double", queue="default"), limit=9) == 1
    [fresh] = await submitted(store, a_job(name="double"))

    [taken] = await store.claim("old", "default", limit=9, lease=LEASE, knows=["other"])
    [passed_by] = await store.claim("new", "default", limit=9, lease=LEASE, knows=["other", "double"])

    assert (taken.id, passed_by.id) == (fresh, held.id)


async def test_jobs_held_for_their_name_are_released_by_a_worker_that_serves_their_queue_only(
    hold: Holdfast, store: Store, database: Database, logger: Logger
) -> None:
    for queue in ("default", "mail"):
        await submitted(store, a_job(name="double", queue=queue, args='{"n":21}'))
        await store.settle("old", [held_for_its_name(await claimed(store, queue=queue))])
    hold.job("double")(double)

    async with hold.worker(queues=["mail"], poll=0.05):
        [mail] = [job for job in await store.find(JobFilter()) if job.queue == "mail"]
        assert (await hold.wait(mail.id, timeout=TIMEOUT)).result == "42"

    # Holders are looked at in order, so that of the queue "default" was passed over.
    assert await store.providers.holders() == [Holder(job="double", queue="default")]
    assert [(line["queue"], line["jobs"]) for line in logger.lines("jobs released")] == [("mail", 1)]


async def test_jobs_that_an_earlier_version_held_without_their_queue_are_released(
    hold: Holdfast, store: Store
) -> None:
    held = await a_claim(store, a_job(name="double", args='{"n":21}'))
    await store.settle("old", [hold_back(held, "unknown here", held_by=Holder(job="double"))])
    hold.job("double")(double)

    async with hold.worker(poll=0.05):
        assert (await hold.wait(held.id, timeout=TIMEOUT)).result == "42"


async def test_held_jobs_are_released_also_if_every_slot_is_busy(hold: Holdfast, store: Store) -> None:
    hold.job("double")(double)
    begun, done = asyncio.Event(), asyncio.Event()

    @hold.job("long")
    async def long() -> None:
        begun.set()
        await done.wait()

    await long.submit()
    async with hold.worker(slots=1, poll=0.05):
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()
        held = await a_claim(store, a_job(name="double", args='{"n":21}'))
        await store.settle("old", [held_for_its_name(held)])
        await eventually(lambda: store.get(held.id), lambda job: job.held_by is None)
        assert (await store.get(held.id)).status is Status.QUEUED
        done.set()
        assert (await hold.wait(held.id, timeout=TIMEOUT)).result == "42"


async def test_no_more_held_jobs_are_released_than_the_worker_has_slots(
    hold: Holdfast, store: Store, logger: Logger
) -> None:
    for _ in range(9):
        await store.settle(
            "old", [held_for_its_name(await a_claim(store, a_job(name="double", args='{"n":1}')))]
        )
    hold.job("double")(double)

    async with hold.worker(slots=4, poll=0.05):
        for job in await store.find(JobFilter()):
            await hold.wait(job.id, timeout=TIMEOUT)

    assert max(line["jobs"] for line in logger.lines("jobs released")) == 4


async def test_jobs_held_for_their_name_count_as_waiting_and_for_no_provider(
    hold: Holdfast, store: Store
) -> None:
    before = await hold.providers.list()
    held = await a_claim(store, a_job(name="double"))
    await store.settle("worker", [held_for_its_name(held)])

    [depth] = await store.queues.depths()
    assert (depth.state, depth.jobs) == ("waiting", 1)
    assert held_gauge(await store.providers.count_held(), ()) == {"provider_held": []}
    assert await hold.providers.list() == before == []
    last = (await store.events(held.id))[-1]
    assert "held_by" not in last.meta


async def test_unknown_jobs_do_not_keep_others_from_their_turn(hold: Holdfast, store: Store) -> None:
    await submitted(store, *[a_job(name="from-tomorrow", priority=9) for _ in range(40)])
    known = await hold.job("double")(double).submit(3)

    async with hold.worker(slots=2, poll=0.05):
        assert await known.result(timeout=TIMEOUT) == 6


async def test_a_name_is_warned_of_once_with_what_to_do(hold: Holdfast, store: Store, logger: Logger) -> None:
    ids = await submitted(store, *[a_job(name=name) for name in ("late", "early", "late", "late")])

    async with hold.worker(poll=0.05):
        for job_id in ids:
            await eventually(lambda it=job_id: store.get(it), lambda job: job.retry_after is not None)  # type: ignore[misc]  # bound here

    warnings = logger.lines("job name unknown")
    assert sorted(line["name"] for line in warnings) == ["early", "late"]
    assert {line["level"] for line in warnings} == {"warning"}
    assert all("aliases=" in line["message"] for line in warnings)


async def test_a_job_that_is_cancelled_while_it_is_put_aside_is_cancelled(
    hold: Holdfast, store: Store
) -> None:
    [job_id] = await submitted(store, a_job(name="from-tomorrow"))
    async with hold.worker(poll=0.05):
        await eventually(lambda: store.get(job_id), lambda job: job.retry_after is not None)

    assert await store.cancel(job_id) is Status.CANCELLED


async def test_the_store_says_why_a_job_went_back(hold: Holdfast, store: Store) -> None:
    aside = await a_claim(store)
    await store.settle("worker", [park_unrunnable(aside, "an unknown job", delay=timedelta(hours=1))])
    given_back = await a_claim(store)
    await store.settle("worker", [release(given_back, "worker shut down", delay=timedelta(hours=1))])
    [fresh] = await submitted(store, a_job(delay=timedelta(hours=1)))

    assert await store.reasons([aside.id, given_back.id, fresh]) == {
        aside.id: "an unknown job",
        given_back.id: "worker shut down",
    }


async def test_the_reason_for_a_retry_is_the_class_of_its_failure(hold: Holdfast, store: Store) -> None:
    @hold.job("flaky", attempts=2, backoff=Backoff.constant("5m"))
    async def flaky() -> None:
        raise Retryable("not yet")

    job = await flaky.submit()
    async with hold.worker(poll=0.05):
        await eventually(lambda: store.get(job.id), lambda job: job.retry_after is not None)

    assert await store.reasons([job.id]) == {job.id: "UNKNOWN"}
