"""`holdfast jobs`: what is there, what became of it, and how to bring it back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.cli import jobs_view
from holdfast.cli.answers import Answer, canonical, full_id, id_or_beginning, is_id, tell
from holdfast.cli.asking import ActorOption, asked
from holdfast.cli.known import ensure_known_queue
from holdfast.cli.lengths import length
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.target import AppOption, Given, UrlOption, chosen
from holdfast.core.errors import ArchiveUnavailable, ConfigError, JobNotFound, PayloadInvalid, StateRefused
from holdfast.core.jobs import Job, JobFilter
from holdfast.core.letters import Letter, LetterFilter
from holdfast.core.payload import decode
from holdfast.core.stages import RESTARTED
from holdfast.core.states import GRAPH, Status
from holdfast.face import Holdfast

PAGE = 500

app = typer.Typer(
    no_args_is_help=True, help="Look at jobs, cancel them, bring them back, tell them something."
)

NameOption = Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", help="Only jobs of this owner.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")]


def _json(text: str) -> Any:
    """Read what a signal brings along."""
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
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", parser=id_or_beginning, metavar="ID", help="Only jobs older than this one."),
    ] = None,
    at_risk: Annotated[
        timedelta | None,
        typer.Option(
            "--at-risk", parser=length, metavar="LENGTH", help="Only jobs whose deadline is that close: 5m."
        ),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, the newest first; with --at-risk, the nearest deadline first."""
    narrow = {"key": key, "subject": subject, "version": version}
    if at_risk is not None:
        _ensure_it_can_be_at_risk(status, before, by_key=any(value is not None for value in narrow.values()))

    async def ask(hold: Holdfast) -> tuple[list[jobs_view.Listed], datetime]:
        if queue is not None:
            await ensure_known_queue(hold, queue)
        page_end = None if before is None else await full_id(hold, before)
        wanted = JobFilter(status, name, owner, queue, limit, page_end, at_risk, **narrow)  # type: ignore[arg-type]
        return await _found(hold, wanted)

    found, now = asked(chosen(application, url), ask)
    if as_json:
        show_json([jobs_view.as_listed(each) for each in found])
    else:
        jobs_view.show_list(found, now, with_deadline=at_risk is not None)


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
    given = Given(application, url)
    whole = asked(chosen(application, url), lambda hold: _whole(hold, job_id, given, with_args=with_args))
    if as_json:
        show_json(jobs_view.as_json(whole))
    else:
        jobs_view.show(whole)


@app.command("cancel")
def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.")],
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs, the running ones through their worker."""

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            job = await hold.read(job_id)
            _ensure_can_become(job, Status.CANCELLED, "so it cannot be cancelled")
            return f"would be cancelled ({job.status})"
        status = await hold.cancel(job_id)
        return "cancelled" if status is Status.CANCELLED else "its worker was asked to stop it"

    tell(asked(chosen(application, url), lambda hold: _each(hold, job_ids, one)), as_json=as_json)


@app.command("retry")
def retry(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The jobs' ids.")] = None,
    *,
    all_failed: Annotated[
        bool, typer.Option("--all-failed", help="All failed jobs instead of some ids.")
    ] = False,
    name: NameOption = None,
    owner: OwnerOption = None,
    queue: QueueOption = None,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring failed jobs back with fresh attempts."""
    narrowed = any(value is not None for value in (name, owner, queue))
    if all_failed == bool(job_ids) or (narrowed and not all_failed):
        raise ConfigError("give the ids of jobs, or --all-failed with any of --name, --owner and --queue")

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            _ensure_can_become(await hold.read(job_id), Status.QUEUED, "only a failed job can be retried")
            return "would be retried"
        await hold.retry(job_id)
        return "queued"

    async def everyone(hold: Holdfast) -> list[Answer]:
        if queue is not None:
            await ensure_known_queue(hold, queue)
        wanted = JobFilter(status=Status.FAILED, name=name, owner=owner, queue=queue, limit=PAGE)
        # Of those that were purged only the end is left: there is nothing to bring back.
        failed = [job.id async for job in _all(hold, wanted) if job.purged_at is None] if all_failed else []
        ids = failed if all_failed else job_ids or []
        return await _each(hold, ids, one)

    tell(asked(chosen(application, url), everyone), as_json=as_json)


