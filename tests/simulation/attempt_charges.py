"""Whose attempt a failed call to a provider is: a job pays for its own calls, and not for those that stand for all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast import ErrorClass
from tests.simulation.provided_jobs import BACKUPS
from tests.simulation.provider_oracle import Ended
from tests.simulation.verdicts import laps_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.invariants import World
    from tests.simulation.provider_oracle import Call
    from tests.simulation.verdicts import Lap

_PAID = ("retry", "failed")


def trials_were_paid_by_nobody(world: World, calls: Sequence[Call]) -> None:
    """A trial that showed that its provider is not back cost its job no attempt, unless its own code was cancelled."""
    for call, lap in _only_failures(world, calls):
        speaks = call.ended in (Ended.BAD, Ended.REFUSED) and call.provider not in (
            *BACKUPS,
            *BACKUPS.values(),
        )
        wrong = call.trial and speaks and lap.kind in _PAID and lap.error_class != ErrorClass.BUG
        assert not wrong, f"job {call.caller.job_id} paid for a trial of {call.provider}: {lap}"


def calls_were_paid_by_their_jobs(world: World, calls: Sequence[Call]) -> None:
    """A call that failed, and was no trial, cost its job an attempt."""
    for call, lap in _only_failures(world, calls):
        wrong = call.free and call.ended is Ended.BAD and lap.kind in ("parked", "held")
        assert not wrong, f"job {call.caller.job_id} did not pay for its call of {call.provider}: {lap}"


def _only_failures(world: World, calls: Sequence[Call]) -> Iterator[tuple[Call, Lap]]:
    """The calls that alone of their lease failed, and how that lease ended."""
    failed: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        if call.failed:
            failed[call.caller.job_id, call.caller.token].append(call)
    laps = laps_of(world)
    for (job_id, token), alone in failed.items():
        number = (token - 1) // 2
        if len(alone) == 1 and number < len(laps[job_id]):
            yield alone[0], laps[job_id][number]
