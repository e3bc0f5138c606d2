"""Jobs as people and programs read them."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

import typer

from holdfast.cli.lengths import brief
from holdfast.cli.output import NOTHING, pairs, plain, show_fields, show_title
from holdfast.cli.tables import Cell, Column, Room, moment, show_rows, show_table
from holdfast.core.failures import Failure, begun_attempts
from holdfast.core.jobs import Event, EventKind, Job, Signal
from holdfast.core.letters import Letter
from holdfast.core.redaction import printable
from holdfast.core.sealing import is_sealed
from holdfast.core.stages import StageRow, StageStatus
from holdfast.core.transitions import FOR_EVER

COLUMNS = (
    Column("id"),
    Column("status"),
    Column("name", Room.CUT),
    Column("queue", Room.CUT, usual=("default",), spared=2),
    Column("owner", Room.CUT, usual=(NOTHING,), spared=3),
    Column("attempt", usual=("0", "1"), spared=4),
    Column("created", spared=1),
    Column("failure", Room.NONE),
    Column("why", Room.FOLDED, usual=(NOTHING,), least=28),
)
"""The last says on a terminal what a pipe gets in two fields: how a job failed, or what it waits for."""
DEADLINE = Column("deadline")
STAGES = (
    Column("stage"),
    Column("status"),
    Column("attempt"),
    Column("took", usual=(NOTHING,)),
    Column("failure", Room.FOLDED),
)
SIGNALS = (Column("signal"), Column("data", Room.FOLDED))
HISTORY = (Column("at"), Column("event"), Column("details", Room.FOLDED))

TEXTS = ("args", "result", "late_result")
"""What a list comes without."""

LONGEST = 2_000
"""Characters of arguments or of a result that people are shown; JSON has all of them."""


class Whole(NamedTuple):
    """Everything that is stored about a job."""

    job: Job
    stages: list[StageRow]
    events: list[Event]
    signals: list[Signal]
    letter: Letter | None = None
    with_args: bool = False
    """Arguments may be anybody's secrets: they are shown to whoever asks for them."""
    original_args: str | None = None
    """What the job was submitted with, if that was corrected and is asked for."""
    key: str | None = None
    """The idempotency key that the job was submitted with."""


class Listed(NamedTuple):
    """A job in a list, and the reason for which it was put aside, if it was."""

    job: Job
    reason: str | None
    key: str | None = None


def show_list(found: list[Listed], now: datetime, *, with_deadline: bool) -> None:
    """Show jobs to people; *now* is the store's, by which they run."""
    if with_deadline:
        rows = [(*_row(job, reason, now), moment(job.deadline_at, now)) for job, reason, _ in found]
        show_rows((*COLUMNS, DEADLINE), rows, nothing="no live job has a deadline that is so close")
    else:
        rows = [_row(job, reason, now) for job, reason, _ in found]
        show_rows(COLUMNS, rows, nothing="there is no such job")


def _row(job: Job, reason: str | None, now: datetime) -> tuple[object, ...]:
    failure = None if job.failure is None else job.failure.error_class
    waits = Cell("purged", short="purged") if job.purged_at is not None else _waits(job, reason, now)
    return (
        job.id,
        job.status,
        job.name,
        job.queue,
        job.owner,
        begun_attempts(job.last_attempt, job.failure),
        moment(job.created_at, now),
        failure,
        waits or Cell(None, short=failure or ""),
    )


def as_listed(found: Listed) -> dict[str, Any]:
    """Give a job as JSON values, without what only a single one is read with."""
    values = {name: value for name, value in _job(found.job).items() if name not in TEXTS}
    return values | {"key": found.key, "reason": found.reason}


def as_json(whole: Whole) -> dict[str, Any]:
    """Give all that is stored about a job as JSON values."""
    job, took = _job(whole.job), _durations(whole.events)
    if not whole.with_args:
        del job["args"]
    if whole.original_args is not None:
        job["original_args"] = _value(whole.original_args)
    return {
        **job,
        "key": whole.key,
        "dead_letter": None if whole.letter is None else {"state": whole.letter.state},
        "waits_for": _waits_for(whole),
        "stages": [_stage(stage) | {"seconds": took.get(str(stage.key))} for stage in whole.stages],
        "unread_signals": [{"signal": told.name, "data": _value(told.data)} for told in _unread(whole)],
        "events": [{"kind": e.kind, "at": e.at, "meta": dict(_capped(e, whole.job))} for e in whole.events],
    }


