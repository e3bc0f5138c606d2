"""A job that may have taken its workers down waits without cost, and answers for the next loss."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobHandle, Status
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import release
from holdfast.errors import JobCancelled
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed, submitted

PAST_LEASE = LEASE + timedelta(seconds=1)


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_that_was_not_begun_loses_nothing_with_its_worker(
    store: Store, clock: DatabaseClock
) -> None:
    await a_suspected_job(store, clock)
    [waiting] = await store.claim("worker", "default", limit=1, lease=LEASE)

    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)

    again = await claimed(store)
    assert (waiting.attempt, waiting.losses) == (2, 1)
    assert (again.attempt, again.losses, again.failed_runs) == (2, 1, 1)


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_spends_its_attempt_when_it_is_begun(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_suspected_job(store, clock)
    [waiting] = await store.claim("worker", "default", limit=1, lease=LEASE)
    before = (await store.get(job_id)).attempt
    lease = (waiting.id, waiting.token)

    answers = [await store.begin([lease]), await store.begin([lease])]

    assert answers == [[True], [True]]
    assert (before, (await store.get(job_id)).attempt) == (1, 2)


@pytest.mark.clause("JOB-6")
async def test_only_the_holder_of_the_lease_begins_a_suspected_job(
    store: Store, clock: DatabaseClock
) -> None:
    await a_suspected_job(store, clock)
    stale = await claimed(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)

    queued = await store.begin([(stale.id, stale.token + 1)])
    [holder] = await store.claim("worker", "default", limit=1, lease=LEASE)

    leases = [(stale.id, stale.token), (holder.id, holder.token)]
    assert (queued, await store.begin(leases)) == ([False], [False, True])
    assert (await store.get(holder.id)).attempt == 3


@pytest.mark.clause("JOB-10")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_suspected_job_that_is_given_back_gets_an_attempt_only_if_it_had_spent_one(
    store: Store, clock: DatabaseClock, begun: bool
) -> None:
    await a_suspected_job(store, clock)
    [waiting] = await store.claim("worker", "default", limit=1, lease=LEASE)
    if begun:
        await store.begin([(waiting.id, waiting.token)])

    await store.settle("worker", [release(waiting, "worker shut down")])

    again = await claimed(store)
    assert (again.attempt, again.losses) == (2, 1)


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_that_is_given_back_keeps_its_losses(
    store: Store, clock: DatabaseClock
) -> None:
    suspected = await a_suspected_job(store, clock)
    await submitted(store, a_job())
    await claimed_by_one(store, 2)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=2)  # the suspected job is held responsible, and its neighbour is excused
    begun = await claimed_by_one(store, 2)

    back = [release(claim, "worker shut down") for claim in begun]
    await store.settle("worker", back)

    again = {claim.id: claim for claim in await claimed_by_one(store, 2)}
    seen = {
        claim.id: (claim.attempt, claim.losses, claim.excused, claim.failed_runs) for claim in again.values()
    }
    assert seen.pop(suspected) == (3, 2, False, 2)
    assert list(seen.values()) == [(1, 0, True, 0)]


@pytest.mark.clause("JOB-10")
async def test_the_neighbours_of_a_suspected_job_get_their_attempts_back(
    store: Store, clock: DatabaseClock
) -> None:
    suspected = await a_suspected_job(store, clock)
    await submitted(store, a_job(), a_job())
    await claimed_by_one(store, 3)

    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=3)

    seen = {claim.id: claim for claim in await claimed_by_one(store, 3)}
    guilty = seen.pop(suspected)
    assert (guilty.attempt, guilty.losses, guilty.failed_runs) == (3, 2, 2)
    excused = [(claim.attempt, claim.losses, claim.failed_runs, claim.excused) for claim in seen.values()]
    assert excused == [(1, 0, 0, True)] * 2
    assert all(claim.suspected for claim in seen.values())


@pytest.mark.clause("JOB-10")
async def test_a_worker_is_remembered_whose_leases_run_out_one_after_the_other(
    store: Store, clock: DatabaseClock
) -> None:
    await a_suspected_job(store, clock)
    await claimed(store, "doomed")
    await clock.advance(LEASE / 2)
    await submitted(store, a_job())
    await claimed(store, "doomed")
    await clock.advance(LEASE / 2 + timedelta(seconds=1))
    first = await store.reclaim(limit=9)
    await clock.advance(LEASE / 2)

    second = await store.reclaim(limit=9)

    assert (len(first), len(second)) == (1, 1)
    [neighbour] = [claim for claim in await claimed_by_one(store, 2) if claim.id == second[0]]
    assert (neighbour.attempt, neighbour.losses, neighbour.excused) == (1, 0, True)


@pytest.mark.clause("JOB-10")
async def test_a_neighbour_is_excused_before_the_lease_of_the_suspected_job_has_run_out(
    store: Store, clock: DatabaseClock
) -> None:
    await a_suspected_job(store, clock)
    [suspected] = await store.claim("doomed", "default", limit=1, lease=2 * LEASE)
    await store.begin([(suspected.id, suspected.token)])
    await submitted(store, a_job())
    neighbour = await claimed(store, "doomed")
    await clock.advance(PAST_LEASE)

    lost = await store.reclaim(limit=9)

    assert lost == [neighbour.id]
    assert (await claimed(store)).excused


@pytest.mark.clause("JOB-10")
async def test_a_job_is_excused_once_in_a_row(store: Store, clock: DatabaseClock) -> None:
    await a_suspected_job(store, clock)
    [killer] = await submitted(store, a_job())
    seen = []

    for _ in range(3):
        claims = {claim.id: claim for claim in await claimed_by_one(store, 2)}
        seen.append((claims[killer].attempt, claims[killer].losses))
        await clock.advance(PAST_LEASE)
        await store.reclaim(limit=2)

    assert seen == [(1, 0), (1, 0), (2, 1)]


@pytest.mark.clause("JOB-10")
async def test_jobs_that_are_lost_together_without_a_suspected_one_count_it_once_each(
    store: Store, clock: DatabaseClock
) -> None:
    await submitted(store, a_job(), a_job())
    await claimed_by_one(store, 2)

    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=2)

    again = await claimed_by_one(store, 2)
    assert [(claim.attempt, claim.losses, claim.excused) for claim in again] == [(2, 1, False)] * 2


@pytest.mark.clause("JOB-10")
async def test_a_job_with_one_attempt_is_not_begun_again_though_another_is_held_responsible(
    hold: Holdfast, store: Store
) -> None:
    begun: list[int] = []

    @hold.job("once", attempts=1)
    async def once(number: int) -> None:
        begun.append(number)

    @hold.job("suspected")
    async def suspected() -> None: ...

    await suspected.submit()
    await lose_their_leases(store, 1)
    job = await once.submit(1)
    await lose_their_leases(store, 2)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=TIMEOUT)

    assert failed.value.failure.error_class is ErrorClass.WORKER_LOST
    assert begun == []


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_runs_beside_others_and_the_last_time_beside_no_other_suspected_one(
    hold: Holdfast, store: Store
) -> None:
    running: set[int] = set()
    beside: dict[int, set[int]] = {}

    @hold.job("look around")
    async def look_around(number: int) -> None:
        running.add(number)
        beside[number] = set(running)
        for _ in range(50):  # long enough for the worker to claim more
            await asyncio.sleep(0.001)
            beside[number] |= running
        running.discard(number)

    suspected = await look_around.submit_many((number,) for number in range(3))
    for _ in range(2):
        await lose_their_leases(store, len(suspected))
    others = await look_around.submit_many((number,) for number in range(3, 9))
    async with hold.worker(poll=0.05, slots=12):
        await all_ended([*suspected, *others])

    assert [beside[number] & {0, 1, 2} for number in range(3)] == [{0}, {1}, {2}]
    assert beside[0] > {0}
    assert [job.attempt for job in [await one.read() for one in suspected]] == [3, 3, 3]


async def test_a_suspected_job_that_is_to_be_cancelled_does_not_wait_for_its_turn(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    """Put back to wait, it would be ready at once, and be claimed and put back without end."""
    ended = asyncio.Event()

    @hold.job("wait")
    async def wait() -> None:
        await ended.wait()

    _, cancelled = await wait.submit_many([(), ()])
    for _ in range(2):
        await lose_their_leases(store, 2)
    await store.claim("dead", "default", limit=2, lease=LEASE)
    await cancelled.cancel()
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=2)
    async with hold.worker(poll=0.05, slots=2):
        with pytest.raises(JobCancelled):
            await cancelled.result(timeout=TIMEOUT)
        runs = [event for event in await cancelled.events() if event.kind == "processing"]
        ended.set()

    assert len(runs) <= 4


@pytest.mark.clause("JOB-10")
async def test_after_a_first_loss_a_quarter_of_the_slots_may_run_suspected_jobs(
    hold: Holdfast, store: Store
) -> None:
    running: set[int] = set()
    most = 0

    @hold.job("look around")
    async def look_around(number: int) -> None:
        nonlocal most
        running.add(number)
        for _ in range(20):
            most = max(most, len(running))
            await asyncio.sleep(0.001)
        running.discard(number)

    suspected = await look_around.submit_many((number,) for number in range(12))
    await lose_their_leases(store, len(suspected))
    async with hold.worker(poll=0.05, slots=24):
        await all_ended(suspected)

    assert most == 24 // 4


@pytest.mark.clause("JOB-10")
async def test_a_job_that_lost_a_worker_in_each_of_its_attempts_fails_and_is_not_begun_again(
    hold: Holdfast, store: Store
) -> None:
    begun: list[int] = []

    @hold.job("deadly", attempts=3)
    async def deadly(number: int) -> None:
        begun.append(number)

    job = await deadly.submit(1)
    for _ in range(3):
        await lose_their_leases(store, 1)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=TIMEOUT)

    assert failed.value.failure.error_class is ErrorClass.WORKER_LOST
    assert begun == []


@pytest.mark.clause("JOB-10")
async def test_a_shutdown_costs_waiting_suspected_jobs_nothing(hold: Holdfast, store: Store) -> None:
    begun = asyncio.Event()

    @hold.job("linger")
    async def linger(number: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    suspected = await linger.submit_many((number,) for number in range(3))
    for _ in range(2):
        await lose_their_leases(store, len(suspected))
    async with hold.worker(poll=0.05, slots=10, grace=0):
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()

    jobs = [await one.read() for one in suspected]
    assert [(job.status, job.attempt) for job in jobs] == [(Status.QUEUED, 2)] * 3
    assert [job.losses for job in jobs[1:]] == [2, 2]


async def test_there_may_be_nothing_to_begin(store: Store) -> None:
    await submitted(store, a_job())

    assert await store.begin([]) == []


async def a_suspected_job(store: Store, clock: DatabaseClock) -> str:
    """Submit a job, and let it lose its first worker; return its id."""
    claim = await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)
    return claim.id


async def claimed_by_one(store: Store, count: int) -> list[Claim]:
    """Claim as one worker, and begin what is claimed."""
    claims = await store.claim("worker", "default", limit=count, lease=LEASE)
    assert len(claims) == count
    await store.begin([(claim.id, claim.token) for claim in claims if claim.suspected])
    return claims


async def lose_their_leases(store: Store, count: int) -> None:
    """Claim and begin as a worker does that is dead a moment later."""
    claims = await store.claim("dead", "default", limit=count, lease=timedelta(milliseconds=1))
    assert len(claims) == count
    await store.begin([(claim.id, claim.token) for claim in claims if claim.suspected])
    lost: list[str] = []
    async with asyncio.timeout(TIMEOUT):
        while len(lost) < count:
            lost += await store.reclaim(limit=count)


async def all_ended(jobs: list[JobHandle[None]]) -> None:
    for job in jobs:
        await job.result(timeout=TIMEOUT)
