"""`holdfast dead archive` and `restore`: what leaves the database, and comes back."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.answers import Answer, tell
from holdfast.cli.asking import asked
from holdfast.cli.counting import Tell, counted
from holdfast.cli.exits import say
from holdfast.cli.lengths import length
from holdfast.cli.output import JsonOption, show_fields, show_json
from holdfast.cli.selecting import NOTHING_FOUND, FingerprintOption, NameOption, once
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.taking import taking
from holdfast.cli.target import NAME_IT, AppOption, Given, UrlOption, chosen
from holdfast.core.errors import ConfigError
from holdfast.core.letters import LetterFilter
from holdfast.engine.desk import Moved
from holdfast.engine.restoring import Archived
from holdfast.face import Holdfast
from holdfast.face.dead import DeadLetters

MANY = 501
"""From so many letters on it is told how far it has come."""

ARCHIVED = (
    Column("id"),
    Column("name", Room.CUT),
    Column("fingerprint"),
    Column("failed"),
    Column("file", Room.CUT),
)


def archive(
    *,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            "--older-than", parser=length, metavar="LENGTH", help="Letters that failed longer ago than this."
        ),
    ] = None,
    beyond: Annotated[
        int | None, typer.Option("--beyond", min=0, metavar="N", help="The oldest, beyond so many.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move dead letters to the archive, by the retention unless something else is given."""
    hold = _archiving(application, url)
    moved = asked(hold, lambda hold: hold.dead.archive(older_than=older_than, beyond=beyond, dry_run=dry_run))
    if as_json:
        show_json({"due" if dry_run else "archived": moved})
    else:
        show_fields({"would be archived" if dry_run else "archived": moved})


def meant(
    *,
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="The ids of jobs in the archive; else a filter.")
    ] = None,
    name: NameOption = None,
    fingerprint: FingerprintOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")] = None,
) -> LetterFilter:
    """Give the filter that these options make. Raises `ConfigError` for ids together with one."""
    if job_ids and (name or fingerprint):
        raise ConfigError("ids of jobs, and a filter, exclude each other; give one of them")
    ids = once(job_ids) if job_ids else None
    return LetterFilter(job_ids=ids, name=name, fingerprint=fingerprint, limit=limit)


@taking(meant)
def restore(
    wanted: LetterFilter,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every letter in the archive.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show what the archive holds, instead.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring dead letters back from the archive, with their jobs as they were."""
    is_narrowed = replace(wanted, limit=None) != LetterFilter()
    if not (is_narrowed or everything or listed):
        raise ConfigError(
            "no letter is named: give the ids of jobs, or --name, --fingerprint or --all; "
            "--list shows what the archive holds"
        )
    if is_narrowed and everything:
        raise ConfigError("--all, and ids of jobs or a filter, exclude each other; give one of them")
    hold = _archiving(application, url)
    if listed:
        _show_archive(asked(hold, lambda hold: hold.dead.archived(wanted)), as_json=as_json)
        return
    moved = asked(hold, lambda hold: _restored(hold.dead, wanted, dry_run=dry_run))
    _tell(moved, wanted, "would be restored" if dry_run else "restored", as_json=as_json)


async def _restored(dead: DeadLetters, wanted: LetterFilter, *, dry_run: bool) -> Moved:
    """Bring letters back, and tell how far it has come if there are many."""
    with ExitStack() as stack:
        tell_count: list[Tell] = []

        def told(looked: int, total: int) -> None:
            if not tell_count:
                tell_count.append(stack.enter_context(counted(total, least=MANY)))
            tell_count[0](looked, f"{looked} of {total} letters")

        return await dead.restore(wanted, dry_run=dry_run, told=told)


def _tell(moved: Moved, wanted: LetterFilter, what: str, *, as_json: bool) -> None:
    """Tell what became of each letter that was named, and how many a filter meant."""
    became = {job_id: Answer(job_id, done=True, detail=what) for job_id in moved.done} | {
        job_id: Answer(job_id, done=False, detail=why) for job_id, why in moved.refused.items()
    }
    if wanted.job_ids is not None:
        tell([became[job_id] for job_id in wanted.job_ids if job_id in became], as_json=as_json)
        return
    left = f", {len(moved.refused)} refused" if moved.refused else ""
    say(f"{len(moved.done)} {what}{left}" if became else NOTHING_FOUND)
    refused = [answer for answer in became.values() if not answer.done]
    tell(list(became.values()) if as_json else refused, as_json=as_json)


def _archiving(application: str | None, url: str | None) -> Holdfast:
    """Give what was chosen, if it is known where its archive is; of a bare store that may be in the code."""
    hold = chosen(application, url)
    if hold.parts.letters.archive is None and not Given(application, url).is_application:
        raise ConfigError(f"there is no archive: HOLDFAST_ARCHIVE_URL is not set; {NAME_IT}")
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
        say("no dead letters in the archive")
