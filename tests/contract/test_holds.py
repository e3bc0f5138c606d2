"""A job whose provider cannot be called is held: it costs no attempt, no claim meets it, and it is released later."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import JobFilter, Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.job import Claim, Submission
from holdfast.core.jobs.transitions import Transition, complete, fail, hold, park, park_unrunnable, release
from holdfast.core.providers.holder import Holder
from holdfast.ports import Hint, HintKind, Store
from holdfast.ports.store import Settled
from holdfast.types import EventKind
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, LONG, TIMEOUT, a_claim, claimed, submitted

WHY = "its breaker is open"
DECADE = timedelta(days=3_650)
LLM, CUSTOMER, SPEECH = Holder("llm"), Holder("llm", "customer-7"), Holder("speech")


async def a_held_job(store: Store, job: Submission | None = None, *, by: Holder = LLM) -> str:
    """Submit a job that is claimed and then held; nothing else may be ready."""
    job = job or a_job()
    await submitted(store, job)
    claim = await claimed(store, queue=job.queue)
    assert claim.id == job.id
    await settled(store, hold(claim, WHY, held_by=by))
    return job.id


async def settled(store: Store, change: Transition) -> None:
    assert await store.settle("worker", [change]) == [Settled.WRITTEN]


async def ready(store: Store, *, queue: str = "default") -> list[str]:
    """Claim all that can be claimed, and name it."""
    return [claim.id for claim in await store.claim("worker", queue, limit=100, lease=LEASE)]


async def test_a_held_job_keeps_its_attempt_and_says_who_holds_it_and_why(store: Store) -> None:
    job_id = await a_held_job(store)

    job = await store.get(job_id)
    assert (job.status, job.held_by, job.attempt, job.waiting) == (Status.QUEUED, "llm", 0, False)
    assert job.leased_by is None
    assert [found.held_by for found in await store.find(JobFilter())] == ["llm"]
    assert await store.reasons([job_id]) == {job_id: WHY}
    last = (await store.events(job_id))[-1]
    assert (last.kind, dict(last.meta)) == (EventKind.HELD, {"reason": WHY, "held_by": "llm"})


async def test_a_held_job_is_not_claimed_however_much_time_passes(store: Store, clock: DatabaseClock) -> None:
    await a_held_job(store)

    await clock.advance(DECADE)

    assert (await store.promote(limit=10)).promoted == 0
    assert await store.reclaim(limit=10) == []
    assert await ready(store) == []


async def test_jobs_behind_held_ones_are_claimed(store: Store) -> None:
    for _ in range(3):
        await a_held_job(store, a_job(priority=9))
    behind, elsewhere = await submitted(store, a_job(), a_job(queue="other"))

    assert await ready(store) == [behind]
    assert await ready(store, queue="other") == [elsewhere]


async def test_a_job_that_is_let_out_is_ready_and_its_claim_says_who_held_it(store: Store) -> None:
    job_id = await a_held_job(store)

    assert await store.providers.release(LLM, limit=10) == 1

    assert (await store.get(job_id)).held_by is None
    claim = await claimed(store)
    assert (claim.id, claim.attempt, claim.held_by) == (job_id, 1, LLM)


async def test_a_job_that_was_never_held_is_claimed_as_such(store: Store) -> None:
    assert (await a_claim(store)).held_by is None


async def test_who_has_been_held_longest_is_let_out_first(store: Store, clock: DatabaseClock) -> None:
    held = []
    for _ in range(3):
        held.append(await a_held_job(store))
        await clock.advance(timedelta(seconds=1))

    assert await store.providers.release(LLM, limit=2) == 2

    assert sorted(await ready(store)) == sorted(held[:2])


async def test_a_job_that_is_held_again_goes_to_the_back(store: Store, clock: DatabaseClock) -> None:
    first = await a_held_job(store)
    await clock.advance(timedelta(seconds=1))
    second = await a_held_job(store)
    await store.providers.release(LLM, limit=1)
    trial = await claimed(store)
    await clock.advance(timedelta(seconds=1))

    await settled(store, hold(trial, "the trial failed", held_by=LLM))

    assert trial.id == first
    await store.providers.release(LLM, limit=1)
    assert (await claimed(store)).id == second


async def test_news_does_not_change_who_has_been_held_longest(store: Store, clock: DatabaseClock) -> None:
    first = await a_held_job(store)
    await clock.advance(timedelta(seconds=1))
    await a_held_job(store)
    await clock.advance(timedelta(seconds=1))

    await store.signal(first, "approved", "1")

    assert (await store.get(first)).held_by == "llm"
    assert await ready(store) == []
    await store.providers.release(LLM, limit=1)
    assert (await claimed(store)).id == first


@pytest.mark.clause("JOB-10")
async def test_a_job_that_may_have_taken_workers_down_is_still_suspected_after_it_was_held(
    store: Store, clock: DatabaseClock
) -> None:
    await submitted(store, a_job())
    for _ in range(2):
        await claimed(store)
        await clock.advance(LEASE + timedelta(seconds=1))
        await store.reclaim(limit=10)

    await settled(store, hold(await claimed(store), WHY, held_by=LLM))
    await store.providers.release(LLM, limit=1)

    again = await claimed(store)
    assert (again.attempt, again.losses) == (3, 2)


async def test_only_the_holders_own_jobs_are_let_out(store: Store) -> None:
    await a_held_job(store, by=SPEECH)
    mine = await a_held_job(store, by=LLM)

    assert await store.providers.release(LLM, limit=10) == 1
    assert await store.providers.release(LLM, limit=10) == 0
    assert await store.providers.release(Holder("absent"), limit=10) == 0

    assert await ready(store) == [mine]


async def test_two_who_let_out_at_once_let_out_different_jobs(store: Store, other_store: Store) -> None:
    for _ in range(10):
        await a_held_job(store)

    out = await asyncio.gather(*[each.providers.release(LLM, limit=3) for each in (store, other_store) * 2])

    # A row that another process has locked may be left to it; nothing is counted twice.
    assert sum(out) == len(await ready(store))
    assert sum(out) + (await store.providers.count_held()).get(LLM, 0) == 10


async def test_holders_are_named_and_their_jobs_counted(store: Store) -> None:
    for holder in (SPEECH, LLM, LLM, CUSTOMER):
        await a_held_job(store, by=holder)

    assert set(await store.providers.holders()) == {LLM, CUSTOMER, SPEECH}
    assert await store.providers.count_held() == {LLM: 2, CUSTOMER: 1, SPEECH: 1}

    await store.providers.release(SPEECH, limit=1)
    await store.providers.release(LLM, limit=1)

    assert set(await store.providers.holders()) == {LLM, CUSTOMER}
    assert await store.providers.count_held() == {LLM: 1, CUSTOMER: 1}


async def test_there_are_no_holders_in_a_store_without_held_jobs(store: Store) -> None:
    await submitted(store, a_job(), a_job(delay=LONG))

    assert await store.providers.holders() == []
    assert await store.providers.count_held() == {}


async def test_a_held_job_is_cancelled_at_once(store: Store) -> None:
    job_id = await a_held_job(store)

    assert await store.cancel(job_id) is Status.CANCELLED

    assert (await store.get(job_id)).held_by is None
    assert await store.providers.count_held() == {}
    assert await store.providers.release(LLM, limit=10) == 0


async def test_a_deadline_reaches_a_held_job(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_held_job(store, a_job(deadline=LONG))
    [at_risk] = await store.find(JobFilter(at_risk=LONG))

    await clock.advance(LONG)

    assert at_risk.held_by == "llm"
    assert await store.expire(limit=10) == [job_id]
    job = await store.get(job_id)
    assert (job.status, job.held_by) == (Status.FAILED, None)
    assert await store.providers.holders() == []


async def test_a_job_whose_cancellation_is_requested_is_not_held(store: Store) -> None:
    claim = await a_claim(store)
    assert await store.cancel(claim.id) is Status.PROCESSING

    await settled(store, hold(claim, WHY, held_by=LLM))

    assert (await store.get(claim.id)).held_by is None
    assert await store.providers.holders() == []
    again = await claimed(store)
    assert (again.id, again.cancel_requested) == (claim.id, True)


POLICY = RetryPolicy(3, Backoff.constant(5))

REQUEUES: dict[str, Callable[[Claim], Transition]] = {
    "released": lambda claim: release(claim, "the worker stops"),
    "put-aside": lambda claim: park_unrunnable(claim, "unknown here", delay=LONG),
    "parked": lambda claim: park(claim, "sleeps", delay=LONG, seen=0, awaits=False),
    "retried": lambda claim: fail(claim, a_failure(), POLICY, roll=0.5, attempt=1),
}


@pytest.mark.parametrize("requeue", REQUEUES)
async def test_a_job_that_goes_back_for_another_reason_has_no_holder(
    store: Store, clock: DatabaseClock, requeue: str
) -> None:
    await a_held_job(store)
    await store.providers.release(LLM, limit=1)
    claim = await claimed(store)

    await settled(store, REQUEUES[requeue](claim))

    assert (await store.get(claim.id)).held_by is None
    assert await store.providers.release(LLM, limit=10) == 0
    await clock.advance(LONG)
    await store.promote(limit=10)
    assert (await claimed(store)).held_by is None


async def test_a_job_whose_worker_died_after_it_was_let_out_still_says_who_held_it(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_held_job(store)
    await store.providers.release(LLM, limit=1)
    await claimed(store)

    await clock.advance(LEASE + timedelta(seconds=1))
    assert await store.reclaim(limit=10) == [job_id]

    assert (await claimed(store)).held_by == LLM


async def test_a_job_that_was_held_and_failed_comes_back_as_new(store: Store) -> None:
    job_id = await a_held_job(store)
    await store.providers.release(LLM, limit=1)
    claim = await claimed(store)
    await settled(store, fail(claim, a_failure(), POLICY, roll=0.5, attempt=POLICY.attempts))

    job = await store.retry(job_id)

    assert job.held_by is None
    assert (await claimed(store)).held_by is None


async def test_a_job_that_was_let_out_ends_like_any_other(store: Store) -> None:
    job_id = await a_held_job(store)
    await store.providers.release(LLM, limit=1)

    await settled(store, complete(await claimed(store), '"done"'))

    job = await store.get(job_id)
    assert (job.status, job.held_by, job.last_attempt) == (Status.COMPLETED, None, 1)


async def test_a_parent_that_is_held_is_not_woken_by_the_end_of_a_child(store: Store) -> None:
    child = a_job(queue="children")
    await submitted(store, child)
    parent = await a_claim(store)
    assert await store.await_jobs(parent.id, parent.token, [child.id])
    await settled(store, hold(parent, WHY, held_by=LLM))

    await settled(store, complete(await claimed(store, queue="children"), "1"))
    await store.wake(limit=10)

    assert (await store.get(parent.id)).held_by == "llm"
    assert await ready(store) == []


async def test_a_hint_goes_out_whenever_jobs_are_let_out(store: Store) -> None:
    received: list[Hint] = []
    unsubscribe = store.listen(received.append)
    await submitted(store, a_job(queue="mail"))

    async with asyncio.timeout(TIMEOUT):
        # The submission accounts for two of them at most; a listener that is only just connecting misses some.
        while received.count(Hint(HintKind.READY, "mail")) < 5:
            await settled(store, hold(await claimed(store, queue="mail"), WHY, held_by=LLM))
            assert await store.providers.release(LLM, limit=1) == 1
            await asyncio.sleep(0)
    unsubscribe()
