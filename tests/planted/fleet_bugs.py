"""Mistakes around fleets: what is dispatched, and what a dispatch does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import JobNotFound
from holdfast.engine.fleets import dispatcher
from holdfast.engine.fleets.fleet_runner import FleetRunner
from holdfast.engine.worker.job_runner import JobRunner
from tests.planted.planting import Bug, Sql, Swap

if TYPE_CHECKING:
    import asyncio

    from holdfast.core.jobs.job import Claim


async def _take_from_anyone(self: Any, job_id: str) -> Claim | None:
    try:
        job = await self._store.get(job_id)
    except JobNotFound:
        return None
    if job.leased_by is None or not await self._store.dispatches.expire_lease(job_id, job.leased_by):
        return None
    await self._store.reclaim(limit=1)
    claim: Claim | None = await self._claims.ask(job_id)
    return claim


async def _leave_everything(
    self: Any, others: Any = (), *, at_once: asyncio.Event, interrupting: Any
) -> None:
    """Do nothing."""


BUGS = (
    Bug(
        "dispatch-takes-a-running-job",
        "It was dispatched, so it is to be run.",
        ("JOB-3",),
        (
            Sql(
                "claimable_dispatched",
                "WHERE job.status = 'queued'\n           AND job.retry_after",
                "WHERE job.retry_after",
            ),
        ),
    ),
    Bug(
        "dispatch-takes-a-parked-job",
        "It was dispatched, so it is due.",
        ("JOB-2",),
        (Sql("claimable_dispatched", "AND job.retry_after IS NULL", ""),),
    ),
    Bug(
        "dispatch-passes-a-pause",
        "The pause is the dispatcher's business.",
        (),
        (
            Sql(
                "claimable_dispatched",
                "AND NOT EXISTS (SELECT 1 FROM holdfast_paused_queues AS pause WHERE pause.queue = job.queue)",
                "",
            ),
        ),
    ),
    Bug(
        "lost-dispatch-forgotten",
        "The broker has confirmed it, so it arrives.",
        ("JOB-1",),
        (Sql("outstanding_dispatches", "AND :now - sent_at < :resend * (1 << min(number - 1, 3))", ""),),
    ),
    Bug(
        "more-dispatches-than-room",
        "The broker has a queue, so let it have all of them.",
        (),
        (Swap(dispatcher, "OUTSTANDING_PER_SLOT", 1_000),),
    ),
    Bug(
        "living-process-taken-for-dead",
        "Its dispatch was delivered again, so its process has died.",
        ("JOB-6",),
        (Swap(FleetRunner, "_claim_from_dead", _take_from_anyone),),
    ),
    Bug(
        "fleet-without-a-lease-keeper",
        "A dispatched job is short.",
        ("JOB-6",),
        (Swap(JobRunner, "services", property(lambda self: [])),),
    ),
    Bug(
        "fleet-leaves-its-jobs",
        "The leases expire by themselves.",
        (),
        (Swap(JobRunner, "shut_down", _leave_everything),),
    ),
)
