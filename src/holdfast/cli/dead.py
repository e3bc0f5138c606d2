"""`holdfast dead`: what is left of jobs that failed, and the way back."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from holdfast.cli import dead_archive, dead_replays, dead_view
from holdfast.cli.answers import Answer, full_id, id_or_beginning, tell
from holdfast.cli.asking import ActorOption, asked, said
from holdfast.cli.counting import counted
from holdfast.cli.exits import say
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.selecting import NOTHING_FOUND, Selection, narrowed, selected
from holdfast.cli.taking import taking
from holdfast.cli.target import NAME_IT, AppOption, Given, UrlOption, chosen
from holdfast.core.errors import ConfigError, JobNotFound, LetterNotFound, PayloadInvalid, StepRefused
from holdfast.core.letters import OPEN, Cause, Group, Letter, LetterFilter, LetterState
from holdfast.core.payload import decode
from holdfast.engine.desk import Moved, Wanted
from holdfast.face import Holdfast
from holdfast.face.dead import DeadLetters

T = TypeVar("T")

PAGE = 500
"""Letters that a step is taken with together; after each such page it is told how far it has come."""

_S = LetterState

app = typer.Typer(
    no_args_is_help=True, help="Look at what is left of failed jobs, find the cause, and replay them."
)


ReasonOption = Annotated[str, typer.Option("--reason", metavar="WHY", help="Why; the history shows it.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")]

Take = Callable[[DeadLetters, Wanted], Awaitable[Moved]]
"""Takes a step with one letter, or with all that a filter finds."""


@app.command("list")
@taking(narrowed)
def list_letters(
    wanted: LetterFilter,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", parser=id_or_beginning, metavar="ID", help="Only jobs older than this one."),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, that of the newest job first."""

    async def ask(hold: Holdfast) -> tuple[list[Letter], datetime]:
        page_end = None if before is None else await full_id(hold, before)
        # One more tells whether there are more.
        found = await hold.dead.list(replace(wanted, limit=limit + 1, before=page_end))
        return found, await hold.parts.store.now()

    found, now = asked(chosen(application, url), ask)
    shown = found[:limit]
    if as_json:
        show_json([dead_view.as_listed(letter) for letter in shown])
    else:
        dead_view.show_list(shown, now)
    if len(found) > limit:
        say(f"{limit} shown, there are more: --limit N, or --before {shown[-1].job_id}")


