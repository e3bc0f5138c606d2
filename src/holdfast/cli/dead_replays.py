"""`holdfast dead plan`, `replay`, `progress` and `stop`: failed jobs come back, under a plan."""

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli.answers import about
from holdfast.cli.asking import ActorOption, asked, said
from holdfast.cli.counting import Tell, counted
from holdfast.cli.dead_view import absent
from holdfast.cli.exits import ExitCode, say
from holdfast.cli.output import JsonOption, show_fields, show_json, show_title
from holdfast.cli.selecting import NOTHING_FOUND, Selection, selected
from holdfast.cli.tables import Column, Room, show_table
from holdfast.cli.taking import taking
from holdfast.cli.target import NAME_IT, AppOption, Given, UrlOption, chosen
from holdfast.core.errors import ConfigError, LetterNotFound
from holdfast.core.letters import LetterState
from holdfast.core.limits import Rate
from holdfast.core.replays import PACE, Phase
from holdfast.engine.desk import Planned, Progress
from holdfast.face import Holdfast

LOOK = 0.5
"""Seconds between two looks at a replay."""

STILL = 60
"""Looks without any change after which it is said what may be the matter."""

CHECKS = (Column("check"), Column("ok"), Column("finding", Room.FOLDED))
LETTERS = (Column("id"), Column("ready"), Column("why", Room.FOLDED, usual=("-",)))

_S = LetterState


def _pace(text: str) -> float:
    """Read `10/s` or `60/min` as letters a second."""
    try:
        return 1 / Rate.of(text).interval
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no pace; write letters and time, such as 10/s or 60/min"
        ) from None


TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="The plan's token.")]


