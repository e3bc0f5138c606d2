"""What came of an act, in words: a run that never met a thing has shown nothing about it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Claim, EventKind, Job, Receipt, Submission
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports.store import Extension, Promotion, Settled, SubmissionRefusal
from tests.stateful.scene import Act

Jobs = dict[str, Job]


def happenings(act: Act, answer: Any, before: Jobs) -> Iterator[str]:
    """Tell what happened when *act* got *answer*; *before* are the jobs as they had been."""
    if isinstance(answer, HoldfastError):
        told: Iterable[str] = [type(answer).__name__]
    else:
        told = _TELLERS[act.operation](act, answer, before)
    return (f"{act.operation}: {what}" for what in told)


def _submitted(act: Act, answers: list[Receipt | SubmissionRefusal], _: Jobs) -> Iterator[str]:
    if act.options:
        yield "sent again"
        return
    for item, answer in zip(act.args[0], answers, strict=True):
        yield _reception(item, answer)


def _reception(item: Submission, answer: Receipt | SubmissionRefusal) -> str:
    match answer:
        case SubmissionRefusal():
            return type(answer.error).__name__
        case Receipt(payload_differs=True):
            return "stood in for another payload"
        case Receipt(existing=True):
            return "stood in by key" if item.key is not None else "stood in by version"
        case _:
            return "made" if item.version in (None, 1) else "made for a later version"


def _claimed(_: Act, claims: list[Claim], __: Jobs) -> Iterator[str]:
    for claim in claims:
        yield "taken"
        if claim.losses:
            yield "after a lost lease"
        if claim.held_by is not None:
            yield "after a hold"
        if claim.generation > 1:
            yield "in a later generation"
        if claim.stages:
            yield "with stages"
        if claim.cancel_requested:
            yield "with a request to cancel"


def _settled(act: Act, answers: list[Settled], before: Jobs) -> Iterator[str]:
    for change, written in zip(act.args[1], answers, strict=True):
        job = before[change.id]
        if written is Settled.FENCED:
            yield f"refused by a job that is {job.status}"
            continue
        if written is not Settled.WRITTEN:
            yield f"{_kind(change)}, and {written.name.lower()}"
            continue
        yield _kind(change)
        if job.losses:
            yield f"{_kind(change)} after a lost lease"
        if job.cancel_requested:
            yield f"{_kind(change)} after a request to cancel"


def _kind(change: Transition) -> str:
    match change:
        case Finish():
            return change.status.value
        case Requeue(event=EventKind.RETRY):
            return "back for a retry"
        case Requeue(event=EventKind.HELD):
            return "parked" if change.held_by is None else "held"
        case Requeue():
            return "back, released"
        case StageWrite():
            return f"stage {change.status.value}"


def _extended(act: Act, extension: Extension, _: Jobs) -> Iterator[str]:
    if {job_id for job_id, _ in act.args[0]} - extension.lost - extension.timed_out:
        yield "prolonged"
    if extension.timed_out:
        yield "told of a deadline"
    if extension.lost:
        yield "lost"
    if extension.cancel_requested:
        yield "told of a request to cancel"


def _begun(_: Act, answers: list[bool], __: Jobs) -> Iterator[str]:
    return ("begun" if matched else "refused" for matched in answers)


def _promoted(act: Act, promotion: Promotion, _: Jobs) -> Iterator[str]:
    if promotion.promoted:
        yield "made ready"
    if promotion.promoted == act.options["limit"]:
        yield "as many as allowed"


def _released(act: Act, count: int, _: Jobs) -> Iterator[str]:
    if count:
        yield "made ready"
    if count == act.options["limit"]:
        yield "as many as allowed"


def _reclaimed(act: Act, lost: list[str], _: Jobs) -> Iterator[str]:
    if lost:
        yield "given back"
    if len(lost) == act.options["limit"]:
        yield "as many as allowed"


def _expired(act: Act, late: list[str], before: Jobs) -> Iterator[str]:
    for job_id in late:
        yield f"ended while {before[job_id].status}"
        if before[job_id].held_by is not None:
            yield "ended while held"
    if len(late) == act.options["limit"]:
        yield "as many as allowed"


def _accepted(_: Act, __: Job, ___: Jobs) -> Iterator[str]:
    yield "completed"


def _signalled(act: Act, _: None, before: Jobs) -> Iterator[str]:
    job = before[act.args[0]]
    if job.held_by is not None:
        yield "left with a job that is held"
    yield "woken" if job.waiting else f"left with a job that is {job.status}"


def _done(_: Act, changed: bool, __: Jobs) -> Iterator[str]:
    yield "done" if changed else "done before"


def _cancelled(act: Act, status: Status, before: Jobs) -> Iterator[str]:
    yield status.value
    if before[act.args[0]].held_by is not None:
        yield "cancelled while held"


def _retried(_: Act, __: Job, ___: Jobs) -> Iterator[str]:
    yield "brought back"


def _looked(_: Act, found: Collection[object], __: Jobs) -> Iterator[str]:
    if found:
        yield "something"


_TELLERS: dict[str, Callable[[Act, Any, Jobs], Iterator[str]]] = {
    "submit": _submitted,
    "claim": _claimed,
    "settle": _settled,
    "extend": _extended,
    "begin": _begun,
    "promote": _promoted,
    "providers.release": _released,
    "reclaim": _reclaimed,
    "expire": _expired,
    "accept_late": _accepted,
    "signal": _signalled,
    "queues.pause": _done,
    "queues.resume": _done,
    "queues.paused": _looked,
    "cancel": _cancelled,
    "retry": _retried,
    "find": _looked,
    "await_ends": _looked,
    "cancel_requests": _looked,
    "providers.holders": _looked,
    "providers.count_held": _looked,
}
