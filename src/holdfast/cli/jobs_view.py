"""Jobs as people and programs read them."""

import json
from dataclasses import fields
from typing import Any, NamedTuple

import typer

from holdfast.cli.output import pairs, show_fields, show_table, show_title
from holdfast.core.failures import Failure
from holdfast.core.jobs import Event, Job
from holdfast.core.redaction import redact
from holdfast.core.stages import StageRow

COLUMNS = ("id", "status", "name", "queue", "owner", "attempt", "created", "failure")

LONGEST = 2_000
"""Characters of arguments or of a result that people are shown; JSON has all of them."""


class Whole(NamedTuple):
    """Everything that is stored about a job."""

    job: Job
    stages: list[StageRow]
    events: list[Event]


def row(job: Job) -> tuple[object, ...]:
    """Give the cells of `COLUMNS`."""
    return (
        job.id,
        job.status,
        job.name,
        job.queue,
        job.owner,
        job.last_attempt,
        job.created_at,
        None if job.failure is None else job.failure.error_class,
    )


def listed(job: Job) -> dict[str, Any]:
    """Give a job as JSON values, without what only a single one is read with."""
    return {name: value for name, value in _job(job).items() if name not in ("args", "result")}


def as_json(whole: Whole) -> dict[str, Any]:
    """Give all that is stored about a job as JSON values."""
    return {
        **_job(whole.job),
        "stages": [_stage(stage) for stage in whole.stages],
        "events": [{"kind": e.kind, "at": e.at, "meta": dict(e.meta)} for e in whole.events],
    }


def show(whole: Whole) -> None:
    """Show a job to people."""
    show_fields(_fields(whole.job))
    if whole.job.failure is not None:
        show_title("failure")
        _show_failure(whole.job.failure)
    if whole.stages:
        show_title("stages")
        show_table(
            ("stage", "status", "attempt", "failure"),
            [
                (stage.key, stage.status, stage.attempt, stage.failure and stage.failure.message)
                for stage in whole.stages
            ],
        )
    show_title("history")
    show_table(("at", "event", "details"), [(e.at, e.kind, pairs(e.meta)) for e in whole.events])


def _show_failure(failure: Failure) -> None:
    told = failure.to_dict()
    stack = told.pop("stack")
    show_fields({name: value for name, value in told.items() if value is not None})
    if stack:
        typer.echo("\n" + redact(stack))


def _fields(job: Job) -> dict[str, object]:
    """Name what is set, in the order of the row; the failure gets a part of its own."""
    shown = {
        field.name: getattr(job, field.name)
        for field in fields(job)
        if field.name not in ("failure", "args", "result")
    }
    shown = {name: value for name, value in shown.items() if value not in (None, "")}
    texts = {"args": job.args, "result": job.result}
    return shown | {name: _cut(text) for name, text in texts.items() if text}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (--json shows all {len(text)} characters)"


def _job(job: Job) -> dict[str, Any]:
    values = {field.name: getattr(job, field.name) for field in fields(job)}
    values["args"] = _value(job.args)
    values["result"] = _value(job.result)
    values["failure"] = None if job.failure is None else job.failure.to_dict()
    return values


def _stage(stage: StageRow) -> dict[str, Any]:
    return {
        "name": stage.key.name,
        "call": stage.key.call,
        "status": stage.status,
        "attempt": stage.attempt,
        "result": _value(stage.result),
        "failure": None if stage.failure is None else stage.failure.to_dict(),
    }


def _value(text: str | None) -> Any:
    return json.loads(text) if text else None
