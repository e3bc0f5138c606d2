"""Whose attempt a failed call to a provider is: a job pays for its own calls, and not for trials."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast import ErrorClass
from tests.simulation.provided_jobs import BACKUPS
from tests.simulation.provider_oracle import Ended
from tests.simulation.verdicts import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.invariants import World
    from tests.simulation.provider_oracle import Call
    from tests.simulation.verdicts import Run

_PAID = ("retry", "failed")


def trials_cost_no_attempt(world: World, calls: Sequence[Call]) -> None:
    """A trial that showed that its provider is not back cost its job no attempt, unless its own code was cancelled."""
    for call, run in _only_failures(world, calls):
        speaks = call.ended in (Ended.BAD, Ended.REFUSED) and call.provider not in (
            *BACKUPS,
            *BACKUPS.values(),
        )
        wrong = call.trial and speaks and run.kind in _PAID and run.error_class != ErrorClass.BUG
        assert not wrong, f"job {call.caller.job_id} paid for a trial of {call.provider}: {run}"


def calls_were_paid_by_their_jobs(world: World, calls: Sequence[Call]) -> None:
    """A call that failed, and was no trial, cost its job an attempt."""
    for call, run in _only_failures(world, calls):
        wrong = call.free and call.ended is Ended.BAD and run.kind in ("parked", "held")
        assert not wrong, f"job {call.caller.job_id} did not pay for its call of {call.provider}: {run}"


def _only_failures(world: World, calls: Sequence[Call]) -> Iterator[tuple[Call, Run]]:
    """The calls that alone of their lease failed, and how that lease ended."""
    failed: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        if call.failed:
            failed[call.caller.job_id, call.caller.token].append(call)
    runs = runs_of(world)
    for (job_id, token), alone in failed.items():
        number = (token - 1) // 2
        if len(alone) == 1 and number < len(runs[job_id]):
            yield alone[0], runs[job_id][number]
