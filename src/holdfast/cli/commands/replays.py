"""`holdfast dead plan`, `replay`, `progress` and `stop`: replay failed jobs under a plan."""

import asyncio
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode, print_status
from holdfast.cli.options.app_loader import APP_HINT, AppOption, Target, UrlOption, resolve
from holdfast.cli.options.letter_selection import NOTHING_FOUND, Selection, build_selection
from holdfast.cli.options.shared_options import with_options_of
from holdfast.cli.results import with_job_id
from holdfast.cli.session import ActorOption, non_empty, run_with_store
from holdfast.cli.views.dead_letters import absent
from holdfast.cli.views.output import JsonOption, show_fields, show_json, show_title
from holdfast.cli.views.progress import ReportProgress, progress_reporter
from holdfast.cli.views.table import Column, Fit, show_table
from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.dead_letters.replay_plan import PACE, Phase
from holdfast.core.errors import ConfigError, LetterNotFound
from holdfast.core.providers.limits import Rate
from holdfast.engine.dead_letters.replay_planner import PlanResult, Progress

POLL_SECONDS = 0.5
"""Seconds between two reads of a replay's progress."""

STALLED_AFTER = 60
"""Reads without progress after which a hint is printed."""

CHECKS = (Column("check"), Column("ok"), Column("finding", Fit.FOLDED))
LETTERS = (Column("id"), Column("ready"), Column("why", Fit.FOLDED, omit_if=("-",)))

_S = LetterState


def _pace(text: str) -> float:
    """Read `10/s` or `60/min` as letters a second."""
    try:
        return 1 / Rate.of(text).interval
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a rate; write letters per time, such as 10/s or 60/min"
        ) from None


TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="The plan's token.")]