@app.command("accept-late")
def accept_late(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' ids.")],
    *,
    actor: ActorOption,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the history.")] = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let results stand that came after their job's deadline."""

    async def one(hold: Holdfast, job_id: str) -> str:
        if dry_run:
            job = await hold.read(job_id)
            if job.late_at is None or job.status is not Status.FAILED:
                raise StateRefused(f"job {job_id} is {job.status} and has no late result to accept")
            return "would be accepted"
        await hold.accept_late(job_id, actor=actor, reason=reason)
        return "completed"

    tell(asked(chosen(application, url), lambda hold: _each(hold, job_ids, one)), as_json=as_json)


@app.command("signal")
def signal(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the job waits for, or will.")],
    *,
    actor: ActorOption,
    data: Annotated[
        Any,
        typer.Option("--data", parser=_json, metavar="JSON", help="What the job is told; null without it."),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell a job something that it waits for."""

    async def one(hold: Holdfast, job_id: str) -> str:
        await hold.signal(job_id, name, data, actor=actor)
        return "signalled"

    tell(asked(chosen(application, url), lambda hold: _each(hold, [job_id], one)), as_json=as_json)


async def _found(hold: Holdfast, wanted: JobFilter) -> tuple[list[jobs_view.Listed], datetime]:
    """Find jobs, each with the reason for which it was put aside, and tell what time it is for the store."""
    jobs = await hold.find(wanted)
    parked = [job.id for job in jobs if job.retry_after is not None]
    reasons = await hold.parts.store.reasons(parked) if parked else {}
    now = await hold.parts.store.now()
    keys = await hold.parts.store.keys_of([job.id for job in jobs]) if jobs else {}
    return [jobs_view.Listed(job, reasons.get(job.id), keys.get(job.id)) for job in jobs], now


async def _whole(hold: Holdfast, job_id: str, given: Given, *, with_args: bool) -> jobs_view.Whole:
    job, store = await _read(hold, job_id, given), hold.parts.store
    stages = [row for row in await store.stages([job.id]) if row.key.name != RESTARTED]
    signals = await store.signals([job.id])
    original = await store.original_args(job.id) if with_args else None
    keys = await store.keys_of([job.id])
    return jobs_view.Whole(
        job,
        stages,
        await hold.events(job.id),
        signals,
        await _letter(hold, job),
        with_args,
        original,
        keys.get(job.id),
    )


async def _read(hold: Holdfast, job_id: str, given: Given) -> Job:
    """Read a job. Raises `JobNotFound`, and says where it may be: one with a dead letter goes to the archive."""
    job_id = await full_id(hold, job_id)
    try:
        return await hold.read(job_id)
    except JobNotFound as error:
        if hold.parts.letters.archive is None or not is_id(job_id):
            raise
        where = await _archived(hold, job_id)
        back = given.typed(f"dead restore {job_id}")
        raise JobNotFound(f"{error}; {where.format(back=back)}") from None


async def _archived(hold: Holdfast, job_id: str) -> str:
    try:
        found = await hold.dead.archived(LetterFilter(job_ids=(job_id,), limit=1))
    except ArchiveUnavailable:
        return "it may be in the archive, which does not answer now"
    return "it is in the archive: {back}" if found else "it is not in the archive either"


async def _letter(hold: Holdfast, job: Job) -> Letter | None:
    """Read the dead letter of a job that failed, if it has one: what failed under an earlier version has none."""
    if job.status is not Status.FAILED:
        return None
    found = await hold.parts.store.letters(LetterFilter(job_ids=(job.id,), limit=1))
    return found[0] if found else None


async def _each(
    hold: Holdfast, job_ids: Sequence[str], ask: Callable[[Holdfast, str], Awaitable[str]]
) -> list[Answer]:
    """Ask for each job on its own: one that cannot be does not keep the others from it."""
    answers = []
    for text in job_ids:
        job_id = canonical(text)
        try:
            job_id = await full_id(hold, text)
            answers.append(Answer(job_id, done=True, detail=await ask(hold, job_id)))
        except (JobNotFound, StateRefused) as error:
            answers.append(Answer(job_id, done=False, detail=str(error)))
    return answers


async def _all(hold: Holdfast, wanted: JobFilter) -> AsyncIterator[Job]:
    """Read every page, from the newest job to the oldest."""
    while page := await hold.find(wanted):
        for job in page:
            yield job
        wanted = replace(wanted, before=page[-1].id)


def _ensure_it_can_be_at_risk(status: Status | None, before: str | None, *, by_key: bool) -> None:
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
