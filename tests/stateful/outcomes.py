"""The outcomes of a command, in words: a run that never reached one has shown nothing about it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Claim, EventKind, Job, Receipt, Submission
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports.store import Extension, Promotion, Settled, SubmissionRefusal
from tests.stateful.run_state import Command

Jobs = dict[str, Job]


def outcomes(command: Command, answer: Any, before: Jobs) -> Iterator[str]:
    """Describe what happened when *command* got *answer*; *before* are the jobs before it."""
    if isinstance(answer, HoldfastError):
        described: Iterable[str] = [type(answer).__name__]
    else:
        described = _DESCRIBERS[command.operation](command, answer, before)
    return (f"{command.operation}: {what}" for what in described)


def _submitted(command: Command, answers: list[Receipt | SubmissionRefusal], _: Jobs) -> Iterator[str]:
    if command.options:
        yield "repeated"
        return
    for item, answer in zip(command.args[0], answers, strict=True):
        yield _reception(item, answer)


def _reception(item: Submission, answer: Receipt | SubmissionRefusal) -> str:
    match answer:
        case SubmissionRefusal():
            return type(answer.error).__name__
        case Receipt(payload_differs=True):
            return "deduplicated, with another payload"
        case Receipt(existing=True):
            return "deduplicated by key" if item.key is not None else "deduplicated by version"
        case _:
            return "created" if item.version in (None, 1) else "created for a later version"


def _claimed(_: Command, claims: list[Claim], __: Jobs) -> Iterator[str]:
    for claim in claims:
        yield "claimed"
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


def _settled(command: Command, answers: list[Settled], before: Jobs) -> Iterator[str]:
    for change, written in zip(command.args[1], answers, strict=True):
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
            return "requeued for a retry"
        case Requeue(event=EventKind.PARKED):
            return "parked"
        case Requeue(event=EventKind.HELD):
            return "held"
        case Requeue():
            return "released"
        case StageWrite():
            return f"stage {change.status.value}"


def _extended(command: Command, extension: Extension, _: Jobs) -> Iterator[str]:
    if {job_id for job_id, _ in command.args[0]} - extension.lost - extension.timed_out:
        yield "extended"
    if extension.timed_out:
        yield "with a deadline that has passed"
    if extension.lost:
        yield "lost"
    if extension.cancel_requested:
        yield "with a request to cancel"


def _begun(_: Command, answers: list[bool], __: Jobs) -> Iterator[str]:
    return ("begun" if matched else "refused" for matched in answers)


def _promoted(command: Command, promotion: Promotion, _: Jobs) -> Iterator[str]:
    if promotion.promoted:
        yield "made ready"
    if promotion.promoted == command.options["limit"]:
        yield "as many as allowed"


def _released(command: Command, count: int, _: Jobs) -> Iterator[str]:
    if count:
        yield "made ready"
    if count == command.options["limit"]:
        yield "as many as allowed"


def _reclaimed(command: Command, lost: list[str], _: Jobs) -> Iterator[str]:
    if lost:
        yield "requeued"
    if len(lost) == command.options["limit"]:
        yield "as many as allowed"


def _expired(command: Command, late: list[str], before: Jobs) -> Iterator[str]:
    for job_id in late:
        yield f"ended while {before[job_id].status}"
        if before[job_id].held_by is not None:
            yield "ended while held"
    if len(late) == command.options["limit"]:
        yield "as many as allowed"


def _accepted(_: Command, __: Job, ___: Jobs) -> Iterator[str]:
    yield "completed"


def _signalled(command: Command, _: None, before: Jobs) -> Iterator[str]:
    job = before[command.args[0]]
    if job.held_by is not None:
        yield "left with a job that is held"
    yield "woken" if job.waiting else f"left with a job that is {job.status}"


def _done(_: Command, changed: bool, __: Jobs) -> Iterator[str]:
    yield "done" if changed else "done before"


def _cancelled(command: Command, status: Status, before: Jobs) -> Iterator[str]:
    yield status.value
    if before[command.args[0]].held_by is not None:
        yield "cancelled while held"


def _retried(_: Command, __: Job, ___: Jobs) -> Iterator[str]:
    yield "replayed"


def _looked(_: Command, found: Collection[object], __: Jobs) -> Iterator[str]:
    if found:
        yield "something"


_DESCRIBERS: dict[str, Callable[[Command, Any, Jobs], Iterator[str]]] = {
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
