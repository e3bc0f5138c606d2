"""A job has ended by its deadline, or it has timed out; a result that comes later is kept, and applied by an operator only."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobFilter, Status, current
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.job import Claim, Job
from holdfast.core.jobs.transitions import cancel, complete, fail
from holdfast.errors import StateRefused
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.types import EventKind, PublicCode
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed, eventually, submitted

SOON = timedelta(minutes=5)
POLICY = RetryPolicy(3, Backoff.constant(60))


async def a_job_with_a_deadline(store: Store) -> str:
    [job_id] = await submitted(store, a_job(deadline=SOON))
    return job_id


async def a_claim_with_a_deadline(store: Store) -> Claim:
    return await a_claim(store, a_job(deadline=SOON))


def has_timed_out(job: Job) -> bool:
    return (
        job.status is Status.FAILED
        and job.failure is not None
        and job.failure.error_class is ErrorClass.TIMEOUT
    )


@pytest.mark.clause("SLA-1")
async def test_the_deadline_counts_from_submission_whatever_happens_until_then(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(timedelta(minutes=2))
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])

    job = await store.get(claim.id)

    assert job.deadline_at is not None
    assert job.deadline_at - job.created_at == SOON
    assert claim.time_left == pytest.approx(SOON.total_seconds(), abs=5)


@pytest.mark.clause("SLA-2")
async def test_a_job_that_waits_for_a_worker_times_out(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_job_with_a_deadline(store)
    assert await store.expire(limit=10) == []
    await clock.advance(SOON)

    assert await store.expire(limit=10) == [job_id]

    job = await store.get(job_id)
    assert has_timed_out(job)
    assert job.failure is not None
    assert (job.failure.code, job.failure.retryable) == (PublicCode.EXPIRED, False)
    assert job.timed_out_at is not None
    assert job.timed_out_at == job.finished_at
    assert await store.claim("worker", "default", limit=10, lease=LEASE) == []
    assert [event.kind for event in await store.events(job_id)] == [EventKind.QUEUED, EventKind.EXPIRED]


@pytest.mark.clause("SLA-2")
async def test_a_job_that_waits_for_its_retry_times_out(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim_with_a_deadline(store)
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
    await clock.advance(SOON)

    await store.expire(limit=10)

    assert has_timed_out(await store.get(claim.id))


@pytest.mark.clause("SLA-2")
async def test_a_running_job_times_out_and_its_worker_can_write_nothing_more(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.expire(limit=10)

    stage, retry = a_stage(claim), fail(claim, a_failure(), POLICY, roll=0, attempt=1)

    assert await store.settle("worker", [stage]) == [Settled.OVER]
    assert await store.settle("worker", [retry]) == [Settled.OVER]
    assert (await store.extend([(claim.id, claim.token)], lease=LEASE)).timed_out == {claim.id}
    assert has_timed_out(await store.get(claim.id))


@pytest.mark.clause("SLA-3")
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not swept"])
async def test_a_result_after_the_deadline_is_kept_as_late_and_not_applied(
    store: Store, clock: DatabaseClock, *, swept: bool
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    if swept:
        await store.expire(limit=10)

    assert await store.settle("worker", [complete(claim, '"too late"')]) == [
        Settled.LATE if swept else Settled.TIMED_OUT
    ]

    job = await store.get(claim.id)
    assert has_timed_out(job)
    assert (job.result, job.late_result) == (None, '"too late"')
    assert job.late_at is not None


@pytest.mark.clause("SLA-3")
async def test_a_result_is_late_beside_a_cancellation_under_a_lost_lease_of_its_job(
    store: Store, clock: DatabaseClock
) -> None:
    lost = await a_claim_with_a_deadline(store)
    await clock.advance(LEASE)
    await store.reclaim(limit=10)
    claim = await claimed(store)
    await clock.advance(SOON)

    answers = await store.settle("worker", [cancel(lost), complete(claim, '"too late"')])

    assert answers == [Settled.FENCED, Settled.TIMED_OUT]


@pytest.mark.clause("SLA-3")
async def test_a_result_before_the_deadline_is_on_time(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON - timedelta(seconds=30))

    assert await store.settle("worker", [complete(claim, "1")]) == [Settled.WRITTEN]

    job = await store.get(claim.id)
    assert (job.status, job.late_at, job.timed_out_at) == (Status.COMPLETED, None, None)


async def test_the_first_late_result_counts(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.expire(limit=10)
    await store.settle("worker", [complete(claim, "1")])

    assert await store.settle("worker", [complete(claim, "2")]) == [Settled.FENCED]

    assert (await store.get(claim.id)).late_result == "1"


async def test_a_worker_that_had_lost_its_lease_before_the_deadline_leaves_no_late_result(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=10)
    await clock.advance(SOON)
    await store.expire(limit=10)

    assert await store.settle("worker", [complete(claim, "1")]) == [Settled.FENCED]

    assert (await store.get(claim.id)).late_at is None


async def test_after_a_reclaim_only_the_last_holder_may_be_late(store: Store, clock: DatabaseClock) -> None:
    first = await a_claim_with_a_deadline(store)
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=10)
    second = await claimed(store, "another")
    await clock.advance(SOON)
    await store.expire(limit=10)

    assert await store.settle("worker", [complete(first, "1"), complete(second, "2")]) == [
        Settled.FENCED,
        Settled.LATE,
    ]
    assert (await store.get(first.id)).late_result == "2"


async def test_a_cancellation_after_the_deadline_is_a_cancellation(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await store.cancel(claim.id)
    await clock.advance(SOON)

    assert await store.settle("worker", [cancel(claim)]) == [Settled.WRITTEN]

    assert (await store.get(claim.id)).status is Status.CANCELLED


@pytest.mark.clause("SLA-4")
async def test_an_accepted_late_result_completes_the_job_and_the_history_names_the_actor(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.settle("worker", [complete(claim, '"late"')])

    job = await store.accept_late(claim.id, meta='{"actor": "ada"}')

    assert (job.status, job.result, job.failure) == (Status.COMPLETED, '"late"', None)
    recorded = [(event.kind, dict(event.meta)) for event in await store.events(claim.id)][-3:]
    assert recorded[0] == (EventKind.EXPIRED, {"late": True})
    assert recorded[1] == (EventKind.ACCEPTED, {"actor": "ada"})
    assert recorded[2][0] is EventKind.COMPLETED


@pytest.mark.clause("SLA-4")
async def test_what_follows_an_acceptance_is_stored_with_it_or_not_at_all(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    then = a_job(name="recompute", key="late:1")
    with pytest.raises(StateRefused):
        await store.accept_late(claim.id, meta="{}", then=then)
    assert await store.find(JobFilter(name="recompute")) == []
    await clock.advance(SOON)
    await store.settle("worker", [complete(claim, "1")])

    await store.accept_late(claim.id, meta="{}", then=then)

    assert [job.id for job in await store.find(JobFilter(name="recompute"))] == [then.id]


@pytest.mark.clause("SLA-4")
async def test_only_the_late_result_that_the_caller_has_seen_is_accepted(
    store: Store, clock: DatabaseClock
) -> None:
    first = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.settle("worker", [complete(first, "1")])
    seen = (await store.get(first.id)).late_at
    await store.retry(first.id)
    second = await claimed(store)
    await clock.advance(SOON)
    await store.settle("worker", [complete(second, "2")])

    with pytest.raises(StateRefused):
        await store.accept_late(first.id, meta="{}", late_at=seen)

    job = await store.get(first.id)
    assert has_timed_out(job)
    job = await store.accept_late(first.id, meta="{}", late_at=job.late_at)
    assert job.result == "2"


@pytest.mark.clause("SLA-4")
async def test_of_many_who_accept_at_once_one_does(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.settle("worker", [complete(claim, "1")])

    answers = await asyncio.gather(
        *[each.accept_late(claim.id, meta="{}") for each in (store, other_store) * 5], return_exceptions=True
    )

    assert sum(isinstance(answer, Job) for answer in answers) == 1
    assert sum(isinstance(answer, StateRefused) for answer in answers) == 9


async def test_a_job_that_is_retried_has_as_much_time_again(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_job_with_a_deadline(store)
    await clock.advance(SOON + timedelta(hours=1))
    await store.expire(limit=10)

    job = await store.retry(job_id)

    assert job.deadline_at is not None
    assert job.deadline_at - job.queued_at == SOON
    assert await store.expire(limit=10) == []
    kinds = [event.kind for event in await store.events(job_id)]
    assert kinds == [EventKind.QUEUED, EventKind.EXPIRED, EventKind.REPLAYED]


@pytest.mark.clause("JOB-11")
@pytest.mark.parametrize("late", [True, False], ids=["with a late result", "without"])
async def test_the_history_of_a_job_that_timed_out_stays_as_it_was_when_it_is_retried(
    store: Store, clock: DatabaseClock, *, late: bool
) -> None:
    claim = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.expire(limit=10)
    if late:
        await store.settle("worker", [complete(claim, "1")])
    recorded = await store.events(claim.id)

    await store.retry(claim.id)

    assert (await store.events(claim.id))[:-1] == recorded


async def test_a_job_that_is_retried_begins_with_a_token_that_is_no_leases(
    store: Store, clock: DatabaseClock
) -> None:
    first = await a_claim_with_a_deadline(store)
    await clock.advance(SOON)
    await store.expire(limit=10)

    job = await store.retry(first.id)
    second = await claimed(store)

    assert (first.token % 2, job.lease_token % 2, second.token % 2) == (1, 0, 1)
    assert second.token > first.token
    assert await store.settle("worker", [complete(first, "1")]) == [Settled.FENCED]


async def test_jobs_at_risk_are_listed_by_their_deadline(store: Store, clock: DatabaseClock) -> None:
    far, near, _ = await submitted(
        store, a_job(deadline=timedelta(minutes=9)), a_job(deadline=timedelta(minutes=4)), a_job()
    )

    found = await store.find(JobFilter(at_risk=timedelta(minutes=10)))

    assert [job.id for job in found] == [near, far]
    assert [job.id for job in await store.find(JobFilter(at_risk=SOON))] == [near]
    assert await store.find(JobFilter(at_risk="10m")) == found


async def test_jobs_at_risk_with_the_same_deadline_are_listed_in_one_order(store: Store) -> None:
    ids = await submitted(store, *[a_job(deadline=SOON) for _ in range(5)])

    found = await store.find(JobFilter(at_risk=2 * SOON))

    assert [job.id for job in found] == sorted(ids)
    assert [job.id for job in await store.find(JobFilter(at_risk=2 * SOON, limit=2))] == sorted(ids)[:2]


@pytest.mark.clause("SLA-2")
@pytest.mark.clause("SLA-3")
async def test_sweep_and_completion_race_to_exactly_one_end(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    ids = await submitted(store, *[a_job(deadline=SOON) for _ in range(40)])
    claims = await store.claim("worker", "default", limit=40, lease=timedelta(hours=1))
    await clock.advance(SOON)

    async def settle_all() -> list[Settled]:
        settled = [await store.settle("worker", [complete(claim, "1")]) for claim in claims]
        return [answer for [answer] in settled]

    answers, expired = await asyncio.gather(settle_all(), other_store.expire(limit=100))

    assert answers.count(Settled.LATE) == len(expired)
    assert answers.count(Settled.TIMED_OUT) == 40 - len(expired)
    jobs = [await store.get(job_id) for job_id in ids]
    assert all(has_timed_out(job) and job.late_result == "1" for job in jobs)


async def test_cancel_and_deadline_race_to_exactly_one_end(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    ids = await submitted(store, *[a_job(deadline=SOON) for _ in range(40)])
    await clock.advance(SOON)

    answers, expired = await asyncio.gather(
        asyncio.gather(*[store.cancel(job_id) for job_id in ids], return_exceptions=True),
        other_store.expire(limit=100),
    )

    cancelled = {job_id for job_id, answer in zip(ids, answers, strict=True) if answer is Status.CANCELLED}
    assert cancelled | set(expired) == set(ids)
    assert not cancelled & set(expired)
    for job_id in ids:
        ended = (await store.get(job_id)).status
        assert ended is (Status.CANCELLED if job_id in cancelled else Status.FAILED)


@pytest.mark.clause("SLA-3")
@pytest.mark.clause("SLA-4")
async def test_a_late_result_and_its_acceptance_race_to_one_history(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    await submitted(store, *[a_job(deadline=SOON) for _ in range(30)])
    claims = await store.claim("worker", "default", limit=30, lease=timedelta(hours=1))
    await clock.advance(SOON)
    await store.expire(limit=100)

    answers = await asyncio.gather(
        asyncio.gather(*[store.settle("worker", [complete(claim, "1")]) for claim in claims]),
        asyncio.gather(
            *[other_store.accept_late(claim.id, meta="{}") for claim in claims], return_exceptions=True
        ),
    )

    assert answers[0] == [[Settled.LATE]] * 30
    for claim, accepted in zip(claims, answers[1], strict=True):
        job = await store.get(claim.id)
        assert job.late_result == "1"
        if isinstance(accepted, StateRefused):  # it came before the result, which is there to be accepted now
            assert has_timed_out(job)
            job = await store.accept_late(claim.id, meta="{}")
        assert (job.status, job.result) == (Status.COMPLETED, "1")
        recorded = [event.kind for event in await store.events(claim.id)]
        assert recorded.count(EventKind.ACCEPTED) == recorded.count(EventKind.COMPLETED) == 1


@pytest.mark.clause("SLA-2")
async def test_a_handler_is_cancelled_at_its_jobs_deadline(hold: Holdfast) -> None:
    stopped = asyncio.Event()

    @hold.job("slow", deadline=1.0)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with hold.worker(poll=0.05):
        job = await slow.submit()
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)

    assert stopped.is_set()
    assert (await job.read()).late_at is None


@pytest.mark.clause("SLA-3")
@pytest.mark.clause("SLA-4")
async def test_a_handler_that_may_finish_leaves_a_late_result_that_can_be_accepted(
    hold: Holdfast,
) -> None:
    times_left: list[float] = []

    @hold.stage("look")
    async def look() -> str:
        while (left := current().time_left) is not None and left > timedelta(0):
            times_left.append(left.total_seconds())
            await asyncio.sleep(0.02)
        return "seen"

    @hold.job("slow", deadline=1.0, on_deadline="finish")
    async def slow() -> str:
        return await look()

    @slow.when_late_is_accepted
    @hold.job("recompute")
    async def recompute(job_id: str, result: str) -> str:
        return f"{job_id} {result}"

    async with hold.worker(poll=0.05):
        job = await slow.submit()
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)
        await eventually(job.read, lambda found: found.late_result is not None)
        accepted = await hold.accept_late(job.id, actor="ada", reason="the teacher agreed")
        [follower] = await hold.find(JobFilter(name="recompute"))
        follows = await hold.handle(follower.id, "recompute").result(timeout=TIMEOUT)

    assert times_left
    assert accepted.status is Status.COMPLETED
    assert await job.result() == "seen"
    assert follows == f"{job.id} seen"


async def test_a_late_handler_is_stopped_when_its_job_comes_back_to_the_same_worker(hold: Holdfast) -> None:
    """Nothing that it could still bring would be kept, and a worker that stops must not leave it behind."""
    begun: list[int] = []
    stopped = asyncio.Event()

    @hold.job("slow", deadline=1.0, on_deadline="finish")
    async def slow() -> None:
        begun.append(current().generation)
        if len(begun) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

    async with hold.worker(poll=0.05):
        job = await slow.submit()
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)
        await job.retry()
        await asyncio.wait_for(stopped.wait(), TIMEOUT)

    assert begun == [1, 2]


async def test_a_deadline_that_no_job_could_meet_is_refused(hold: Holdfast) -> None:
    @hold.job("greet")
    async def greet() -> None: ...

    with pytest.raises(Exception, match="deadline must be positive"):
        greet.options(deadline=0)
