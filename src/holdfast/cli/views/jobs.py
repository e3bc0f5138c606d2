"""Renders jobs as text and JSON."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import typer

from holdfast.cli.options.durations import format_duration
from holdfast.cli.views.output import EMPTY, pairs, plain, show_fields, show_title
from holdfast.cli.views.table import Cell, Column, Fit, moment, show_rows, show_table
from holdfast.core.envelope import is_encoded
from holdfast.core.failures.failure import Failure, begun_attempts
from holdfast.core.jobs.job import Event, EventKind, Job, Signal
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.core.jobs.transitions import FOR_EVER
from holdfast.core.redaction import printable
from holdfast.engine.operations.job_service import JobDetails, JobListing

COLUMNS = (
    Column("id"),
    Column("status"),
    Column("name", Fit.CUT),
    Column("queue", Fit.CUT, omit_if=("default",), drop_order=2),
    Column("owner", Fit.CUT, omit_if=(EMPTY,), drop_order=3),
    Column("attempt", omit_if=("0", "1"), drop_order=4),
    Column("created", drop_order=1),
    Column("failure", Fit.NONE),
    Column("why", Fit.FOLDED, omit_if=(EMPTY,), min_width=28),
)
"""On a terminal the last column has what a pipe gets in two fields: how a job failed, or what it waits for."""
DEADLINE = Column("deadline")
STAGES = (
    Column("stage"),
    Column("status"),
    Column("attempt"),
    Column("took", omit_if=(EMPTY,)),
    Column("failure", Fit.FOLDED),
)
SIGNALS = (Column("signal"), Column("data", Fit.FOLDED))
HISTORY = (Column("at"), Column("event"), Column("details", Fit.FOLDED))

TEXTS = ("args", "result", "late_result")
"""Fields that a list omits."""

LONGEST = 2_000
"""Maximum number of characters of arguments and results in text output; JSON has all of them."""


def show_list(found: list[JobListing], now: datetime, *, with_deadline: bool) -> None:
    """Print jobs as a table; *now* is the time of the store."""
    if with_deadline:
        rows = [(*_row(job, reason, now), moment(job.deadline_at, now)) for job, reason, _ in found]
        show_rows((*COLUMNS, DEADLINE), rows, if_empty="no live job has a deadline within that time")
    else:
        rows = [_row(job, reason, now) for job, reason, _ in found]
        show_rows(COLUMNS, rows, if_empty="no jobs found")


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


def as_listed(found: JobListing) -> dict[str, Any]:
    """Return a job as JSON values, without arguments and results."""
    values = {name: value for name, value in _job(found.job).items() if name not in TEXTS}
    return values | {"key": found.key, "reason": found.reason}


def as_json(details: JobDetails, *, with_args: bool) -> dict[str, Any]:
    """Return the details of a job as JSON values."""
    job, took = _job(details.job), _durations(details.events)
    if not with_args:
        del job["args"]
    if details.original_args is not None:
        job["original_args"] = _value(details.original_args)
    return {
        **job,
        "key": details.key,
        "dead_letter": None if details.letter is None else {"state": details.letter.state},
        "waits_for": _waits_for(details),
        "stages": [_stage(stage) | {"seconds": took.get(str(stage.key))} for stage in details.stages],
        "unread_signals": [
            {"signal": signal.name, "data": _value(signal.data)} for signal in _unread(details)
        ],
        "events": [
            {"kind": e.kind, "at": e.at, "meta": dict(_capped(e, details.job))} for e in details.events
        ],
    }


def show(details: JobDetails, *, with_args: bool = False) -> None:
    """Print the details of a job."""
    show_fields(_fields(details, with_args=with_args))
    if details.job.failure is not None:
        show_title("failure")
        _show_failure(details.job.failure)
    if details.letter is not None:
        show_title("dead letter")
        typer.echo(
            f"{details.letter.state}; `holdfast dead show {details.letter.job_id}` shows what to do next"
        )
    if details.stages:
        show_title("stages")
        took = _durations(details.events)
        show_table(STAGES, [_stage_row(stage, took.get(str(stage.key))) for stage in details.stages])
    unread = _unread(details)
    if unread:
        show_title("unread signals")
        show_table(SIGNALS, [(signal.name, _cut(signal.data)) for signal in unread])
    show_title("history")
    show_table(HISTORY, [(e.at, e.kind, pairs(_capped(e, details.job))) for e in details.events])


def _stage_row(stage: StageRow, seconds: float | None) -> tuple[object, ...]:
    took = None if seconds is None else f"{seconds:.3f} s"
    attempt = begun_attempts(stage.attempt, stage.failure)
    return (stage.key, stage.status, attempt, took, stage.failure and stage.failure.message)


def _durations(events: list[Event]) -> dict[str, float]:
    """Return the seconds that each stage took: from the end of the previous one, or from the start of its attempt.

    A store records when a stage ended. For concurrent stages, this is the time by which each was later.
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
    """Return the details of an event; a claim that failed the job after too many losses began no attempt."""
    if event.meta.get("attempt") != job.last_attempt:
        return event.meta
    return {**event.meta, "attempt": begun_attempts(job.last_attempt, job.failure)}


