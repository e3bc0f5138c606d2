"""Steps that many tests take before those that they are about."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from holdfast import Job, Status
from holdfast.core.jobs.job import Claim, Receipt, Submission
from holdfast.core.jobs.transitions import Finish, complete
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_failure, a_job

LEASE = timedelta(seconds=90)
LONG = timedelta(minutes=10)

TIMEOUT = 20.0
"""Seconds after which a test gives up on something that should have happened long ago."""


async def submitted(store: Store, *jobs: Submission) -> list[str]:
    """Submit *jobs*, each of which must be new; return their ids."""
    answers = await store.submit(jobs)
    assert answers == [Receipt(job.id) for job in jobs]
    return [job.id for job in jobs]


async def claimed(store: Store, worker: str = "worker", *, queue: str = "default") -> Claim:
    """Claim the one job that is first in line, and begin it if it is suspected."""
    [claim] = await store.claim(worker, queue, limit=1, lease=LEASE)
    if claim.suspected:
        assert await store.begin([(claim.id, claim.token)]) == [True]
    return claim


async def a_claim(store: Store, job: Submission | None = None) -> Claim:
    """Submit a job and claim it."""
    await submitted(store, job or a_job())
    return await claimed(store)


async def a_failed_job(store: Store, job: Submission | None = None) -> Claim:
    """Submit a job, claim it, and let it fail for good; the claim is the one it failed under."""
    claim = await a_claim(store, job)
    end = Finish(claim.id, claim.token, Status.FAILED, failure=a_failure(stack="Traceback: secret place"))
    assert await store.settle("worker", [end]) == [Settled.WRITTEN]
    return claim


async def a_completed_job(store: Store, job: Submission | None = None, *, result: str = '"done"') -> Claim:
    """Submit a job, claim it, and complete it."""
    claim = await a_claim(store, job)
    assert await store.settle("worker", [complete(claim, result)]) == [Settled.WRITTEN]
    return claim


async def eventually(look: Callable[[], Awaitable[Job]], holds: Callable[[Job], bool]) -> Job:
    """Look until what is seen *holds*: for changes that are not announced."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            job = await look()
            if holds(job):
                return job
            await asyncio.sleep(0.005)