def show(whole: Whole) -> None:
    """Show a job to people."""
    show_fields(_fields(whole))
    if whole.job.failure is not None:
        show_title("failure")
        _show_failure(whole.job.failure)
    if whole.letter is not None:
        show_title("dead letter")
        typer.echo(f"{whole.letter.state}; `holdfast dead show {whole.letter.job_id}` tells what to do next")
    if whole.stages:
        show_title("stages")
        took = _durations(whole.events)
        show_table(STAGES, [_stage_row(stage, took.get(str(stage.key))) for stage in whole.stages])
    unread = _unread(whole)
    if unread:
        show_title("unread signals")
        show_table(SIGNALS, [(told.name, _cut(told.data)) for told in unread])
    show_title("history")
    show_table(HISTORY, [(e.at, e.kind, pairs(_capped(e, whole.job))) for e in whole.events])


def _stage_row(stage: StageRow, seconds: float | None) -> tuple[object, ...]:
    took = None if seconds is None else f"{seconds:.3f} s"
    attempt = begun_attempts(stage.attempt, stage.failure)
    return (stage.key, stage.status, attempt, took, stage.failure and stage.failure.message)


def _durations(events: list[Event]) -> dict[str, float]:
    """Tell how many seconds each stage took: from the end of the one before, or from the beginning of its attempt.

    A store keeps when a stage ended. Of stages that ran side by side, this is the time by which each was later.
    """
    took: dict[str, float] = {}
    since: datetime | None = None
    for event in events:
        if event.kind is EventKind.STAGE and since is not None:
            took[event.meta["stage"]] = max((event.at - since).total_seconds(), 0.0)
        if event.kind in (EventKind.PROCESSING, EventKind.STAGE):
            since = event.at
    return took


def _capped(event: Event, job: Job) -> Mapping[str, Any]:
    """Give the details of an event; the claim that found a job lost once too often began no attempt."""
    if event.meta.get("attempt") != job.last_attempt:
        return event.meta
    return {**event.meta, "attempt": begun_attempts(job.last_attempt, job.failure)}


def _show_failure(failure: Failure) -> None:
    told = failure.to_dict()
    stack = told.pop("stack")
    told["context"] = pairs({name: value for name, value in failure.context.items() if value != ""})
    show_fields({name: value for name, value in told.items() if value not in (None, "")})
    if stack:
        typer.echo("\n" + printable(stack))


def _fields(whole: Whole) -> dict[str, object]:
    """Name what is set, in the order of the row; the failure gets a part of its own."""
    job = whole.job
    hidden = {"failure", *TEXTS} | ({"retry_after"} if _for_ever(job) else set())
    shown = {field.name: getattr(job, field.name) for field in fields(job) if field.name not in hidden}
    shown["attempt"], shown["last_attempt"] = (
        begun_attempts(count, job.failure) if count else 0 for count in (job.attempt, job.last_attempt)
    )
    shown["key"] = whole.key
    shown |= {"held_by": _held(job, _last_reason(whole.events)), "waits_for": ", ".join(_waits_for(whole))}
    shown = {name: value for name, value in shown.items() if value not in (None, "")}
    return shown | _texts(whole)


def _texts(whole: Whole) -> dict[str, str]:
    """Name what a job was given and has given, without arguments that nobody asked for."""
    job = whole.job
    if job.purged_at is not None:
        args = "purged, with the stages and the history"
    else:
        args = _cut(job.args) if whole.with_args else f"{len(job.args)} characters; --args shows them"
    others = {"original_args": whole.original_args, "result": job.result, "late_result": job.late_result}
    return {"args": args} | {name: _cut(text) for name, text in others.items() if text}


