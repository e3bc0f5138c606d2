"""A job that sleeps, or waits for a signal or for other jobs, holds no slot and goes on where it stood."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import asyncpg
import pytest

from holdfast import Holdfast, JobFailed, Status
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import complete, park
from holdfast.errors import ConfigError, JobNotFound, ResultTimeout, SignalTimeout, StateRefused
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.stores.queries import Queries
from holdfast.types import EventKind
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import LEASE, LONG, TIMEOUT, a_claim, claimed, eventually, submitted


async def parked(store: Store, claim: Claim, *, seen: int = 0, awaits: bool = False) -> None:
    assert await store.settle("worker", [park(claim, "waits", delay=LONG, seen=seen, awaits=awaits)]) == [
        Settled.WRITTEN
    ]


async def ready(store: Store) -> list[str]:
    return [claim.id for claim in await store.claim("worker", "default", limit=10, lease=LEASE)]


async def test_a_parked_job_holds_no_lease_and_no_attempt(store: Store) -> None:
    claim = await a_claim(store)

    await parked(store, claim)

    job = await store.get(claim.id)
    assert (job.status, job.waiting, job.attempt, job.leased_by) == (Status.QUEUED, True, 0, None)
    assert await ready(store) == []
    assert (await store.events(claim.id))[-1].kind is EventKind.PARKED


async def test_a_signal_wakes_a_job_that_waits(store: Store) -> None:
    claim = await a_claim(store)
    await parked(store, claim)

    await store.signal(claim.id, "approved", '{"by":"ada"}')

    again = await claimed(store)
    assert (again.id, again.signals) == (claim.id, 1)
    [signal] = await store.signals([claim.id])
    assert (signal.number, signal.name, signal.data) == (1, "approved", '{"by":"ada"}')


async def test_a_signal_that_came_just_before_the_job_was_parked_is_not_missed(store: Store) -> None:
    claim = await a_claim(store)
    await store.signal(claim.id, "approved", "null")

    await parked(store, claim, seen=0)

    assert await ready(store) == [claim.id]


async def test_a_signal_that_the_job_has_seen_does_not_wake_it_again(store: Store) -> None:
    claim = await a_claim(store)
    await store.signal(claim.id, "approved", "null")

    await parked(store, claim, seen=1)

    assert await ready(store) == []


async def test_a_signal_does_not_shorten_the_wait_for_a_retry(store: Store) -> None:
    [job_id] = await submitted(store, a_job(delay=LONG))

    await store.signal(job_id, "approved", "null")

    assert await ready(store) == []
    assert (await store.get(job_id)).retry_after is not None


async def test_a_signal_for_a_job_that_has_ended_or_is_anothers_is_refused(store: Store) -> None:
    claim = await a_claim(store, a_job(owner="ada"))
    with pytest.raises(JobNotFound):
        await store.signal(claim.id, "approved", "null", owner="bob")
    await store.settle("worker", [complete(claim, "1")])

    with pytest.raises(StateRefused, match="no signal reaches it"):
        await store.signal(claim.id, "approved", "null", owner="ada")


async def test_signals_and_parking_race_and_none_is_missed(store: Store, other_store: Store) -> None:
    for _ in range(30):
        claim = await a_claim(store)

        await asyncio.gather(parked(store, claim), other_store.signal(claim.id, "go", "null"))

        assert await ready(store) == [claim.id]


async def test_a_parent_is_woken_when_the_last_job_it_waits_for_has_ended(store: Store) -> None:
    parent = await a_claim(store)
    ids = await submitted(store, a_job(), a_job())
    assert await store.await_jobs(parent.id, parent.token, ids)
    await parked(store, parent, awaits=True)
    first, second = await store.claim("worker", "default", limit=10, lease=LEASE)

    await store.settle("worker", [complete(first, "1")])
    await store.wake(limit=10)
    assert await ready(store) == []
    await store.settle("worker", [complete(second, "2")])
    await store.wake(limit=10)

    assert await ready(store) == [parent.id]
    assert {end.id: end.result for end in await store.ends(ids)} == {first.id: "1", second.id: "2"}


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_every_kind_of_end_wakes_the_parent(store: Store, clock: DatabaseClock, how: str) -> None:
    parent = await a_claim(store)
    [child] = await submitted(store, a_job(deadline=timedelta(seconds=30)))
    await store.await_jobs(parent.id, parent.token, [child])
    await parked(store, parent, awaits=True)

    if how == "cancelled":
        await store.cancel(child)
    else:
        await clock.advance(timedelta(minutes=1))
        await store.expire(limit=10)
    await store.wake(limit=10)

    assert await ready(store) == [parent.id]


async def test_a_child_that_ended_before_the_parent_was_parked_is_not_missed(store: Store) -> None:
    parent = await a_claim(store)
    await submitted(store, a_job())
    child = await claimed(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await store.settle("worker", [complete(child, "1")])
    await store.wake(limit=10)

    await parked(store, parent, awaits=True)

    assert await ready(store) == [parent.id]


async def test_a_worker_that_lost_its_lease_registers_no_wait(store: Store) -> None:
    claim = await a_claim(store)
    [child] = await submitted(store, a_job())

    assert not await store.await_jobs(claim.id, claim.token + 2, [child])

    assert (await store.get(claim.id)).pending == 0


async def test_children_end_while_the_parent_registers_and_none_is_missed(
    store: Store, other_store: Store
) -> None:
    for _ in range(20):
        parent = await a_claim(store)
        ids = await submitted(store, a_job(), a_job(), a_job())
        children = await store.claim("worker", "default", limit=3, lease=LEASE)

        async def register(parent: Claim = parent, ids: list[str] = ids) -> None:
            await store.await_jobs(parent.id, parent.token, ids)
            await parked(store, parent, awaits=True)

        async def finish(children: list[Claim] = children) -> None:
            for child in children:
                await other_store.settle("worker", [complete(child, "1")])
                await other_store.wake(limit=10)

        await asyncio.gather(register(), finish())
        await store.wake(limit=10)

        assert await ready(store) == [parent.id]
        await store.cancel(parent.id)


async def test_a_job_that_the_parent_gave_up_on_does_not_keep_it_waiting(store: Store) -> None:
    parent = await a_claim(store)
    given_up, awaited = await submitted(store, a_job(queue="unserved"), a_job())
    await store.await_jobs(parent.id, parent.token, [given_up])
    assert await store.await_jobs(parent.id, parent.token, [awaited])
    await parked(store, parent, awaits=True)

    await store.settle("worker", [complete(await claimed(store), "1")])
    await store.wake(limit=10)

    assert await ready(store) == [parent.id]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)  # the one that has writers side by side
async def test_an_end_that_is_announced_while_the_parent_registers_is_not_counted(
    store: Store, database: Database
) -> None:
    parent = await a_claim(store)
    await submitted(store, a_job())
    child = await claimed(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await store.settle("worker", [complete(child, "1")])
    waker = await asyncpg.connect(database.url)

    async with waker.transaction():
        await waker.fetch(Queries("holdfast.stores.postgres")["wake"], 10)
        registering = asyncio.create_task(store.await_jobs(parent.id, parent.token, [child.id]))
        async with asyncio.timeout(TIMEOUT):
            while not await waker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.005)
    await registering
    await waker.close()

    assert (await store.get(parent.id)).pending == 0


async def test_a_sleeping_job_is_reached_by_cancel_and_by_its_deadline(
    store: Store, clock: DatabaseClock
) -> None:
    first = await a_claim(store)
    await parked(store, first)
    second = await a_claim(store, a_job(deadline=timedelta(seconds=30)))
    await parked(store, second)

    assert await store.cancel(first.id) is Status.CANCELLED
    await clock.advance(timedelta(minutes=1))
    assert await store.expire(limit=10) == [second.id]


async def test_a_job_sleeps_without_a_slot_and_runs_no_stage_twice(hold: Holdfast) -> None:
    runs: list[str] = []

    @hold.stage("fetch")
    async def fetch() -> str:
        runs.append("fetch")
        return "page"

    @hold.job("sleeper")
    async def sleeper() -> str:
        runs.append("run")
        page = await fetch()
        await hold.sleep(0.3)
        return page

    @hold.job("other")
    async def other() -> None: ...

    async with hold.worker(slots=1, poll=0.05):
        job = await sleeper.submit()
        await eventually(job.read, lambda found: found.waiting)
        await (await other.submit()).result(timeout=TIMEOUT)
        assert await job.result(timeout=TIMEOUT) == "page"

    assert runs == ["run", "fetch", "run"]
    assert (await job.read()).last_attempt == 1


async def test_signals_are_taken_in_order_each_by_one_wait(hold: Holdfast) -> None:
    @hold.job("talk")
    async def talk() -> list[object]:
        return [await hold.wait_for("word"), await hold.wait_for("word"), await hold.wait_for("end")]

    async with hold.worker(poll=0.05):
        job = await talk.submit()
        await hold.signal(job.id, "word", "one")
        await hold.signal(job.id, "end", {"n": 3})
        await eventually(job.read, lambda found: found.waiting)
        await hold.signal(job.id, "word", "two")

        assert await job.result(timeout=TIMEOUT) == ["one", "two", {"n": 3}]


async def test_a_wait_for_a_signal_can_run_out(hold: Holdfast) -> None:
    @hold.job("waiting")
    async def waiting() -> str:
        try:
            await hold.wait_for("approved", timeout=0.2)
        except SignalTimeout:
            return "no signal"
        return "approved"

    async with hold.worker(poll=0.05):
        assert await (await waiting.submit()).result(timeout=TIMEOUT) == "no signal"


async def test_a_job_that_leaves_a_timeout_alone_is_not_tried_again(hold: Holdfast) -> None:
    @hold.job("waiting", attempts=3)
    async def waiting() -> None:
        await hold.wait_for("approved", timeout=0.1)

    async with hold.worker(poll=0.05):
        job = await waiting.submit()
        with pytest.raises(JobFailed, match="no signal 'approved' came"):
            await job.result(timeout=TIMEOUT)

    assert EventKind.RETRY not in [event.kind for event in await job.events()]


async def test_a_parent_collects_the_results_of_many_children_with_one_slot(hold: Holdfast) -> None:
    runs: list[int] = []

    @hold.job("child")
    async def child(number: int) -> int:
        return number * number

    @hold.job("parent")
    async def parent(count: int) -> int:
        runs.append(count)
        handles = await child.submit_many((number,) for number in range(count))
        return sum(await asyncio.gather(*[handle.result() for handle in handles]))

    async with hold.worker(slots=1, poll=0.05):
        job = await parent.submit(20)
        assert await job.result(timeout=TIMEOUT) == sum(number * number for number in range(20))

    assert len(runs) == 2
    assert len(await hold.find()) == 21


async def test_a_parent_is_notified_of_a_child_that_failed(hold: Holdfast) -> None:
    @hold.job("child")
    async def child() -> None:
        raise TypeError("a bug")

    @hold.job("parent")
    async def parent() -> str:
        handle = await child.submit()
        try:
            await handle.result()
        except JobFailed as error:
            return str(error.failure.error_class)
        return "fine"

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == "BUG"


async def test_a_wait_for_a_child_can_run_out(hold: Holdfast) -> None:
    @hold.job("child", queue="unserved")
    async def child() -> None: ...

    @hold.job("parent")
    async def parent() -> str:
        handle = await child.submit()
        try:
            await handle.result(timeout=0.2)
        except ResultTimeout:
            return "gave up"
        return "fine"

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == "gave up"


async def test_a_parent_that_gave_up_on_one_child_is_notified_of_the_next(hold: Holdfast) -> None:
    @hold.job("never", queue="unserved")
    async def never() -> None: ...

    @hold.job("child")
    async def child() -> str:
        return "here"

    @hold.job("parent")
    async def parent() -> str:
        with suppress(ResultTimeout):
            await (await never.submit()).result(timeout=0.1)
        return await (await child.submit()).result()

    async with hold.worker(poll=0.05):
        assert await (await parent.submit()).result(timeout=TIMEOUT) == "here"


async def test_waiting_is_for_a_jobs_function_and_says_so(hold: Holdfast) -> None:
    @hold.stage("waits_inside")
    async def waits_inside() -> None:
        await hold.sleep(1)

    @hold.job("wrong", attempts=1)
    async def wrong() -> None:
        await waits_inside()

    with pytest.raises(ConfigError, match="outside a job's function"):
        await hold.sleep(1)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="not inside a stage"):
            await (await wrong.submit()).result(timeout=TIMEOUT)
