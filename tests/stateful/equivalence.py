"""When two answers are the same: what is promised counts, what nobody promises does not."""

from dataclasses import replace
from itertools import groupby
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Claim, Event, Job, Signal
from holdfast.core.jobs.stages import StageRow
from holdfast.core.providers.provider import holder_label
from holdfast.ports.queues import Pause
from holdfast.ports.store import SubmissionRefusal
from tests.stateful.brief import brief


def comparable(answer: Any) -> Any:
    """Give *answer* without what is not promised: the words of a refusal, the order of what has none."""
    match answer:
        case HoldfastError():
            return type(answer)
        case SubmissionRefusal():
            return type(answer.error)
        case Claim():
            return _promised(answer)
        case Job() | StageRow():
            return _as_told(answer)
        case list():
            return _comparable_list(answer)
        case _:
            return answer


def _promised(claim: Claim) -> Claim:
    """Give a claim with whether there are stages, not how many, and time to the millisecond."""
    left = None if claim.time_left is None else round(claim.time_left, 3)
    return claim._replace(stages=min(claim.stages, 1), time_left=left)


def _as_told(answer: Job | StageRow) -> Job | StageRow:
    """Give a job with its holder as people read it, and a stage without its age, by a clock that nobody else reads."""
    if isinstance(answer, StageRow):
        return answer._replace(age=0.0)
    return answer if answer.held_by is None else replace(answer, held_by=holder_label(answer.held_by))


def _comparable_list(answers: list[Any]) -> list[Any]:
    match answers:
        case [Event(), *_]:
            return _in_order(answers)
        case [str() | Claim() | StageRow() | Pause() | Signal(), *_]:
            return sorted(map(comparable, answers), key=repr)
        case _:
            return list(map(comparable, answers))


def difference(answered: Any, promised: Any) -> str:
    """Say what the store told and the model did not, and the other way round."""
    told, meant = _parts(comparable(answered)), _parts(comparable(promised))
    own, others = [part for part in told if part not in meant], [part for part in meant if part not in told]
    if not own and not others:  # it is the order that differs
        own, others = told, meant
    return "\n".join(
        [*(f"  the store says {part}" for part in own), *(f"  and should say {part}" for part in others)]
    )


def _in_order(events: list[Event]) -> list[Event]:
    """Keep the order of events, but stages that ended in one write have none among themselves."""
    together = groupby(events, key=lambda event: (event.at, event.kind))
    return [event for _, group in together for event in sorted(group, key=lambda event: str(event.meta))]


def _parts(answer: Any) -> list[str]:
    """Write down an answer piece by piece, if it is made of pieces that say something by themselves."""
    apart = isinstance(answer, list) and not isinstance(next(iter(answer), None), bool)
    return [brief(part) for part in answer] if apart else [brief(answer)]
