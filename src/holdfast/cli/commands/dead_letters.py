"""`holdfast dead`: inspect, repair and replay failed jobs."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from holdfast.app import Holdfast
from holdfast.cli.commands import archive, replays
from holdfast.cli.exit_codes import print_status
from holdfast.cli.options.app_loader import APP_HINT, AppOption, Target, UrlOption, resolve
from holdfast.cli.options.letter_selection import (
    NOTHING_FOUND,
    Selection,
    build_letter_filter,
    build_selection,
)
from holdfast.cli.options.shared_options import with_options_of
from holdfast.cli.results import ItemResult, full_id, id_or_beginning, report_results
from holdfast.cli.session import ActorOption, non_empty, run_with_store
from holdfast.cli.views import dead_letters as view
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.progress import progress_reporter
from holdfast.core.dead_letters.letter import OPEN, Cause, Letter, LetterFilter, LetterState
from holdfast.core.errors import ConfigError, JobNotFound, LetterNotFound, PayloadInvalid, StepRefused
from holdfast.core.strict_json import decode
from holdfast.engine.dead_letters.dead_letter_service import DeadLetterService
from holdfast.engine.dead_letters.letter_selection import BulkResult, JobIdOrFilter

T = TypeVar("T")

PAGE = 500
"""Letters per batch of a step; progress is reported after each batch."""

_S = LetterState

app = typer.Typer(no_args_is_help=True, help="Inspect, repair and replay failed jobs.")


ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="WHY", help="The reason; it is recorded in the history.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]

Step = Callable[[DeadLetterService, JobIdOrFilter], Awaitable[BulkResult]]
"""Applies a step to one letter, or to all that a filter finds."""


@app.command("list")
@with_options_of(build_letter_filter)
def list_letters(
    letter_filter: LetterFilter,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of rows.")] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", parser=id_or_beginning, metavar="ID", help="Only jobs older than this one."),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, those of the newest jobs first."""

    async def operation(hold: Holdfast) -> tuple[list[Letter], datetime]:
        page_end = None if before is None else await full_id(hold, before)
        # One more than the limit shows whether there are more.
        found = await hold.dead_letters.list(replace(letter_filter, limit=limit + 1, before=page_end))
        return found, await hold.database.now()

    found, now = run_with_store(resolve(application, url), operation)
    shown = found[:limit]
    if as_json:
        show_json([view.as_listed(letter) for letter in shown])
    else:
        view.show_list(shown, now)
    if len(found) > limit:
        print_status(f"{limit} shown, there are more: --limit N, or --before {shown[-1].job_id}")