@taking(selected)
def plan(
    selection: Selection,
    *,
    safe: Annotated[
        str,
        typer.Option(
            "--safe",
            parser=said,
            metavar="WHY",
            help="Why it does no harm if something takes effect twice.",
        ),
    ],
    actor: ActorOption,
    restart: Annotated[bool, typer.Option("--restart", help="Run finished stages again, too.")] = False,
    canary: Annotated[int, typer.Option("--canary", min=0, help="So many letters go first.")] = 1,
    pace: Annotated[
        float, typer.Option("--pace", parser=_pace, metavar="RATE", help="How fast the others follow.")
    ] = f"{PACE:g}/s",  # type: ignore[assignment] # read by the parser
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what is ready, and plan nothing.")] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the replay of letters that are ready; a filter without --state means remediated and validated ones."""
    given = Given(application, url)
    if not given.is_application:
        raise ConfigError(f"a plan looks at what the code declares, and none is known; {NAME_IT}")
    selection = selection.usually(_S.REMEDIATED, _S.VALIDATED)

    async def ask(hold: Holdfast) -> tuple[Planned, tuple[str, ...]]:
        meant = await selection.with_full_ids(hold)
        # One letter by its id: if there is none, that is said.
        [wanted, *more] = meant.job_ids or [meant.as_filter()]
        try:
            planned = await hold.dead.plan(
                meant.as_filter() if more else wanted,
                safe=safe,
                actor=actor,
                restart=restart,
                canary=canary,
                pace=pace,
                dry_run=dry_run,
            )
        except LetterNotFound as error:
            raise LetterNotFound(absent(meant.job_ids[0], error, given)) from None
        return planned, meant.job_ids

    planned, named = asked(chosen(application, url), ask)
    missing = [job_id for job_id in named if job_id not in planned.checks]
    if as_json:
        show_json(_planned_json(planned, missing))
    else:
        _show_planned(planned, given, each=bool(selection.job_ids))
    for job_id in missing:
        say(absent(job_id, f"there is no dead letter of job {job_id}", given))
    _end_planned(planned, missing, dry_run=dry_run)


def _planned_json(planned: Planned, missing: list[str]) -> dict[str, Any]:
    return {
        "token": planned.token,
        "ready": planned.ready,
        "refused": planned.refused,
        "missing": missing,
        "checks": {job_id: [check._asdict() for check in found] for job_id, found in planned.checks.items()},
    }


def _show_planned(planned: Planned, given: Given, *, each: bool) -> None:
    """Show the plan, and of *each* letter, if they were named, what was found: of one its checks, else one line."""
    if each and len(planned.checks) == 1:
        [found] = planned.checks.values()
        show_table(CHECKS, found)
    elif each:
        refused = planned.refused
        show_table(
            LETTERS, [(job_id, job_id not in refused, refused.get(job_id)) for job_id in planned.checks]
        )
    if planned.token is not None:
        if each:
            show_title("plan")
        show_fields({"token": planned.token, "letters": len(planned.ready)})
        show_title("next, within an hour")
        typer.echo(f"  {given.typed(f'dead replay {planned.token} --actor WHO')}")


def _end_planned(planned: Planned, missing: list[str], *, dry_run: bool) -> None:
    """Say what is not part of the plan; that is exit code 1."""
    checked, refused = len(planned.checks), planned.refused
    for job_id, why in refused.items():
        say(about(job_id, why))
    if dry_run and checked:
        say(f"{len(planned.ready)} of {checked} letters are ready; nothing was planned")
    elif refused and checked > 1:
        say(f"{len(refused)} of {checked} letters are not ready, and were left as they are")
    if not checked and not missing:
        say(NOTHING_FOUND)
    if missing or refused:
        raise typer.Exit(ExitCode.REFUSED)


def replay(
    token: TokenArgument,
    *,
    actor: ActorOption,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch until it is done or stopped.")] = True,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a plan begin, which workers then carry out."""

    async def ask(hold: Holdfast) -> Progress:
        begun = await hold.dead.replay(token, actor=actor)
        return await _watched(hold, token) if wait else begun

    given = Given(application, url)
    _tell(_uninterrupted(given, ask, token), given, as_json=as_json, judge=wait)


def progress(
    token: TokenArgument,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Watch until it is done or stopped.")] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell how far a replay has come."""

    async def ask(hold: Holdfast) -> Progress:
        return await (_watched(hold, token) if wait else hold.dead.progress(token))

    given = Given(application, url)
    _tell(_uninterrupted(given, ask, token), given, as_json=as_json, judge=wait)


def stop(
    token: TokenArgument,
    *,
    actor: ActorOption,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="Why; the plan shows it.")] = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let no more letters of a plan follow, while jobs that are under way go on."""
    stopped = asked(chosen(application, url), lambda hold: hold.dead.stop(token, actor=actor, reason=reason))
    _tell(stopped, Given(application, url), as_json=as_json, judge=False)


def _uninterrupted(given: Given, ask: Any, token: str) -> Progress:
    try:
        found: Progress = asked(chosen(*given), ask)
    except KeyboardInterrupt:
        say(f"plan {token} goes on by itself; `{given.typed(f'dead stop {token} --actor WHO')}` stops it")
        raise
    return found


async def _watched(hold: Holdfast, token: str) -> Progress:
    """Look at a replay until it has ended. Whether a worker carries it out cannot be seen, only guessed."""
    found = await hold.dead.progress(token)
    with counted(found.plan.letters) as tell:
        still = 0
        while found.plan.is_running:
            _count(tell, found)
            if still == STILL:
                say("nothing has moved for a while: the jobs take long, or no worker runs")
            await asyncio.sleep(LOOK)
            before, found = found, await hold.dead.progress(token)
            still = still + 1 if found == before else 0
        _count(tell, found)
    return found


def _count(tell: Tell, found: Progress) -> None:
    standing = found.standing
    ended = standing.count(_S.VERIFIED, _S.CLOSED, _S.NEW, _S.DISCARDED)
    words = f"{found.plan.phase}: {standing.replayed} of {found.plan.letters} replayed"
    tell(ended, f"{words}, {standing.count(_S.VERIFIED, _S.CLOSED)} completed, {_failed(found)} failed again")


def _failed(found: Progress) -> int:
    return found.standing.count(_S.NEW)


def _tell(found: Progress, given: Given, *, as_json: bool, judge: bool) -> None:
    """Show how a plan stands; whoever has waited for its end is told by the exit code whether that is a good one."""
    plan, standing = found
    figures = {
        "replayed": standing.replayed,
        "waiting": standing.count(_S.VALIDATED),
        "under_way": standing.count(_S.REPLAYING),
        "completed": standing.count(_S.VERIFIED, _S.CLOSED),
        "failed_again": _failed(found),
        "in_the_same_place": standing.repeated,
        "cancelled": standing.count(_S.DISCARDED),
    }
    if as_json:
        show_json(
            {"token": plan.token, "phase": plan.phase, "why": plan.why, "letters": plan.letters, **figures}
        )
    else:
        facts = {"plan": plan.token, "phase": plan.phase, "why": plan.why, "letters": plan.letters}
        always = ("replayed", "completed", "failed_again")
        shown = {name: count for name, count in figures.items() if count or name in always}
        show_fields({name: value for name, value in facts.items() if value != ""} | shown)
        _show_next(found, given)
    if judge and (
        plan.phase is not Phase.DONE or plan.why or figures["failed_again"] or figures["cancelled"]
    ):
        raise typer.Exit(ExitCode.REFUSED)


def _show_next(found: Progress, given: Given) -> None:
    """Say what to type next: look at what failed again, and close what has completed."""
    token, standing = found.plan.token, found.standing
    typed = []
    if found.plan.is_running:
        typed.append(f"dead progress {token} --wait")
    if _failed(found):
        typed.append(f"dead list --plan {token} --state new")
    if found.plan.phase is Phase.STOPPED and standing.count(_S.VALIDATED):
        typed.append(f'dead plan --plan {token} --safe "…" --actor WHO')
    if not found.plan.is_running and standing.count(_S.VERIFIED):
        typed.append(f'dead close --plan {token} --notes "…" --actor WHO')
    if typed:
        show_title("next")
        for words in typed:
            typer.echo(f"  {given.typed(words)}")
