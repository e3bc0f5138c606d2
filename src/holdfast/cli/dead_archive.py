"""`holdfast dead archive` and `restore`: what leaves the database, and comes back."""

from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.answers import Answer, canonical, tell
from holdfast.cli.asking import asked
from holdfast.cli.exits import say
from holdfast.cli.lengths import length
from holdfast.cli.output import JsonOption, show_fields, show_json
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.target import NAME_IT, AppOption, Given, UrlOption, chosen
from holdfast.core.errors import ConfigError
from holdfast.engine.desk import Archived
from holdfast.face import Holdfast

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


def restore(
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="The ids of jobs in the archive.")
    ] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="Show what the archive holds, instead.")] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring dead letters back from the archive, with their jobs as they were."""
    if listed == bool(job_ids):
        raise ConfigError("give the ids of jobs, or --list to see what the archive holds")
    hold = _archiving(application, url)
    if listed:
        _show_archive(asked(hold, lambda hold: hold.dead.archived()), as_json=as_json)
        return
    ids = list(dict.fromkeys(map(canonical, job_ids or ())))
    back = asked(hold, lambda hold: hold.dead.restore(ids))
    answers = [
        Answer(job_id, done=True, detail="restored")
        if job_id in back
        else Answer(job_id, done=False, detail=f"job {job_id} is in the database already, and was left alone")
        for job_id in ids
    ]
    tell(answers, as_json=as_json)


def _archiving(application: str | None, url: str | None) -> Holdfast:
    """Give what was chosen, if it is known where its archive is; of a bare store that may be in the code."""
    hold = chosen(application, url)
    if hold.parts.letters.archive is None and not Given(application, url).is_application:
        raise ConfigError(f"there is no archive: ARCHIVE_URL is not set; {NAME_IT}")
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
