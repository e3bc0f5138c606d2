"""`holdfast jobs`: list, show, cancel, retry and signal jobs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.app_loader import AppOption, Target, UrlOption, resolve
from holdfast.cli.options.durations import parse_duration
from holdfast.cli.options.known_queue import ensure_known_queue
from holdfast.cli.results import ItemResult, canonical, full_id, id_or_beginning, is_id, report_results
from holdfast.cli.session import ActorOption, run_with_store
from holdfast.cli.views import jobs as view
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.core.errors import ArchiveUnavailable, ConfigError, JobNotFound, PayloadInvalid, StateRefused
from holdfast.core.jobs.job import Job, JobFilter
from holdfast.core.jobs.states import GRAPH, Status
from holdfast.core.strict_json import decode
from holdfast.engine.operations.job_service import JobDetails, JobListing

PAGE = 500

app = typer.Typer(no_args_is_help=True, help="List, show, cancel, retry and signal jobs.")

NameOption = Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", help="Only jobs of this owner.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]


def _json(text: str) -> Any:
    """Parse the data of a signal."""
    try:
        return decode(text, what="it")
    except PayloadInvalid as error:
        raise typer.BadParameter(
            f"{text!r} cannot be sent: {error}; a text needs its own quotes: '\"yes\"'"
        ) from None


@app.command("list")
def list_jobs(
    *,
    status: Annotated[Status | None, typer.Option("--status", help="Only jobs in this state.")] = None,
    name: NameOption = None,
    owner: OwnerOption = None,
    queue: QueueOption = None,
    key: Annotated[str | None, typer.Option("--key", help="Only the jobs with this idempotency key.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only jobs about this subject.")] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Only jobs about this version of their subject.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of rows.")] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", parser=id_or_beginning, metavar="ID", help="Only jobs older than this one."),
    ] = None,
    at_risk: Annotated[
        timedelta | None,
        typer.Option(
            "--at-risk",
            parser=parse_duration,
            metavar="LENGTH",
            help="Only live jobs whose deadline is at most this far away, such as 5m.",
        ),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first; with --at-risk, by deadline."""
    narrow = {"key": key, "subject": subject, "version": version}
    if at_risk is not None:
        _ensure_at_risk_allowed(status, before, by_key=any(value is not None for value in narrow.values()))

    async def operation(hold: Holdfast) -> tuple[list[JobListing], datetime]:
        if queue is not None:
            await ensure_known_queue(hold, queue)
        page_end = None if before is None else await full_id(hold, before)
        job_filter = JobFilter(status, name, owner, queue, limit, page_end, at_risk, **narrow)  # type: ignore[arg-type]
        return await hold.jobs.list(job_filter), await hold.database.now()

    found, now = run_with_store(resolve(application, url), operation)
    if as_json:
        show_json([view.as_listed(each) for each in found])
    else:
        view.show_list(found, now, with_deadline=at_risk is not None)


