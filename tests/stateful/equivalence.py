"""When two answers are equal: only what the port promises is compared."""

from dataclasses import replace
from itertools import groupby
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Claim, Event, Job, Signal
from holdfast.core.jobs.stages import StageRow
from holdfast.core.providers.holder import Holder
from holdfast.ports.queues import Pause
from holdfast.ports.store import SubmissionRefusal
from tests.stateful.short_repr import short_repr


def comparable(answer: Any) -> Any:
    """Return *answer* without what is not promised: the message of an error, the order of what has none."""
    match answer:
        case HoldfastError():
            return type(answer)
        case SubmissionRefusal():
            return type(answer.error)
        case Claim():
            return _promised(answer)
        case Job() | StageRow():
            return _readable(answer)
        case list():
            return _comparable_list(answer)
        case _:
            return answer


def _promised(claim: Claim) -> Claim:
    """Return a claim with whether there are stages, not how many, and time to the millisecond."""
    left = None if claim.time_left is None else round(claim.time_left, 3)
    return claim._replace(stages=min(claim.stages, 1), time_left=left)


def _readable(answer: Job | StageRow) -> Job | StageRow:
    """Return a job with its holder's label, and a stage without its age, which is by a clock that the model lacks."""
    if isinstance(answer, StageRow):
        return answer._replace(age=0.0)
    return answer if answer.held_by is None else replace(answer, held_by=Holder.parse(answer.held_by).label)


def _comparable_list(answers: list[Any]) -> list[Any]:
    match answers:
        case [Event(), *_]:
            return _in_order(answers)
        case [str() | Holder() | Claim() | StageRow() | Pause() | Signal(), *_]:
            return sorted(map(comparable, answers), key=repr)
        case _:
            return list(map(comparable, answers))


def difference(answered: Any, promised: Any) -> str:
    """List what the store answered and the model did not, and the reverse."""
    given, expected = _parts(comparable(answered)), _parts(comparable(promised))
    own, others = (
        [part for part in given if part not in expected],
        [part for part in expected if part not in given],
    )
    if not own and not others:  # it is the order that differs
        own, others = given, expected
    return "\n".join(
        [*(f"  the store says {part}" for part in own), *(f"  and should say {part}" for part in others)]
    )


def _in_order(events: list[Event]) -> list[Event]:
    """Keep the order of events, but stages that ended in one write have none among themselves."""
    together = groupby(events, key=lambda event: (event.at, event.kind))
    return [event for _, group in together for event in sorted(group, key=lambda event: str(event.meta))]


def _parts(answer: Any) -> list[str]:
    """Represent a list item by item, unless its items are booleans; any other answer as a whole."""
    apart = isinstance(answer, list) and not isinstance(next(iter(answer), None), bool)
    return [short_repr(part) for part in answer] if apart else [short_repr(answer)]