def _waits_for(whole: Whole) -> list[str]:
    """Tell in words what a job waits for without a worker: its waits are stages that have no result yet."""
    job = whole.job
    if not job.waiting:
        return []
    awaited = [_wait(stage.key.name) for stage in whole.stages if stage.status is StageStatus.STARTED]
    return [words for words in awaited if words] + ([_others(job)] if job.pending else [])


def _wait(stage: str) -> str | None:
    kind, _, name = stage.partition(" ")
    match kind:
        case "@sleep":
            return "the end of its sleep"
        case "@signal":
            return f"the signal {name!r}"
        case _:
            return None  # an ordinary stage; or another job, which is among those that are counted


def _unread(whole: Whole) -> list[Signal]:
    """Give what the job was told and has not taken; where it is encoded what it took, nobody can say."""
    waits = [stage.result for stage in whole.stages if stage.key.name.startswith("@signal ")]
    results = [result for result in waits if result is not None]
    if any(map(is_sealed, results)):
        return []
    taken = {json.loads(result).get("number") for result in results}
    return [signal for signal in whole.signals if signal.number not in taken]


def _others(job: Job) -> str:
    return "the end of 1 job" if job.pending == 1 else f"the end of {job.pending} jobs"


def _waits(job: Job, reason: str | None, now: datetime) -> Cell | None:
    """Tell in a few words why a queued job does not run."""
    if job.retry_after is None:
        return None
    if held := _held(job, reason):
        return Cell(f"held by {held}", short=f"held by {held}")
    awaited = _awaited(job, reason)
    if awaited is not None and _for_ever(job):
        return Cell(awaited, short=f"waits {awaited}")
    until, left = f"until {plain(job.retry_after)}", brief(job.retry_after - now)
    if awaited is not None:
        return Cell(f"{awaited}, {until}", short=f"waits {awaited}, {left} at most")
    if job.waiting or reason is None:
        return Cell(until, short=f"waits {left}")
    return Cell(f"{until}: {reason}", short=f"waits {left}: {reason}")


def _held(job: Job, reason: str | None) -> str | None:
    """Name who holds a job, and why."""
    if job.held_by is None:
        return None
    return job.held_by + (f": {reason}" if reason else "")


def _last_reason(events: list[Event]) -> str | None:
    """Tell why a job was last put aside."""
    held = [event for event in events if event.kind is EventKind.HELD]
    return held[-1].meta.get("reason") if held else None


def _awaited(job: Job, reason: str | None) -> str | None:
    """Name what a waiting job waits for, unless that is time alone."""
    if not job.waiting or reason is None:
        return None
    if job.pending and not reason.startswith("waits for the signal"):
        return f"for {_others(job)}"
    return reason.partition("waits ")[2] or None


def _for_ever(job: Job) -> bool:
    """Whether a job waits without a limit, which is stored as a time that nobody will see."""
    if job.held_by is not None:
        return True
    return job.waiting and job.retry_after is not None and job.retry_after - job.updated_at > FOR_EVER / 2


def _cut(text: str) -> str:
    if is_sealed(text):
        return f"encoded ({len(text)} characters); --app shows it with the application's codec"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (--json shows all {len(text)} characters)"


def _job(job: Job) -> dict[str, Any]:
    values = {field.name: getattr(job, field.name) for field in fields(job)}
    values["last_attempt"] = begun_attempts(job.last_attempt, job.failure)
    values["attempt"] = begun_attempts(job.attempt, job.failure) if job.attempt else 0
    values["args"] = _value(job.args)
    values["result"] = _value(job.result)
    values["late_result"] = _value(job.late_result)
    values["failure"] = None if job.failure is None else job.failure.to_dict()
    return values


def _stage(stage: StageRow) -> dict[str, Any]:
    return {
        "name": stage.key.name,
        "call": stage.key.call,
        "status": stage.status,
        "attempt": begun_attempts(stage.attempt, stage.failure),
        "result": _value(stage.result),
        "failure": None if stage.failure is None else stage.failure.to_dict(),
    }


def _value(text: str | None) -> Any:
    """Read a text; one that is encoded is shown as it is stored."""
    if is_sealed(text):
        return {"encoded": text}
    return json.loads(text) if text else None