@app.command("groups")
@with_options_of(build_letter_filter)
def groups(
    letter_filter: LetterFilter,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of rows.")] = 50,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List groups of dead letters with the same fingerprint, the most recent first."""
    letter_filter = replace(letter_filter, limit=limit + 1)
    found, now = run_with_store(
        resolve(application, url), _with_store_time(lambda dead_letters: dead_letters.groups(letter_filter))
    )
    shown = found[:limit]
    if as_json:
        show_json([group._asdict() for group in shown])
    else:
        view.show_groups(shown, now)
    if len(found) > limit:
        print_status(f"{limit} shown, there are more: --limit N")


@app.command("show")
def show(
    job: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter with its failure, its history and the next command."""
    whole = run_with_store(
        resolve(application, url), lambda hold: _read_details(hold, job, Target(application, url))
    )
    if as_json:
        show_json(view.as_json(whole))
    else:
        view.show(whole)


@app.command("triage")
@with_options_of(build_selection)
def triage(
    selection: Selection,
    *,
    cause: Annotated[Cause, typer.Option("--cause", help="Why the jobs failed.")],
    actor: ActorOption,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record why jobs failed, as triaged letters; without --state a filter selects new letters."""

    def step(dead_letters: DeadLetterService, letter_filter: JobIdOrFilter) -> Awaitable[BulkResult]:
        return dead_letters.triage(letter_filter, cause, actor=actor, reason=reason, dry_run=dry_run)

    outcome = _outcome_text(_S.TRIAGED, dry_run=dry_run)
    _apply_step(
        Target(application, url),
        selection.with_default_states(_S.NEW),
        step,
        outcome=outcome,
        as_json=as_json,
    )


@app.command("remediate")
@with_options_of(build_selection)
def remediate(
    selection: Selection,
    *,
    evidence: Annotated[
        str,
        typer.Option(
            "--evidence", parser=non_empty, metavar="TEXT", help="Evidence that the cause is fixed."
        ),
    ],
    actor: ActorOption,
    correct: Annotated[
        list[str] | None,
        typer.Option("--correct", metavar="NAME=JSON", help="Replace an argument of one job."),
    ] = None,
    correct_file: Annotated[
        str | None,
        typer.Option(
            "--correct-file", metavar="FILE", help="Read the arguments from a JSON file; - is stdin."
        ),
    ] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record that the cause is fixed, as remediated letters; without --state a filter selects triaged letters."""
    corrections: dict[str, Any] | None = None
    if correct or correct_file is not None:  # the command line overrides the file
        corrections = {} if correct_file is None else _file(correct_file)
        corrections |= map(_pair, correct or [])
    if corrections is not None and len(selection.job_ids) != 1:
        raise ConfigError("arguments are corrected for one job at a time; name it by its id")
    if corrections is not None and not Target(application, url).is_application:
        raise ConfigError(
            f"corrected arguments are checked against the job's declaration, so the application is needed; {APP_HINT}"
        )

    def step(dead_letters: DeadLetterService, letter_filter: JobIdOrFilter) -> Awaitable[BulkResult]:
        return dead_letters.remediate(
            letter_filter, evidence, actor=actor, reason=reason, correct=corrections, dry_run=dry_run
        )

    outcome = _outcome_text(_S.REMEDIATED, dry_run=dry_run)
    _apply_step(
        Target(application, url),
        selection.with_default_states(_S.TRIAGED),
        step,
        outcome=outcome,
        as_json=as_json,
    )


app.command("plan")(replays.plan)
app.command("replay")(replays.replay)
app.command("progress")(replays.progress)
app.command("stop")(replays.stop)


@app.command("close")
@with_options_of(build_selection)
def close(
    selection: Selection,
    *,
    notes: Annotated[
        str, typer.Option("--notes", parser=non_empty, metavar="TEXT", help="How it was repaired.")
    ],
    actor: ActorOption,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record how completed jobs were repaired, as closed letters; without --state a filter selects verified ones."""

    def step(dead_letters: DeadLetterService, letter_filter: JobIdOrFilter) -> Awaitable[BulkResult]:
        return dead_letters.close(letter_filter, notes, actor=actor, dry_run=dry_run)

    outcome = _outcome_text(_S.CLOSED, dry_run=dry_run)
    _apply_step(
        Target(application, url),
        selection.with_default_states(_S.VERIFIED),
        step,
        outcome=outcome,
        as_json=as_json,
    )


@app.command("discard")
@with_options_of(build_selection)
def discard(
    selection: Selection,
    *,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", parser=non_empty, metavar="WHY", help="The reason; it is recorded in the history."
        ),
    ],
    actor: ActorOption,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up failed jobs, as discarded letters; without --state a filter selects open letters."""

    def step(dead_letters: DeadLetterService, letter_filter: JobIdOrFilter) -> Awaitable[BulkResult]:
        return dead_letters.discard(letter_filter, reason, actor=actor, dry_run=dry_run)

    outcome = _outcome_text(_S.DISCARDED, dry_run=dry_run)
    _apply_step(
        Target(application, url), selection.with_default_states(*OPEN), step, outcome=outcome, as_json=as_json
    )


app.command("archive")(archive.archive)
app.command("restore")(archive.restore)


def _with_store_time(
    read: Callable[[DeadLetterService], Awaitable[T]],
) -> Callable[[Holdfast], Any]:
    """Return an operation that reads something, together with the time of the store."""

    async def operation(hold: Holdfast) -> tuple[T, datetime]:
        found = await read(hold.dead_letters)
        now = await hold.database.now()
        return found, now

    return operation


async def _read_details(hold: Holdfast, job_id: str, target: Target) -> view.DeadLetterView:
    job_id = await full_id(hold, job_id)
    try:
        details = await hold.dead_letters.show(job_id)
    except LetterNotFound as error:
        raise LetterNotFound(view.absent(job_id, error, target)) from None
    groups = await hold.dead_letters.groups(LetterFilter(fingerprint=details.letter.fingerprint, limit=1))
    now = await hold.database.now()
    return view.DeadLetterView(details, groups[0] if groups else None, now, target)


def _outcome_text(state: LetterState, *, dry_run: bool) -> str:
    return f"would be {state}" if dry_run else str(state)


def _apply_step(target: Target, selection: Selection, step: Step, *, outcome: str, as_json: bool) -> None:
    """Apply a step to the selection; print a result for each letter given by id, and a count for a filter."""
    if selection.job_ids:
        each = run_with_store(
            resolve(*target), lambda hold: _run_for_each(hold, selection, step, outcome, target)
        )
        report_results(each, as_json=as_json)
        return
    results = run_with_store(
        resolve(*target), lambda hold: _run_for_all(hold.dead_letters, selection, step, outcome)
    )
    refused = [result for result in results if not result.done]
    left = f", {len(refused)} refused" if refused else ""
    print_status(f"{len(results) - len(refused)} {outcome}{left}" if results else NOTHING_FOUND)
    report_results(results if as_json else refused, as_json=as_json)


async def _run_for_each(
    hold: Holdfast, selection: Selection, step: Step, outcome: str, target: Target
) -> list[ItemResult]:
    """Apply a step to each letter separately: a refusal does not stop the others."""
    results = []
    for text in selection.job_ids:
        job_id = text
        try:
            job_id = await full_id(hold, text)
            await step(hold.dead_letters, job_id)
            results.append(ItemResult(job_id, done=True, detail=outcome))
        except LetterNotFound as error:
            results.append(ItemResult(job_id, done=False, detail=view.absent(job_id, error, target)))
        except (JobNotFound, StepRefused) as error:
            results.append(ItemResult(job_id, done=False, detail=str(error)))
    return results


async def _run_for_all(
    dead_letters: DeadLetterService, selection: Selection, step: Step, outcome: str
) -> list[ItemResult]:
    """Apply a step to all letters that match now, in batches."""
    ids = await _find_ids(dead_letters, selection.letter_filter)
    if not ids:
        return []
    results: list[ItemResult] = []
    with progress_reporter(len(ids), least=PAGE + 1) as report_progress:
        for first in range(0, len(ids), PAGE):
            page = tuple(ids[first : first + PAGE])
            # The filter is applied again: a letter that has changed meanwhile is skipped.
            moved = await step(dead_letters, replace(selection.letter_filter, job_ids=page, limit=len(page)))
            outcomes = dict.fromkeys(moved.done, ItemResult("", done=True, detail=outcome)) | {
                job_id: ItemResult("", done=False, detail=why) for job_id, why in moved.refused.items()
            }
            results += [outcomes[job_id]._replace(id=job_id) for job_id in page if job_id in outcomes]
            report_progress(first + len(page), f"{first + len(page)} of {len(ids)} letters")
    return results


async def _find_ids(dead_letters: DeadLetterService, letter_filter: LetterFilter) -> list[str]:
    """Return the id of every letter that a filter finds."""
    ids: list[str] = []
    page_filter = replace(letter_filter, limit=PAGE)
    while page := await dead_letters.list(page_filter):
        ids += [letter.job_id for letter in page]
        page_filter = replace(page_filter, before=page[-1].job_id)
    return ids


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, decode(value, what="it")
    except PayloadInvalid as error:
        # The message omits the value: an argument may be a secret.
        raise ConfigError(
            f"--correct {name}=… cannot be used: {error}; a text needs its own quotes: name='\"ada\"'"
        ) from None


def _file(name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found = decode(text, what=f"--correct-file {name!r}")
    except OSError as error:
        raise ConfigError(f"--correct-file {name!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--correct-file {name!r} is not JSON: it is not UTF-8") from None
    except PayloadInvalid as error:
        raise ConfigError(str(error)) from None
    if not isinstance(found, dict):
        raise ConfigError(f"--correct-file {name!r} must contain a JSON object with arguments by name")
    return found