def _show_failure(failure: Failure) -> None:
    signal = failure.to_dict()
    stack = signal.pop("stack")
    signal["context"] = pairs({name: value for name, value in failure.context.items() if value != ""})
    show_fields({name: value for name, value in signal.items() if value not in (None, "")})
    if stack:
        typer.echo("\n" + printable(stack))


def _fields(details: JobDetails, *, with_args: bool) -> dict[str, object]:
    """Collect the fields that are set; the failure has its own section."""
    job = details.job
    hidden = {"failure", *TEXTS} | ({"retry_after"} if _for_ever(job) else set())
    shown = {field.name: getattr(job, field.name) for field in fields(job) if field.name not in hidden}
    shown["attempt"], shown["last_attempt"] = (
        begun_attempts(count, job.failure) if count else 0 for count in (job.attempt, job.last_attempt)
    )
    shown["key"] = details.key
    shown |= {
        "held_by": _held(job, _last_reason(details.events)),
        "waits_for": ", ".join(_waits_for(details)),
    }
    shown = {name: value for name, value in shown.items() if value not in (None, "")}
    return shown | _texts(details, with_args=with_args)


def _texts(details: JobDetails, *, with_args: bool) -> dict[str, str]:
    """Collect arguments and results; arguments only if they are requested."""
    job = details.job
    if job.purged_at is not None:
        args = "purged, with the stages and the history"
    else:
        args = _cut(job.args) if with_args else f"{len(job.args)} characters; --args shows them"
    others = {"original_args": details.original_args, "result": job.result, "late_result": job.late_result}
    return {"args": args} | {name: _cut(text) for name, text in others.items() if text}


def _waits_for(details: JobDetails) -> list[str]:
    """Describe what a parked job waits for: its waits are stages without a result."""
    job = details.job
    if not job.waiting:
        return []
    awaited = [_wait(stage.key.name) for stage in details.stages if stage.status is StageStatus.STARTED]
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


def _unread(details: JobDetails) -> list[Signal]:
    """Return the signals that the job has not read; none if its waits are encrypted."""
    waits = [stage.result for stage in details.stages if stage.key.name.startswith("@signal ")]
    results = [result for result in waits if result is not None]
    if any(map(is_encoded, results)):
        return []
    taken = {json.loads(result).get("number") for result in results}
    return [signal for signal in details.signals if signal.number not in taken]


def _others(job: Job) -> str:
    return "the end of 1 job" if job.pending == 1 else f"the end of {job.pending} jobs"


def _waits(job: Job, reason: str | None, now: datetime) -> Cell | None:
    """Describe briefly why a queued job does not run."""
    if job.retry_after is None:
        return None
    if held := _held(job, reason):
        return Cell(f"held by {held}", short=f"held by {held}")
    awaited = _awaited(job, reason)
    if awaited is not None and _for_ever(job):
        return Cell(awaited, short=f"waits {awaited}")
    until, left = f"until {plain(job.retry_after)}", format_duration(job.retry_after - now)
    if awaited is not None:
        return Cell(f"{awaited}, {until}", short=f"waits {awaited}, {left} at most")
    if job.waiting or reason is None:
        return Cell(until, short=f"waits {left}")
    return Cell(f"{until}: {reason}", short=f"waits {left}: {reason}")


def _held(job: Job, reason: str | None) -> str | None:
    """Return the provider that a job is held for, and why."""
    if job.held_by is None:
        return None
    return job.held_by + (f": {reason}" if reason else "")


def _last_reason(events: list[Event]) -> str | None:
    """Return the reason for which the job was last held or parked."""
    held = [event for event in events if event.kind in (EventKind.HELD, EventKind.PARKED)]
    return held[-1].meta.get("reason") if held else None


def _awaited(job: Job, reason: str | None) -> str | None:
    """Return what a parked job waits for, or `None` if it waits for a time only."""
    if not job.waiting or reason is None:
        return None
    if job.pending and not reason.startswith("waits for the signal"):
        return f"for {_others(job)}"
    return reason.partition("waits ")[2] or None


def _for_ever(job: Job) -> bool:
    """Whether a job waits without a limit, which is stored as a time in the far future."""
    if job.held_by is not None:
        return True
    return job.waiting and job.retry_after is not None and job.retry_after - job.updated_at > FOR_EVER / 2


def _cut(text: str) -> str:
    if is_encoded(text):
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
    """Decode JSON text; encrypted text is returned as it is stored."""
    if is_encoded(text):
        return {"encoded": text}
    return json.loads(text) if text else None