@with_options_of(build_selection)
def plan(
    selection: Selection,
    *,
    safe: Annotated[
        str,
        typer.Option(
            "--safe",
            parser=non_empty,
            metavar="WHY",
            help="Why a second execution is safe.",
        ),
    ],
    actor: ActorOption,
    restart: Annotated[bool, typer.Option("--restart", help="Run finished stages again.")] = False,
    canary: Annotated[int, typer.Option("--canary", min=0, help="Number of letters to replay first.")] = 1,
    pace: Annotated[
        float,
        typer.Option(
            "--pace", parser=_pace, metavar="RATE", help="Rate at which the other letters are replayed."
        ),
    ] = f"{PACE:g}/s",  # type: ignore[assignment] # read by the parser
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print which letters are ready, and plan nothing.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check letters and plan their replay; without --state a filter selects remediated and validated letters."""
    target = Target(application, url)
    if not target.is_application:
        raise ConfigError(
            f"a plan checks letters against the declarations of their jobs, so the application is needed; {APP_HINT}"
        )
    selection = selection.with_default_states(_S.REMEDIATED, _S.VALIDATED)

    async def operation(hold: Holdfast) -> tuple[PlanResult, tuple[str, ...]]:
        resolved = await selection.with_full_ids(hold)
        # A single id is passed as such: then a missing letter raises.
        [letter_filter, *more] = resolved.job_ids or [resolved.as_filter()]
        try:
            planned = await hold.dead_letters.plan(
                resolved.as_filter() if more else letter_filter,
                safe=safe,
                actor=actor,
                restart=restart,
                canary=canary,
                pace=pace,
                dry_run=dry_run,
            )
        except LetterNotFound as error:
            raise LetterNotFound(absent(resolved.job_ids[0], error, target)) from None
        return planned, resolved.job_ids

    planned, named = run_with_store(resolve(application, url), operation)
    missing = [job_id for job_id in named if job_id not in planned.checks]
    if as_json:
        show_json(_planned_json(planned, missing))
    else:
        _show_planned(planned, target, each=bool(selection.job_ids))
    for job_id in missing:
        print_status(absent(job_id, f"there is no dead letter of job {job_id}", target))
    _end_planned(planned, missing, dry_run=dry_run)


def _planned_json(planned: PlanResult, missing: list[str]) -> dict[str, Any]:
    return {
        "token": planned.token,
        "ready": planned.ready,
        "refused": planned.refused,
        "missing": missing,
        "checks": {job_id: [check._asdict() for check in found] for job_id, found in planned.checks.items()},
    }


def _show_planned(planned: PlanResult, target: Target, *, each: bool) -> None:
    """Print the plan, and with *each* the result for each letter: the checks of a single one, otherwise one line."""
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
        typer.echo(f"  {target.command_line(f'dead replay {planned.token} --actor WHO')}")


def _end_planned(planned: PlanResult, missing: list[str], *, dry_run: bool) -> None:
    """Report letters that are not part of the plan, and exit with 1 if there are any."""
    checked, refused = len(planned.checks), planned.refused
    for job_id, why in refused.items():
        print_status(with_job_id(job_id, why))
    if dry_run and checked:
        print_status(f"{len(planned.ready)} of {checked} letters are ready; nothing was planned")
    elif refused and checked > 1:
        print_status(f"{len(refused)} of {checked} letters are not ready, and were left as they are")
    if not checked and not missing:
        print_status(NOTHING_FOUND)
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
    """Start a replay plan, which workers carry out, and watch it until it ends."""

    async def operation(hold: Holdfast) -> Progress:
        begun = await hold.dead_letters.replay(token, actor=actor)
        return await _watch(hold, token) if wait else begun

    target = Target(application, url)
    _print_progress(
        _run_until_interrupted(target, operation, token), target, as_json=as_json, check_outcome=wait
    )


def progress(
    token: TokenArgument,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Watch until it is done or stopped.")] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a replay plan."""

    async def operation(hold: Holdfast) -> Progress:
        return await (_watch(hold, token) if wait else hold.dead_letters.progress(token))

    target = Target(application, url)
    _print_progress(
        _run_until_interrupted(target, operation, token), target, as_json=as_json, check_outcome=wait
    )


def stop(
    token: TokenArgument,
    *,
    actor: ActorOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="The reason; the plan shows it.")
    ] = "",
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a replay plan; jobs that are already replayed continue."""
    stopped = run_with_store(
        resolve(application, url), lambda hold: hold.dead_letters.stop(token, actor=actor, reason=reason)
    )
    _print_progress(stopped, Target(application, url), as_json=as_json, check_outcome=False)


def _run_until_interrupted(target: Target, operation: Any, token: str) -> Progress:
    try:
        found: Progress = run_with_store(resolve(*target), operation)
    except KeyboardInterrupt:
        print_status(
            f"plan {token} continues; `{target.command_line(f'dead stop {token} --actor WHO')}` stops it"
        )
        raise
    return found


async def _watch(hold: Holdfast, token: str) -> Progress:
    """Poll a replay until it has ended; print a hint if it makes no progress."""
    found = await hold.dead_letters.progress(token)
    with progress_reporter(found.plan.letters) as report:
        still = 0
        while found.plan.is_running:
            _report_counts(report, found)
            if still == STALLED_AFTER:
                print_status("no progress for 30 s: the jobs take long, or no worker is running")
            await asyncio.sleep(POLL_SECONDS)
            before, found = found, await hold.dead_letters.progress(token)
            still = still + 1 if found == before else 0
        _report_counts(report, found)
    return found


def _report_counts(report: ReportProgress, found: Progress) -> None:
    counts = found.counts
    ended = counts.count(_S.VERIFIED, _S.CLOSED, _S.NEW, _S.DISCARDED)
    text = f"{found.plan.phase}: {counts.replayed} of {found.plan.letters} replayed"
    report(
        ended,
        f"{text}, {counts.count(_S.VERIFIED, _S.CLOSED)} completed, {_failed_again(found)} failed again",
    )


def _failed_again(found: Progress) -> int:
    return found.counts.count(_S.NEW)


def _print_progress(found: Progress, target: Target, *, as_json: bool, check_outcome: bool) -> None:
    """Print the progress of a plan; with *check_outcome*, exit with 1 unless all jobs have completed."""
    plan, counts = found
    totals = {
        "replayed": counts.replayed,
        "waiting": counts.count(_S.VALIDATED),
        "under_way": counts.count(_S.REPLAYING),
        "completed": counts.count(_S.VERIFIED, _S.CLOSED),
        "failed_again": _failed_again(found),
        "in_the_same_place": counts.repeated,
        "cancelled": counts.count(_S.DISCARDED),
    }
    if as_json:
        show_json(
            {"token": plan.token, "phase": plan.phase, "why": plan.why, "letters": plan.letters, **totals}
        )
    else:
        facts = {"plan": plan.token, "phase": plan.phase, "why": plan.why, "letters": plan.letters}
        always = ("replayed", "completed", "failed_again")
        shown = {name: count for name, count in totals.items() if count or name in always}
        show_fields({name: value for name, value in facts.items() if value != ""} | shown)
        _print_next_commands(found, target)
    if check_outcome and (
        plan.phase is not Phase.DONE or plan.why or totals["failed_again"] or totals["cancelled"]
    ):
        raise typer.Exit(ExitCode.REFUSED)


def _print_next_commands(found: Progress, target: Target) -> None:
    """Print the next commands: inspect what failed again, and close what has completed."""
    token, counts = found.plan.token, found.counts
    command_line = []
    if found.plan.is_running:
        command_line.append(f"dead progress {token} --wait")
    if _failed_again(found):
        command_line.append(f"dead list --plan {token} --state new")
    if found.plan.phase is Phase.STOPPED and counts.count(_S.VALIDATED):
        command_line.append(f'dead plan --plan {token} --safe "…" --actor WHO')
    if not found.plan.is_running and counts.count(_S.VERIFIED):
        command_line.append(f'dead close --plan {token} --notes "…" --actor WHO')
    if command_line:
        show_title("next")
        for text in command_line:
            typer.echo(f"  {target.command_line(text)}")