@app.command("groups")
@taking(narrowed)
def groups(
    wanted: LetterFilter,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 50,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List groups of dead letters that failed in the same way and place, the most recent first."""
    wanted = replace(wanted, limit=limit + 1)
    found, now = asked(chosen(application, url), _at(lambda dead: dead.groups(wanted)))
    shown = found[:limit]
    if as_json:
        show_json([group._asdict() for group in shown])
    else:
        dead_view.show_groups(shown, now)
    if len(found) > limit:
        say(f"{limit} shown, there are more: --limit N")


@app.command("show")
def show(
    job: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter with its failure, what was done with it, and what to do next."""
    whole = asked(chosen(application, url), lambda hold: _whole(hold, job, Given(application, url)))
    if as_json:
        show_json(dead_view.as_json(whole))
    else:
        dead_view.show(whole)


@app.command("triage")
@taking(selected)
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
    """Put on record why jobs failed; a filter without --state means new letters."""

    def take(dead: DeadLetters, wanted: Wanted) -> Awaitable[Moved]:
        return dead.triage(wanted, cause, actor=actor, reason=reason, dry_run=dry_run)

    told = _told(_S.TRIAGED, dry_run=dry_run)
    _take(Given(application, url), selection.usually(_S.NEW), take, told=told, as_json=as_json)


@app.command("remediate")
@taking(selected)
def remediate(
    selection: Selection,
    *,
    evidence: Annotated[
        str,
        typer.Option("--evidence", parser=said, metavar="TEXT", help="What shows that the cause is gone."),
    ],
    actor: ActorOption,
    correct: Annotated[
        list[str] | None,
        typer.Option("--correct", metavar="NAME=JSON", help="Give one job another argument."),
    ] = None,
    correct_file: Annotated[
        str | None,
        typer.Option("--correct-file", metavar="FILE", help="Read such arguments from JSON; - is stdin."),
    ] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put on record what shows that the cause is gone; a filter without --state means triaged letters."""
    corrections = _corrections(correct or [], correct_file)
    if corrections is not None and len(selection.job_ids) != 1:
        raise ConfigError("arguments are corrected for one job at a time; name it by its id")
    if corrections is not None and not Given(application, url).is_application:
        raise ConfigError(f"arguments are checked by what the code declares, and none is known; {NAME_IT}")

    def take(dead: DeadLetters, wanted: Wanted) -> Awaitable[Moved]:
        return dead.remediate(
            wanted, evidence, actor=actor, reason=reason, correct=corrections, dry_run=dry_run
        )

    told = _told(_S.REMEDIATED, dry_run=dry_run)
    _take(Given(application, url), selection.usually(_S.TRIAGED), take, told=told, as_json=as_json)


app.command("plan")(dead_replays.plan)
app.command("replay")(dead_replays.replay)
app.command("progress")(dead_replays.progress)
app.command("stop")(dead_replays.stop)


@app.command("close")
@taking(selected)
def close(
    selection: Selection,
    *,
    notes: Annotated[str, typer.Option("--notes", parser=said, metavar="TEXT", help="How it was repaired.")],
    actor: ActorOption,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put on record how jobs that have completed were repaired; a filter without --state means verified letters."""

    def take(dead: DeadLetters, wanted: Wanted) -> Awaitable[Moved]:
        return dead.close(wanted, notes, actor=actor, dry_run=dry_run)

    told = _told(_S.CLOSED, dry_run=dry_run)
    _take(Given(application, url), selection.usually(_S.VERIFIED), take, told=told, as_json=as_json)


@app.command("discard")
@taking(selected)
def discard(
    selection: Selection,
    *,
    reason: Annotated[str, typer.Option("--reason", parser=said, metavar="WHY", help="Why; it is kept.")],
    actor: ActorOption,
    dry_run: DryRunOption = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give failed jobs up; a filter without --state means letters in any state before replaying."""

    def take(dead: DeadLetters, wanted: Wanted) -> Awaitable[Moved]:
        return dead.discard(wanted, reason, actor=actor, dry_run=dry_run)

    told = _told(_S.DISCARDED, dry_run=dry_run)
    _take(Given(application, url), selection.usually(*OPEN), take, told=told, as_json=as_json)


app.command("archive")(dead_archive.archive)
app.command("restore")(dead_archive.restore)


def _at(
    read: Callable[[DeadLetters], Awaitable[T]],
) -> Callable[[Holdfast], Any]:
    """Read something, and tell what time it is for the store."""

    async def ask(hold: Holdfast) -> tuple[T, datetime]:
        found = await read(hold.dead)
        now = await hold.parts.store.now()
        return found, now

    return ask


async def _whole(hold: Holdfast, job_id: str, given: Given) -> dead_view.Whole:
    job_id = await full_id(hold, job_id)
    try:
        dossier = await hold.dead.show(job_id)
    except LetterNotFound as error:
        raise LetterNotFound(dead_view.absent(job_id, error, given)) from None
    group = await _group(hold, dossier.letter)
    now = await hold.parts.store.now()
    return dead_view.Whole(dossier, group, now, given)


async def _group(hold: Holdfast, letter: Letter) -> Group | None:
    found = await hold.dead.groups(LetterFilter(fingerprint=letter.fingerprint, limit=1))
    return found[0] if found else None


def _told(state: LetterState, *, dry_run: bool) -> str:
    return f"would be {state}" if dry_run else str(state)


def _take(given: Given, selection: Selection, take: Take, *, told: str, as_json: bool) -> None:
    """Take a step with all that is meant; tell what became of each that was named, and how many a filter meant."""
    if selection.job_ids:
        each = asked(chosen(*given), lambda hold: _each(hold, selection, take, told, given))
        tell(each, as_json=as_json)
        return
    answers = asked(chosen(*given), lambda hold: _all(hold.dead, selection, take, told))
    refused = [answer for answer in answers if not answer.done]
    left = f", {len(refused)} refused" if refused else ""
    say(f"{len(answers) - len(refused)} {told}{left}" if answers else NOTHING_FOUND)
    tell(answers if as_json else refused, as_json=as_json)


async def _each(hold: Holdfast, selection: Selection, take: Take, told: str, given: Given) -> list[Answer]:
    """Take a step with each letter on its own: one that does not allow it does not keep the others from it."""
    answers = []
    for text in selection.job_ids:
        job_id = text
        try:
            job_id = await full_id(hold, text)
            await take(hold.dead, job_id)
            answers.append(Answer(job_id, done=True, detail=told))
        except LetterNotFound as error:
            answers.append(Answer(job_id, done=False, detail=dead_view.absent(job_id, error, given)))
        except (JobNotFound, StepRefused) as error:
            answers.append(Answer(job_id, done=False, detail=str(error)))
    return answers


async def _all(dead: DeadLetters, selection: Selection, take: Take, told: str) -> list[Answer]:
    """Take a step with all letters that are there now, a page at a time."""
    ids = await _found(dead, selection.wanted)
    if not ids:
        return []
    answers: list[Answer] = []
    with counted(len(ids), least=PAGE + 1) as tell_count:
        for first in range(0, len(ids), PAGE):
            page = tuple(ids[first : first + PAGE])
            # The filter goes along: who has changed meanwhile is not meant any more.
            moved = await take(dead, replace(selection.wanted, job_ids=page, limit=len(page)))
            became = dict.fromkeys(moved.done, Answer("", done=True, detail=told)) | {
                job_id: Answer("", done=False, detail=why) for job_id, why in moved.refused.items()
            }
            answers += [became[job_id]._replace(id=job_id) for job_id in page if job_id in became]
            tell_count(first + len(page), f"{first + len(page)} of {len(ids)} letters")
    return answers


async def _found(dead: DeadLetters, wanted: LetterFilter) -> list[str]:
    """Name every letter that a filter finds."""
    ids: list[str] = []
    page_filter = replace(wanted, limit=PAGE)
    while page := await dead.list(page_filter):
        ids += [letter.job_id for letter in page]
        page_filter = replace(page_filter, before=page[-1].job_id)
    return ids


def _corrections(pairs: list[str], file: str | None) -> dict[str, Any] | None:
    """Read arguments; what a command line names goes before what a file holds. `None` if there are none."""
    if not pairs and file is None:
        return None
    return {**({} if file is None else _file(file)), **dict(map(_pair, pairs))}


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, decode(value, what="it")
    except PayloadInvalid as error:
        # Not what was given: an argument may be anything, a password among others.
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
        raise ConfigError(f"--correct-file {name!r} holds no JSON object, with arguments by their names")
    return found
