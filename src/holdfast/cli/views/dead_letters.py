"""Renders dead letters as text and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

import typer

from holdfast.cli.exit_codes import print_status
from holdfast.cli.options.app_loader import Target
from holdfast.cli.options.durations import format_relative
from holdfast.cli.results import is_id
from holdfast.cli.views.output import EMPTY, pairs, plain, show_fields, show_title
from holdfast.cli.views.table import Column, Fit, moment, show_table
from holdfast.core.dead_letters.letter import NEXT, Group, Letter, LetterState
from holdfast.core.errors import LetterNotFound
from holdfast.core.failures.failure import Sent
from holdfast.core.redaction import printable
from holdfast.engine.dead_letters.letter_repair import DeadLetterDetails

COLUMNS = (
    Column("id"),
    Column("name", Fit.CUT),
    Column("queue", Fit.NONE),
    Column("owner", Fit.NONE),
    Column("stage", Fit.CUT, omit_if=(EMPTY,), drop_order=2),
    Column("error_class", drop_order=4),
    Column("fingerprint", drop_order=3),
    Column("state"),
    Column("escalated", omit_if=("no",)),
    Column("failed", drop_order=1),
    Column("message", Fit.CUT, min_width=16),
)
GROUPS = (
    Column("fingerprint"),
    Column("error_class"),
    Column("place", Fit.CUT, min_width=12),
    Column("name", Fit.CUT, min_width=12),
    Column("letters"),
    Column("open"),
    Column("first", drop_order=1),
    Column("last"),
)
STAGES = (Column("stage"), Column("status"), Column("attempts"))
HISTORY = (
    Column("at"),
    Column("state"),
    Column("by", Fit.CUT),
    Column("reason", Fit.FOLDED, omit_if=(EMPTY,)),
    Column("details", Fit.FOLDED, omit_if=(EMPTY,)),
)

NONE = "no dead letters"

SENT: Mapping[Sent, str] = {
    Sent.NO: "no: it never left, or was refused; nothing took effect",
    Sent.MAYBE: "maybe: the other side may have acted on it",
    Sent.YES: "yes: the other side has answered",
}

_S = LetterState

COMMANDS: Mapping[LetterState, str] = {
    _S.NEW: "dead triage {id} --cause transient|data|configuration|code --actor WHO",
    _S.TRIAGED: 'dead remediate {id} --evidence "…" --actor WHO',
    _S.REMEDIATED: 'dead plan {id} --safe "why a second execution is safe" --actor WHO',
    _S.VALIDATED: "dead replay {plan} --actor WHO",
    _S.REPLAYING: "dead progress {plan} --wait",
    _S.VERIFIED: 'dead close {id} --notes "…" --actor WHO',
}
"""The next command for a letter in each state; closed and discarded letters have none."""


class DeadLetterView(NamedTuple):
    """A letter with its history, and the group that it belongs to."""

    details: DeadLetterDetails
    group: Group | None
    now: datetime
    target: Target


def absent(job_id: str, error: LetterNotFound | str, target: Target) -> str:
    """Return an error text for a missing letter, with a hint at the archive."""
    if not is_id(job_id):
        return str(error)
    return f"{error}; it may be archived: {target.command_line('dead restore --list')}"


def show_list(found: Sequence[Letter], now: datetime) -> None:
    """Print letters as a table."""
    if not found:
        print_status(NONE)
        return
    show_table(COLUMNS, [_row(letter, now) for letter in found])


def _row(letter: Letter, now: datetime) -> tuple[object, ...]:
    return (
        letter.job_id,
        letter.name,
        letter.queue,
        letter.owner,
        letter.stage,
        letter.error_class,
        letter.fingerprint,
        letter.state,
        letter.escalated,
        moment(letter.last_failure_at, now),
        letter.failure.message,
    )


def as_listed(letter: Letter) -> dict[str, Any]:
    """Return a letter as JSON values, without its stack."""
    failure = letter.failure.to_dict()
    del failure["stack"]
    values = {field.name: getattr(letter, field.name) for field in fields(letter)}
    return values | {"failure": failure, "fingerprint": letter.fingerprint}


def show_groups(found: Sequence[Group], now: datetime) -> None:
    """Print groups as a table."""
    if not found:
        print_status(NONE)
        return
    show_table(
        GROUPS,
        [
            (
                group.fingerprint,
                group.error_class,
                group.place,
                ", ".join(group.names),
                group.letters,
                group.open,
                moment(group.first_seen, now),
                moment(group.last_seen, now),
            )
            for group in found
        ],
    )


def as_json(view: DeadLetterView) -> dict[str, Any]:
    """Return the details of a letter as JSON values."""
    details = view.details
    letter = details.letter
    return {
        **as_listed(letter),
        "failure": letter.failure.to_dict(),
        "context": details.sanitized_context,
        "stages": [each._asdict() for each in details.stages],
        "group": None if view.group is None else view.group._asdict(),
        "steps": [{**step._asdict(), "meta": dict(step.meta)} for step in details.steps],
        "next": {"description": NEXT[letter.state], "command": _next(letter, view.target)},
    }


def show(view: DeadLetterView) -> None:
    """Print a letter: its failure, its history, and the next command."""
    letter = view.details.letter
    show_fields(_fields(view))
    show_title("attempts")
    show_table(STAGES, view.details.stages)
    if letter.last_stack:
        show_title("stack")
        typer.echo(printable(letter.last_stack))
    show_title("history")
    show_table(
        HISTORY,
        [(step.at, step.state, step.actor, step.reason, _facts(step.meta)) for step in view.details.steps],
    )
    show_title("next")
    typer.echo(NEXT[letter.state])
    if command_line := _next(letter, view.target):
        typer.echo(f"  {plain(command_line)}")


def _facts(meta: Mapping[str, Any]) -> str:
    """Format the details of a step; lists are comma-separated."""
    return pairs(
        {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value
            for name, value in meta.items()
        }
    )


def _next(letter: Letter, target: Target) -> str | None:
    words = COMMANDS.get(letter.state)
    if words is None:
        return None
    # A letter that was replayed automatically has no plan.
    return target.command_line(words.format(id=letter.job_id, plan=letter.plan or "TOKEN"))


def _fields(view: DeadLetterView) -> dict[str, object]:
    """Collect the fields that are set: first the failure, then what operators recorded."""
    letter, now = view.details.letter, view.now
    failure, context = letter.failure, letter.failure.context
    known = {
        "id": letter.job_id,
        "name": letter.name,
        "queue": letter.queue,
        "owner": letter.owner,
        "state": f"{letter.state}, escalated: a replay did not help" if letter.escalated else letter.state,
        "failed": _instant_and_age(letter.last_failure_at, now),
        "first_failed": _instant_and_age(letter.first_failure_at, now),
        "times_failed": _failure_counts(letter),
        "stage": letter.stage,
        "message": failure.message,
        "error_class": failure.error_class,
        "code": failure.code,
        "retryable": failure.retryable,
        "place": context.get("place"),
        "sent": SENT[failure.sent],
        "provider": letter.provider,
        "request_id": context.get("request_id"),
        "upstream_status": failure.upstream_status,
        "holds": letter.holds,
        "code_version": letter.code_version,
        "level": letter.level,
        "fingerprint": _group(letter, view.group, now),
        "payload_hash": view.details.payload_hash,
        "corrected": _corrected(letter, view.target),
        "cause": letter.cause,
        "evidence": letter.evidence,
        "safe": letter.safe,
        "plan": letter.plan,
        "notes": letter.notes,
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def _corrected(letter: Letter, target: Target) -> str | None:
    if not letter.corrected:
        return None
    return f"yes; `{target.command_line(f'jobs show {letter.job_id} --args')}` shows its old arguments, too"


def _instant_and_age(at: datetime, now: datetime) -> str:
    return f"{plain(at)} ({format_relative(at, now)})"


def _failure_counts(letter: Letter) -> str:
    """Describe how often the job has failed permanently and was replayed."""
    replayed = f", replayed {_times(letter.replays)}" if letter.replays else ""
    first = "" if letter.first_reason == letter.error_class else f", at first with {letter.first_reason}"
    again = ", the last time in the same place as before" if letter.repeated else ""
    return f"{_times(letter.deaths)}{replayed}{first}{again}"


def _times(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _group(letter: Letter, group: Group | None, now: datetime) -> str:
    if group is None or group.letters == 1:
        return letter.fingerprint
    return (
        f"{letter.fingerprint}: one of {group.letters} letters, {group.open} of them open, "
        f"the first {format_relative(group.first_seen, now)}"
    )
