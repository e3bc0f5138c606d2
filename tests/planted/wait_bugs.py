"""Mistakes of jobs that wait: they are run again, and their submissions and signals have to be the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.app import job_function
from holdfast.app.current import current
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.execution.suspension import TIMED_OUT, Suspension
from tests.planted.planting import Bug, Swap

if TYPE_CHECKING:
    from datetime import timedelta

_TAKE_SIGNAL = Suspension._take_signal


def _known_by_its_order(name: str, owner: str, fingerprint: str) -> str | None:
    running = CURRENT.get()
    return None if running is None else f"{current().key}:submit#{running.count(current().key)}"


class _Left(list[Any]):
    """Signals that stay where they are."""

    def remove(self, value: Any, /) -> None:
        return


async def _leave_the_signal(self: Any, key: StageKey, name: str, timeout: timedelta | None) -> StageRow:
    """Take what no wait has stored so far."""
    taken = {
        json.loads(row.result or "{}").get("number")
        for row in self._state.rows.values()
        if row.key.name == f"@signal {name}"
    }
    self._untaken_signals = _Left(signal for signal in self._untaken_signals if signal.number not in taken)
    return await _TAKE_SIGNAL(self, key, name, timeout)


async def _say_that_the_time_is_over(self: Any, key: StageKey, message: str) -> StageRow:
    failure = Failure.of(ErrorClass.TIMEOUT, message)
    return StageRow(self._state.claim.id, key, StageStatus.FAILED, 1, "", TIMED_OUT, failure)


BUGS = (
    Bug(
        "child-known-by-its-order",
        "The first that a job submits is its first child.",
        (),
        (Swap(job_function, "next_key", _known_by_its_order),),
    ),
    Bug(
        "signal-left-for-the-next",
        "What a wait took is in the store; a wait beside it will see that.",
        (),
        (Swap(Suspension, "_take_signal", _leave_the_signal),),
    ),
    Bug(
        "time-over-and-not-written",
        "If the time is over now, it will be over the next time as well.",
        (),
        (Swap(Suspension, "_time_out", _say_that_the_time_is_over),),
    ),
)
