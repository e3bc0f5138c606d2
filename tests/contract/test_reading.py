"""What a caller reads of jobs: one, many, in pages, and only their own."""

import asyncio

import pytest

from holdfast import Holdfast, Job, JobFilter, Status
from holdfast.core.jobs.transitions import complete
from holdfast.errors import JobNotFound
from holdfast.ports import Hint, HintKind, Store
from tests.builders import a_job
from tests.contract.conftest import Database
from tests.contract.steps import TIMEOUT, a_claim, a_completed_job, a_failed_job, claimed, submitted


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


async def test_jobs_are_listed_newest_first_live_and_ended_alike(store: Store) -> None:
    completed = await a_completed_job(store)
    running = await a_claim(store)
    failed = await a_failed_job(store)
    [queued] = await submitted(store, a_job())

    found = await store.find(JobFilter())

    assert ids(found) == [queued, failed.id, running.id, completed.id]
    assert [job.status for job in found] == [
        Status.QUEUED,
        Status.FAILED,
        Status.PROCESSING,
        Status.COMPLETED,
    ]


async def test_a_filter_takes_what_fits_all_of_it(store: Store) -> None:
    matching, *_ = await submitted(
        store,
        a_job(name="review", owner="ada", queue="slow"),
        a_job(name="review", owner="ada"),
        a_job(name="review", owner="bob", queue="slow"),
        a_job(owner="ada", queue="slow"),
    )
    await a_completed_job(store, a_job(name="review", owner="ada"))

    everything = JobFilter(status=Status.QUEUED, name="review", owner="ada", queue="slow")

    assert ids(await store.find(everything)) == [matching]
    assert len(await store.find(JobFilter(owner="ada"))) == 4
    assert len(await store.find(JobFilter(name="review", status=Status.COMPLETED))) == 1
    assert await store.find(JobFilter(owner="absent")) == []


async def test_pages_meet_without_gap_or_overlap(store: Store) -> None:
    submitted_ids = await submitted(store, *[a_job() for _ in range(7)])
    for _ in range(3):
        claim = await claimed(store)
        await store.settle("worker", [complete(claim, "1")])

    pages, before = [], None
    while page := ids(await store.find(JobFilter(limit=3, before=before))):
        pages.append(page)
        before = page[-1]

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == submitted_ids[::-1]


async def test_a_job_is_read_by_its_owner_alone(store: Store) -> None:
    done = await a_completed_job(store, a_job(owner="ada"))
    [waiting] = await submitted(store, a_job(owner="ada"))

    for job_id in (done.id, waiting):
        assert (await store.get(job_id, owner="ada")).id == job_id
        assert (await store.get(job_id)).id == job_id
        for owner in ("bob", ""):
            with pytest.raises(JobNotFound):
                await store.get(job_id, owner=owner)


async def test_those_who_wait_learn_which_jobs_have_ended(store: Store) -> None:
    completed, failed = await a_completed_job(store), await a_failed_job(store)
    running = await a_claim(store)
    [queued, cancelled] = await submitted(store, a_job(), a_job())
    await store.cancel(cancelled)

    ended = await store.await_ends([completed.id, failed.id, running.id, queued, cancelled])

    assert set(ended) == {completed.id, failed.id, cancelled}
    assert await store.await_ends([]) == []


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_those_who_wait_are_notified_when_a_job_ends(store: Store, end: str) -> None:
    received: asyncio.Queue[Hint] = asyncio.Queue()
    unsubscribe = store.listen(received.put_nowait)
    awaited: list[str] = []

    async with asyncio.timeout(TIMEOUT):
        ended_job = ""
        while ended_job not in awaited:  # a listener that is only just connecting misses the first ones
            awaited += await submitted(store, a_job())
            await store.await_ends(awaited)
            if end == "completed":
                await store.settle("worker", [complete(await claimed(store), "1")])
            else:
                await store.cancel(awaited[-1])
            hint = await received.get()
            ended_job = hint.subject if hint.kind is HintKind.FINISHED else ""

    unsubscribe()


async def test_a_listener_gets_only_the_kinds_of_hints_that_it_asked_for(store: Store) -> None:
    ready: asyncio.Queue[Hint] = asyncio.Queue()
    ends: asyncio.Queue[Hint] = asyncio.Queue()
    unsubscribe = [
        store.listen(ready.put_nowait, (HintKind.READY, HintKind.CANCEL)),
        store.listen(ends.put_nowait, (HintKind.FINISHED,)),
    ]

    async with asyncio.timeout(TIMEOUT):
        kinds = {(await ready.get()).kind}  # a store announces that it listens
        [job] = await submitted(store, a_job())
        await store.await_ends([job])
        await store.settle("worker", [complete(await claimed(store), "1")])
        while (await ends.get()).subject != job:
            pass

    kinds |= {ready.get_nowait().kind for _ in range(ready.qsize())}
    assert kinds == {HintKind.READY}
    for stop in unsubscribe:
        stop()


async def test_a_store_answers_what_a_doctor_asks(store: Store) -> None:
    facts = await store.facts()

    assert facts["server_version"]
    assert facts.get("synchronous") == "FULL" or facts.get("fsync") in ("on", "off")


async def test_the_schema_is_current_and_applying_it_again_changes_nothing(store: Store) -> None:
    [job_id] = await submitted(store, a_job())

    before = await store.apply_schema()

    assert before.current
    assert await store.schema_state() == before
    assert (await store.get(job_id)).status is Status.QUEUED


async def test_an_id_may_be_spelled_as_any_uuid(hold: Holdfast) -> None:
    @hold.job("work")
    async def work() -> str:
        return "done"

    handle = hold.handle((await work.submit()).id.upper())
    waiting = asyncio.create_task(handle.result(timeout=TIMEOUT))
    async with hold.worker(poll=0.05):
        assert await waiting == "done"

    assert len(await handle.events()) == 3


async def test_the_facts_of_a_database_can_be_the_first_question(database: Database) -> None:
    async with Holdfast(database.url) as hold:
        opened = await hold.database.facts()

    fresh = Holdfast(database.url)
    facts = await fresh.database.facts()
    await fresh.close()

    assert facts["server_version"] == opened["server_version"]
    assert facts.keys() == opened.keys()
