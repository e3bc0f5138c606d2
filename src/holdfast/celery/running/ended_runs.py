"""Stores the ends of durable tasks in the result backend of the app, under the ids that their callers have."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import Task
from celery.backends.base import DisabledBackend

from holdfast.engine.fleets.fleet_runner import Ran, RunOutcome
from holdfast.ports import Logger


@dataclass(slots=True)
class DurableRun:
    """What a run of a dispatched job has found out about its task; nothing if it is no durable task's."""

    task: Task | None = None
    task_id: str = ""
    error: BaseException | None = None
    """What the task's code has raised."""


_RUNS: dict[str, DurableRun] = {}


@contextmanager
def durable_run(job_id: str) -> Iterator[DurableRun]:
    """Collect what the run of a job finds out, while the block runs."""
    run = _RUNS[job_id] = DurableRun()
    try:
        yield run
    finally:
        if _RUNS.get(job_id) is run:  # a second dispatch of the job may have come meanwhile
            del _RUNS[job_id]


def run_of(job_id: str) -> DurableRun:
    """Return the run that a dispatch has started; in another kind of worker, one whose content is not used."""
    return _RUNS.get(job_id) or DurableRun()


def store_end(run: DurableRun, job_id: str, ran: Ran, logger: Logger) -> None:
    """Store the end of a job, if it has one, as a worker of Celery does for a task. The job has ended in any case."""
    task = run.task
    if task is None or task.ignore_result or isinstance(task.backend, DisabledBackend):
        return
    end = _end(run, ran)
    if end is None:
        return
    try:
        task.backend.store_result(run.task_id, *end)
    except Exception as error:  # noqa: BLE001 - each backend has exceptions of its own, and the job has ended
        logger.warning(
            "result not stored in backend", job_id=job_id, name=task.name, message=type(error).__name__
        )


def _end(run: DurableRun, ran: Ran) -> tuple[Any, str] | None:
    """Return the result or the error, and the state of the task; `None` if the job has not ended."""
    match ran.outcome:
        case RunOutcome.COMPLETED:
            return json.loads(ran.result or "null"), "SUCCESS"
        case RunOutcome.FAILED | RunOutcome.TIMED_OUT:
            message = "the deadline of the job has passed" if ran.failure is None else ran.failure.message
            return run.error or WorkerLostError(message), "FAILURE"
        case RunOutcome.CANCELLED:
            return None, "REVOKED"
        case _:
            return None
