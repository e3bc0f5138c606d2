"""Dead letters as people and programs read them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

import typer

from holdfast.cli.answers import is_id
from holdfast.cli.exits import say
from holdfast.cli.lengths import from_now
from holdfast.cli.output import NOTHING, pairs, plain, show_fields, show_title
from holdfast.cli.tables import Column, Room, moment, show_table
from holdfast.cli.target import Given
from holdfast.core.errors import LetterNotFound
from holdfast.core.failures import Sent
from holdfast.core.letters import NEXT, Group, Letter, LetterState
from holdfast.core.redaction import printable
from holdfast.engine.desk import Dossier

COLUMNS = (
    Column("id"),
    Column("name", Room.CUT),
    Column("queue", Room.NONE),
    Column("owner", Room.NONE),
    Column("stage", Room.CUT, usual=(NOTHING,), spared=2),
    Column("error_class", spared=4),
    Column("fingerprint", spared=3),
    Column("state"),
    Column("escalated", usual=("no",)),
    Column("failed", spared=1),
    Column("message", Room.CUT, least=16),
)
GROUPS = (
    Column("fingerprint"),
    Column("error_class"),
    Column("place", Room.CUT, least=12),
    Column("name", Room.CUT, least=12),
    Column("letters"),
    Column("open"),
    Column("first", spared=1),
    Column("last"),
)
STAGES = (Column("stage"), Column("status"), Column("attempts"))
HISTORY = (
    Column("at"),
    Column("state"),
    Column("by", Room.CUT),
    Column("reason", Room.FOLDED, usual=(NOTHING,)),
    Column("details", Room.FOLDED, usual=(NOTHING,)),
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
    _S.REMEDIATED: 'dead plan {id} --safe "why a second effect does no harm" --actor WHO',
    _S.VALIDATED: "dead replay {plan} --actor WHO",
    _S.REPLAYING: "dead progress {plan} --wait",
    _S.VERIFIED: 'dead close {id} --notes "…" --actor WHO',
}
"""What to type next; of a letter that is closed or discarded, there is nothing."""


class Whole(NamedTuple):
    """All there is to know about one letter, and about the group that it belongs to."""

    dossier: Dossier
    group: Group | None
    now: datetime
    given: Given


def absent(job_id: str, error: LetterNotFound | str, given: Given) -> str:
    """Tell that there is no such letter, and where it may be."""
    if not is_id(job_id):
        return str(error)
    return f"{error}; it may be archived: {given.typed('dead restore --list')}"


def show_list(found: Sequence[Letter], now: datetime) -> None:
    """Show letters to people."""
    if not found:
        say(NONE)
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
    """Give a letter as JSON values, without its stack."""
    failure = letter.failure.to_dict()
    del failure["stack"]
    values = {field.name: getattr(letter, field.name) for field in fields(letter)}
    return values | {"failure": failure, "fingerprint": letter.fingerprint}


def show_groups(found: Sequence[Group], now: datetime) -> None:
    """Show groups to people."""
    if not found:
        say(NONE)
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


def as_json(whole: Whole) -> dict[str, Any]:
    """Give all there is to know about a letter as JSON values."""
    dossier = whole.dossier
    letter = dossier.letter
    return {
        **as_listed(letter),
        "failure": letter.failure.to_dict(),
        "context": dossier.sanitized_context,
        "stages": [each._asdict() for each in dossier.stages],
        "group": None if whole.group is None else whole.group._asdict(),
        "steps": [{**step._asdict(), "meta": dict(step.meta)} for step in dossier.steps],
        "next": {"told": NEXT[letter.state], "command": _next(letter, whole.given)},
    }


def show(whole: Whole) -> None:
    """Show a letter to people: what failed and where, what is known of it, and what to do next."""
    letter = whole.dossier.letter
    show_fields(_fields(whole))
    show_title("attempts")
    show_table(STAGES, whole.dossier.stages)
    if letter.last_stack:
        show_title("stack")
        typer.echo(printable(letter.last_stack))
    show_title("history")
    show_table(
        HISTORY,
        [(step.at, step.state, step.actor, step.reason, _facts(step.meta)) for step in whole.dossier.steps],
    )
    show_title("next")
    typer.echo(NEXT[letter.state])
    if typed := _next(letter, whole.given):
        typer.echo(f"  {plain(typed)}")


def _facts(meta: Mapping[str, Any]) -> str:
    """Write the small print of a step; a list of names as people write one."""
    return pairs(
        {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value
            for name, value in meta.items()
        }
    )


def _next(letter: Letter, given: Given) -> str | None:
    words = COMMANDS.get(letter.state)
    if words is None:
        return None
    # A letter that was replayed by itself has no plan to look at.
    return given.typed(words.format(id=letter.job_id, plan=letter.plan or "TOKEN"))


def _fields(whole: Whole) -> dict[str, object]:
    """Name what is known, the failure first and then what people have said of it."""
    letter, now = whole.dossier.letter, whole.now
    failure, context = letter.failure, letter.failure.context
    known = {
        "id": letter.job_id,
        "name": letter.name,
        "queue": letter.queue,
        "owner": letter.owner,
        "state": f"{letter.state}, escalated: a replay did not help" if letter.escalated else letter.state,
        "failed": _both(letter.last_failure_at, now),
        "first_failed": _both(letter.first_failure_at, now),
        "times_failed": _times(letter),
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
        "fingerprint": _group(letter, whole.group, now),
        "payload_hash": whole.dossier.payload_hash,
        "corrected": _corrected(letter, whole.given),
        "cause": letter.cause,
        "evidence": letter.evidence,
        "safe": letter.safe,
        "plan": letter.plan,
        "notes": letter.notes,
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def _corrected(letter: Letter, given: Given) -> str | None:
    if not letter.corrected:
        return None
    return f"yes; `{given.typed(f'jobs show {letter.job_id} --args')}` shows its old arguments, too"


def _both(at: datetime, now: datetime) -> str:
    return f"{plain(at)} ({from_now(at, now)})"


def _times(letter: Letter) -> str:
    """Tell how often the job has failed for good, and how often of that after a replay."""
    replayed = f", replayed {_often(letter.replays)}" if letter.replays else ""
    first = "" if letter.first_reason == letter.error_class else f", at first with {letter.first_reason}"
    again = ", the last time in the same place as before" if letter.repeated else ""
    return f"{_often(letter.deaths)}{replayed}{first}{again}"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _group(letter: Letter, group: Group | None, now: datetime) -> str:
    if group is None or group.letters == 1:
        return letter.fingerprint
    return (
        f"{letter.fingerprint}: one of {group.letters} letters, {group.open} of them open, "
        f"the first {from_now(group.first_seen, now)}"
    )
