"""A job's history, from its row and the stored events.

The row is the record of where a job is: when it was submitted, which worker runs it since when, how it
ended. Only what a row does not keep is stored as an event, so the common job costs no event row at all
and the history can never disagree with the state.
"""

from collections.abc import Container, Iterable
from datetime import datetime
from typing import NamedTuple

from holdfast.core.jobs.job import Event, EventKind, Job
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.states import Status

_RUN_ENDS = {
    EventKind.QUEUED,
    EventKind.RETRY,
    EventKind.PARKED,
    EventKind.HELD,
    EventKind.FAILED,
    EventKind.EXPIRED,
    EventKind.CANCELLED,
    EventKind.COMPLETED,
}
_FROM_OUTSIDE = {EventKind.SIGNALLED, EventKind.WARNING}
"""What may happen to a job at any time, so that only the clock decides whether it came before or after something else."""

_PAST = {
    EventKind.PROCESSING: _FROM_OUTSIDE,
    EventKind.FAILED: {EventKind.WARNING},
    EventKind.EXPIRED: {EventKind.WARNING},
}
"""What is stored only when the row no longer keeps it, and the kinds that may have been stored before it and happened later."""


class StoredStage(NamedTuple):
    """When a stage was stored, done or failed, and which provider computed it, if one did.

    *token* is that of the lease under which it was written; *number* grows with each write of the job's stages.
    """

    at: datetime
    key: StageKey
    attempt: int
    status: StageStatus
    provider: str | None = None
    token: int = 0
    number: int = 0


def history(job: Job, stored: Iterable[Event], stages: Iterable[StoredStage]) -> list[Event]:
    """Join the events of *job*, in the order in which they were written; *stored* comes in that order.

    A clock that was set back does not change it. The clock is used only where nothing else decides: whether a signal
    came before or after the claim or the stage beside it, a warning before or after the end, and when a stage was stored
    that a replay has written down.
    """
    written = list(stored)
    events = [Event(EventKind.QUEUED, job.created_at)]
    for event in written:
        if event.kind is not EventKind.STAGE:
            _add(events, event, len(events), past=_PAST.get(event.kind, ()))
    for event in _running(job):
        _add(events, event, _end_of_last_run(events), past=_FROM_OUTSIDE)
    if job.finished_at is not None:
        _add(events, _end(job, job.finished_at), len(events), past={EventKind.WARNING})
    for stage in sorted(stages, key=lambda stage: (stage.token, stage.number, stage.at)):
        index = _end_of_run(events, stage.token)
        if index is None:
            _add_by_clock(events, _stage_event(stage), len(events))
        else:
            _add(events, _stage_event(stage), index, past=_FROM_OUTSIDE)
    for index, event in enumerate(written):
        if event.kind is EventKind.STAGE:
            _add_by_clock(events, event, _index_of_next(events, written[index + 1 :]))
    if job.purged_at is not None:
        events.append(Event(EventKind.PURGED, job.purged_at))
    return events


def _add(events: list[Event], event: Event, index: int, *, past: Container[EventKind]) -> None:
    """Insert *event* at *index*, or before what is there of the kinds *past* that is later by the clock."""
    while index > 1 and events[index - 1].kind in past and events[index - 1].at > event.at:
        index -= 1
    events.insert(index, event)


def _add_by_clock(events: list[Event], stage: Event, index: int) -> None:
    """Insert a *stage* whose run is unknown before all events of its generation that are later or end its run."""
    while index > 1 and events[index - 1].kind is not EventKind.REPLAYED:
        before = events[index - 1]
        if before.at < stage.at or (before.at == stage.at and before.kind not in _RUN_ENDS):
            break
        index -= 1
    events.insert(index, stage)


def _index_of_next(events: list[Event], written: Iterable[Event]) -> int:
    """Find what was written down next to a stage: how its generation ended."""
    following = next((event for event in written if event.kind is not EventKind.STAGE), None)
    return next((index for index, event in enumerate(events) if event is following), len(events))


def _end_of_last_run(events: list[Event]) -> int:
    """Find the end of the run in the row: after all events, or at its deadline if a late result was accepted."""
    if all(event.kind is not EventKind.ACCEPTED for event in events):
        return len(events)
    return max(index for index, event in enumerate(events) if event.kind is EventKind.EXPIRED)


def _end_of_run(events: list[Event], token: int) -> int | None:
    """Find the end of the run that had *token*: every claim and every end of a run raises it by one."""
    runs = [index for index, event in enumerate(events) if event.kind is EventKind.PROCESSING]
    run = (token + 1) // 2
    if not 1 <= run <= len(runs):
        return None
    later = range(runs[run - 1] + 1, len(events))
    return next((index for index in later if events[index].kind in _RUN_ENDS), len(events))


def _running(job: Job) -> list[Event]:
    """Return the run that the row still describes."""
    if job.leased_by is None or job.last_attempt_at is None:
        return []
    meta = {"attempt": job.last_attempt, "worker": job.leased_by}
    return [Event(EventKind.PROCESSING, job.last_attempt_at, meta)]


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


def _stage_event(stage: StoredStage) -> Event:
    meta = {"stage": str(stage.key), "attempt": stage.attempt, "status": stage.status.value}
    return Event(EventKind.STAGE, stage.at, meta | ({"provider": stage.provider} if stage.provider else {}))
