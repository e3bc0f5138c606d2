"""A job moves along the declared graph and nowhere else, whichever caller asks and with whatever token."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Job, Status
from holdfast.core.jobs.job import EventKind, Submission
from holdfast.core.jobs.states import allowed, mermaid
from holdfast.core.jobs.transitions import Finish, Requeue, complete
from holdfast.errors import StateRefused
from holdfast.ports import Store
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, a_completed_job, submitted

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "states.md"


async def a_job_with_a_late_result(store: Store, clock: DatabaseClock, job: Submission) -> None:
    """Let a job fail in the one manner from which it can also come to a good end."""
    claim = await a_claim(store, job._replace(deadline=timedelta(minutes=1)))
    await clock.advance(timedelta(minutes=1))
    await store.settle("worker", [complete(claim, "1")])


async def a_job_that_is(store: Store, clock: DatabaseClock, status: Status) -> Job:
    job = a_job(deadline=timedelta(hours=1))
    match status:
        case Status.QUEUED:
            await submitted(store, job)
        case Status.PROCESSING:
            await a_claim(store, job)
        case Status.COMPLETED:
            await a_completed_job(store, job)
        case Status.FAILED:
            await a_job_with_a_late_result(store, clock, job)
        case Status.CANCELLED:
            await submitted(store, job)
            await store.cancel(job.id)
    return await store.get(job.id)


async def push(store: Store, clock: DatabaseClock, job: Job, target: Status) -> None:
    """Try every call that could bring *job* to *target*, with the token it has."""
    match target:
        case Status.QUEUED:
            await store.settle("worker", [Requeue(job.id, job.lease_token, EventKind.RETRY)])
            await store.reclaim(limit=10)
            with suppress(StateRefused):
                await store.retry(job.id)
        case Status.PROCESSING:
            await store.claim("another", "default", limit=10, lease=LEASE)
        case Status.COMPLETED:
            await store.settle("worker", [Finish(job.id, job.lease_token, target, result="1")])
            with suppress(StateRefused):
                await store.accept_late(job.id, meta="{}")
        case Status.FAILED:
            await store.settle("worker", [Finish(job.id, job.lease_token, target, failure=a_failure())])
            await clock.advance(timedelta(hours=2))
            await store.expire(limit=10)
        case Status.CANCELLED:
            await store.settle("worker", [Finish(job.id, job.lease_token, target)])
            with suppress(StateRefused):
                await store.cancel(job.id)


@pytest.mark.clause("JOB-12")
@pytest.mark.parametrize("target", Status)
@pytest.mark.parametrize("source", Status)
async def test_only_changes_of_the_graph_are_possible(
    store: Store, clock: DatabaseClock, source: Status, target: Status
) -> None:
    job = await a_job_that_is(store, clock, source)

    await push(store, clock, job, target)

    after = await store.get(job.id)
    if allowed(source, target):
        assert after.status is target
    else:
        assert after == job


@pytest.mark.clause("JOB-12")
@pytest.mark.parametrize("status", [Status.QUEUED, Status.PROCESSING])
async def test_a_live_state_is_no_end(store: Store, status: Status) -> None:
    claim = await a_claim(store)
    before = await store.get(claim.id)

    with pytest.raises(Exception, match=r"(?i)check constraint"):
        await store.settle("worker", [Finish(claim.id, claim.token, status)])

    assert await store.get(claim.id) == before


@pytest.mark.clause("JOB-12", "sqlite", "postgres")
def test_the_drawing_in_the_docs_is_the_graph() -> None:
    assert f"```mermaid\n{mermaid()}\n```" in PAGE.read_text(encoding="utf-8")
