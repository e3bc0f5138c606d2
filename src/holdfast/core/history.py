"""A job's history, from what its row tells and what was written down.

The row is the record of where a job is: when it was submitted, who runs it since when, how it
ended. Only what a row forgets is stored as an event, so the common job costs no event row at all
and the history can never disagree with the state.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from holdfast.core.jobs import Event, EventKind, Job
from holdfast.core.stages import StageKey, StageStatus
from holdfast.core.states import Status

_LAP_ENDS = {EventKind.QUEUED, EventKind.RETRY, EventKind.HELD, EventKind.FAILED, EventKind.EXPIRED}


class StageMark(NamedTuple):
    """When a stage was stored, done or failed, and which provider computed it, if one did."""

    at: datetime
    key: StageKey
    attempt: int
    status: StageStatus
    provider: str | None = None


def history(job: Job, stored: Iterable[Event], stages: Iterable[StageMark]) -> list[Event]:
    """Join the events of *job*, in the order in which they happened."""
    events = [Event(EventKind.QUEUED, job.created_at), *stored, *_running(job)]
    events += [*map(_stage_event, stages), *_ended(job)]
    told: list[Event] = []
    # The sort is stable: of two events in the same microsecond the one told first happened first.
    for event in sorted(events, key=lambda event: event.at):
        told.insert(_place(event, told), event)
    return told


def _place(event: Event, told: list[Event]) -> int:
    """Find the place of *event*: behind all others, but a stage comes before the end of the lap it was written with."""
    place = len(told)
    while event.kind is EventKind.STAGE and place > 1 and _ends_lap(told[place - 1], event.at):
        place -= 1
    return place


def _ends_lap(event: Event, at: datetime) -> bool:
    return event.at == at and event.kind in _LAP_ENDS


def _running(job: Job) -> list[Event]:
    """Tell the lap that the row still stands for."""
    if job.leased_by is None or job.last_attempt_at is None:
        return []
    meta = {"attempt": job.last_attempt, "worker": job.leased_by}
    return [Event(EventKind.PROCESSING, job.last_attempt_at, meta)]


def _ended(job: Job) -> list[Event]:
    return [] if job.finished_at is None else [_end(job, job.finished_at)]


def _end(job: Job, at: datetime) -> Event:
    match job.status:
        case Status.FAILED if job.timed_out_at is not None:
            return Event(EventKind.EXPIRED, at, {"late": True} if job.late_at else {})
        case Status.FAILED:
            meta = job.failure.summary() if job.failure else {}
            return Event(EventKind.FAILED, at, meta | ({"stage": job.stage} if job.stage else {}))
        case Status.CANCELLED:
            return Event(EventKind.CANCELLED, at)
        case _:
            return Event(EventKind.COMPLETED, at, {"attempt": job.last_attempt})


def _stage_event(mark: StageMark) -> Event:
    meta = {"stage": str(mark.key), "attempt": mark.attempt, "status": mark.status.value}
    return Event(EventKind.STAGE, mark.at, meta | ({"provider": mark.provider} if mark.provider else {}))
