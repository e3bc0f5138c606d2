"""`holdfast dead archive` and `restore`: move dead letters to the archive and back."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import print_status
from holdfast.cli.options.app_loader import APP_HINT, AppOption, Target, UrlOption, resolve
from holdfast.cli.options.durations import parse_duration
from holdfast.cli.options.letter_selection import NOTHING_FOUND, FingerprintOption, NameOption, unique_ids
from holdfast.cli.options.shared_options import with_options_of
from holdfast.cli.results import ItemResult, report_results
from holdfast.cli.session import run_with_store
from holdfast.cli.views.output import JsonOption, show_fields, show_json
from holdfast.cli.views.progress import ReportProgress, progress_reporter
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.core.errors import ConfigError
from holdfast.engine.dead_letters.dead_letter_service import DeadLetterService
from holdfast.engine.dead_letters.letter_selection import BulkResult
from holdfast.engine.dead_letters.restorer import Archived

MANY = 501
"""From this number of letters on, progress is reported."""

ARCHIVED = (
    Column("id"),
    Column("name", Fit.CUT),
    Column("fingerprint"),
    Column("failed"),
    Column("file", Fit.CUT),
)


def archive(
    *,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            "--older-than",
            parser=parse_duration,
            metavar="LENGTH",
            help="Letters that failed longer ago than this.",
        ),
    ] = None,
    beyond: Annotated[
        int | None,
        typer.Option(
            "--beyond", min=0, metavar="N", help="Keep this number of letters, and archive older ones."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move dead letters to the archive, by the retention settings unless options are given."""
    hold = _resolve_with_archive(application, url)
    moved = run_with_store(
        hold, lambda hold: hold.dead_letters.archive(older_than=older_than, beyond=beyond, dry_run=dry_run)
    )
    if as_json:
        show_json({"due" if dry_run else "archived": moved})
    else:
        show_fields({"would be archived" if dry_run else "archived": moved})


def build_archive_filter(
    *,
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of jobs in the archive; or use a filter.")
    ] = None,
    name: NameOption = None,
    fingerprint: FingerprintOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of rows.")] = None,
) -> LetterFilter:
    """Build the filter from its options. Raises `ConfigError` if ids are combined with other options."""
    if job_ids and (name or fingerprint):
        raise ConfigError("ids of jobs cannot be combined with a filter")
    ids = unique_ids(job_ids) if job_ids else None
    return LetterFilter(job_ids=ids, name=name, fingerprint=fingerprint, limit=limit)


@with_options_of(build_archive_filter)
def restore(
    letter_filter: LetterFilter,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All letters in the archive.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the contents of the archive instead.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore dead letters and their jobs from the archive, or list its contents."""
    has_filter = replace(letter_filter, limit=None) != LetterFilter()
    if not (has_filter or everything or listed):
        raise ConfigError(
            "no dead letters are selected: give the ids of jobs, or --name, --fingerprint or --all; "
            "--list shows the contents of the archive"
        )
    if has_filter and everything:
        raise ConfigError("--all cannot be combined with ids of jobs or a filter")
    hold = _resolve_with_archive(application, url)
    if listed:
        _show_archive(
            run_with_store(hold, lambda hold: hold.dead_letters.archived(letter_filter)), as_json=as_json
        )
        return
    moved = run_with_store(hold, lambda hold: _restore(hold.dead_letters, letter_filter, dry_run=dry_run))
    _report_restored(moved, letter_filter, "would be restored" if dry_run else "restored", as_json=as_json)


async def _restore(
    dead_letters: DeadLetterService, letter_filter: LetterFilter, *, dry_run: bool
) -> BulkResult:
    """Restore letters, and report progress if there are many."""
    with ExitStack() as stack:
        reporter: list[ReportProgress] = []

        def report_progress(looked: int, total: int) -> None:
            if not reporter:
                reporter.append(stack.enter_context(progress_reporter(total, least=MANY)))
            reporter[0](looked, f"{looked} of {total} letters")

        return await dead_letters.restore(letter_filter, dry_run=dry_run, on_progress=report_progress)


def _report_restored(moved: BulkResult, letter_filter: LetterFilter, what: str, *, as_json: bool) -> None:
    """Print the result for each letter given by id; for a filter, print the count."""
    outcomes = {job_id: ItemResult(job_id, done=True, detail=what) for job_id in moved.done} | {
        job_id: ItemResult(job_id, done=False, detail=why) for job_id, why in moved.refused.items()
    }
    if letter_filter.job_ids is not None:
        report_results(
            [outcomes[job_id] for job_id in letter_filter.job_ids if job_id in outcomes], as_json=as_json
        )
        return
    left = f", {len(moved.refused)} refused" if moved.refused else ""
    print_status(f"{len(moved.done)} {what}{left}" if outcomes else NOTHING_FOUND)
    refused = [result for result in outcomes.values() if not result.done]
    report_results(list(outcomes.values()) if as_json else refused, as_json=as_json)


def _resolve_with_archive(application: str | None, url: str | None) -> Holdfast:
    """Resolve the Holdfast. Raises `ConfigError` if a bare store has no archive, as code may configure one."""
    hold = resolve(application, url)
    if not hold.dead_letters.has_archive and not Target(application, url).is_application:
        raise ConfigError(f"no archive is configured: HOLDFAST_ARCHIVE_URL is not set; {APP_HINT}")
    return hold


def _show_archive(found: list[Archived], *, as_json: bool) -> None:
    rows = [
        (letter.job_id, letter.name, letter.fingerprint, letter.last_failure_at, file)
        for letter, file in found
    ]
    if as_json:
        names = ("id", "name", "fingerprint", "failed_at", "file")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        show_table(ARCHIVED, rows)
    else:
        print_status("no dead letters in the archive")