@app.command("show")
def show(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    with_args: Annotated[
        bool, typer.Option("--args", help="Show its arguments, and those before a correction.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job with its failure, stages and history."""
    target = Target(application, url)
    details = run_with_store(
        resolve(application, url), lambda hold: _read_details(hold, job_id, target, with_args=with_args)
    )
    if as_json:
        show_json(view.as_json(details, with_args=with_args))
    else:
        view.show(details, with_args=with_args)


@app.command("cancel")
def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.")],
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs; a running job is stopped by its worker."""

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            job = await hold.read(job_id)
            _ensure_can_become(job, Status.CANCELLED, "so it cannot be cancelled")
            return f"would be cancelled ({job.status})"
        status = await hold.cancel(job_id)
        return "cancelled" if status is Status.CANCELLED else "cancellation requested from its worker"

    report_results(
        run_with_store(resolve(application, url), lambda hold: _run_for_each(hold, job_ids, one)),
        as_json=as_json,
    )


@app.command("retry")
def retry(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.")] = None,
    *,
    all_failed: Annotated[
        bool, typer.Option("--all-failed", help="Retry all failed jobs, instead of the given ids.")
    ] = False,
    name: NameOption = None,
    owner: OwnerOption = None,
    queue: QueueOption = None,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queue failed jobs again with all of their attempts; finished stages are kept."""
    narrowed = any(value is not None for value in (name, owner, queue))
    if all_failed == bool(job_ids) or (narrowed and not all_failed):
        raise ConfigError("give the ids of jobs, or --all-failed with any of --name, --owner and --queue")

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            _ensure_can_become(await hold.read(job_id), Status.QUEUED, "only a failed job can be retried")
            return "would be retried"
        await hold.retry(job_id)
        return "queued"

    async def operation(hold: Holdfast) -> list[ItemResult]:
        if queue is not None:
            await ensure_known_queue(hold, queue)
        job_filter = JobFilter(status=Status.FAILED, name=name, owner=owner, queue=queue, limit=PAGE)
        # The arguments of purged jobs are deleted: they cannot be retried.
        failed = (
            [job.id async for job in _all(hold, job_filter) if job.purged_at is None] if all_failed else []
        )
        ids = failed if all_failed else job_ids or []
        return await _run_for_each(hold, ids, one)

    report_results(run_with_store(resolve(application, url), operation), as_json=as_json)


@app.command("accept-late")
def accept_late(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.")],
    *,
    actor: ActorOption,
    reason: Annotated[str, typer.Option("--reason", help="The reason; it is recorded in the history.")] = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept results that arrived after the deadline of their job, and complete the jobs."""

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            job = await hold.read(job_id)
            if job.late_at is None or job.status is not Status.FAILED:
                raise StateRefused(f"job {job_id} is {job.status} and has no late result to accept")
            return "would be accepted"
        await hold.accept_late(job_id, actor=actor, reason=reason)
        return "completed"

    report_results(
        run_with_store(resolve(application, url), lambda hold: _run_for_each(hold, job_ids, one)),
        as_json=as_json,
    )


@app.command("signal")
def signal(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal.")],
    *,
    actor: ActorOption,
    data: Annotated[
        Any,
        typer.Option("--data", parser=_json, metavar="JSON", help="Data of the signal; the default is null."),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a signal to a job."""

    async def one(hold: Holdfast, job_id: str) -> str:
        await hold.signal(job_id, name, data, actor=actor)
        return "signalled"

    report_results(
        run_with_store(resolve(application, url), lambda hold: _run_for_each(hold, [job_id], one)),
        as_json=as_json,
    )


async def _read_details(hold: Holdfast, text: str, target: Target, *, with_args: bool) -> JobDetails:
    """Read a job. Raises `JobNotFound`, and says whether the job is in the archive."""
    job_id = await full_id(hold, text)
    try:
        return await hold.jobs.show(job_id, with_original_args=with_args)
    except JobNotFound as error:
        if not hold.dead_letters.has_archive or not is_id(job_id):
            raise
        where = await _archived(hold, job_id)
        back = target.command_line(f"dead restore {job_id}")
        raise JobNotFound(f"{error}; {where.format(back=back)}") from None


async def _archived(hold: Holdfast, job_id: str) -> str:
    try:
        found = await hold.dead_letters.archived(LetterFilter(job_ids=(job_id,), limit=1))
    except ArchiveUnavailable:
        return "it may be in the archive, which does not answer now"
    return "it is in the archive: {back}" if found else "it is not in the archive either"


async def _run_for_each(
    hold: Holdfast, job_ids: Sequence[str], operation: Callable[[Holdfast, str], Awaitable[str]]
) -> list[ItemResult]:
    """Run *operation* for each job separately: a refusal does not stop the others."""
    results = []
    for text in job_ids:
        job_id = canonical(text)
        try:
            job_id = await full_id(hold, text)
            results.append(ItemResult(job_id, done=True, detail=await operation(hold, job_id)))
        except (JobNotFound, StateRefused) as error:
            results.append(ItemResult(job_id, done=False, detail=str(error)))
    return results


async def _all(hold: Holdfast, job_filter: JobFilter) -> AsyncIterator[Job]:
    """Read every page, from the newest job to the oldest."""
    while page := await hold.find(job_filter):
        for job in page:
            yield job
        job_filter = replace(job_filter, before=page[-1].id)


def _ensure_at_risk_allowed(status: Status | None, before: str | None, *, by_key: bool) -> None:
    if by_key:
        raise ConfigError("--at-risk goes with neither --key nor --subject nor --version")
    if before is not None:
        raise ConfigError(
            "--at-risk lists jobs by their deadline, without pages; give --limit and no --before"
        )
    if status is not None and status.ended:
        raise ConfigError(
            f"a job that is {status} has ended, and none of those is at risk; leave --status out"
        )


def _ensure_can_become(job: Job, target: Status, otherwise: str) -> None:
    if job.purged_at is not None:
        raise StateRefused(f"job {job.id} was purged and only its end is left")
    if target not in GRAPH[job.status]:
        raise StateRefused(f"job {job.id} is {job.status}; {otherwise}")
