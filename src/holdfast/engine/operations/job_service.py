"""The job service: what an operator sees of jobs beyond their rows."""

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from holdfast.core.dead_letters.letter import Letter, LetterFilter
from holdfast.core.jobs.job import Event, Job, JobFilter, Signal
from holdfast.core.jobs.stages import RESTARTED, StageRow
from holdfast.core.jobs.states import Status
from holdfast.engine.operations.store_access import OperatorService, in_sync

if TYPE_CHECKING:
    import builtins


class JobListing(NamedTuple):
    """A job in a list, the reason for which it waits, if it does, and its idempotency key."""

    job: Job
    reason: str | None
    key: str | None = None


class JobDetails(NamedTuple):
    """Everything that is stored about a job."""

    job: Job
    stages: list[StageRow]
    events: list[Event]
    signals: list[Signal]
    letter: Letter | None = None
    original_args: str | None = None
    """The arguments at submission, if they were corrected since and are requested."""
    key: str | None = None
    """The idempotency key that the job was submitted with."""


class JobService(OperatorService):
    """Lists and shows jobs with all that is stored about them, for operators. Reached as `hold.jobs`."""

    async def list(self, job_filter: JobFilter = JobFilter()) -> "builtins.list[JobListing]":  # noqa: B008 - frozen
        """Return jobs with the reason for which they wait, the newest first; with `at_risk`, by deadline."""
        await self._access.open()
        jobs = await self._store.find(job_filter)
        waiting = [job.id for job in jobs if job.retry_after is not None]
        reasons = await self._store.reasons(waiting) if waiting else {}
        keys = await self._store.keys_of([job.id for job in jobs]) if jobs else {}
        return [JobListing(job, reasons.get(job.id), keys.get(job.id)) for job in jobs]

    async def show(
        self, job_id: str, *, owner: str | None = None, with_original_args: bool = False
    ) -> JobDetails:
        """Return all details of one job. Raises `JobNotFound` if it is absent or not *owner*'s."""
        await self._access.open()
        job = await self._store.get(job_id, owner=owner)
        return JobDetails(
            job,
            [row for row in await self._store.stages([job.id]) if row.key.name != RESTARTED],
            await self._store.events(job.id),
            await self._store.signals([job.id]),
            await self._letter(job),
            await self._store.dead_letters.original_args(job.id) if with_original_args else None,
            (await self._store.keys_of([job.id])).get(job.id),
        )

    async def _letter(self, job: Job) -> Letter | None:
        """Read the dead letter of a failed job; a job that failed under an earlier version has none."""
        if job.status is not Status.FAILED:
            return None
        found = await self._store.dead_letters.find(LetterFilter(job_ids=(job.id,), limit=1))
        return found[0] if found else None

    async def ids_starting_with(self, prefix: str, *, limit: int) -> "builtins.list[str]":
        """Return ids of jobs that start with *prefix*, 1 to 32 hexadecimal digits, with or without hyphens."""
        await self._access.open()
        digits = prefix.replace("-", "").lower()
        low, high = (str(UUID(digits.ljust(32, filler))) for filler in "0f")
        return await self._store.ids_between(low, high, limit=limit)

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    show_sync = in_sync(show)
    ids_starting_with_sync = in_sync(ids_starting_with)
