"""Every figure by name, with what it means: one list for those who keep figures, show them or explain them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.core.failures import PublicCode
from holdfast.core.transitions import AttemptEnd


class Figure(NamedTuple):
    """What a figure means, and by what it is told apart.

    *values* are those that its one label can have; each is shown from the start, because a counter that
    appears with its first event hides that event from everybody who looks at changes.
    """

    meaning: str
    labels: Sequence[str] = ()
    values: Sequence[str] = ()


CODES = tuple(code.value for code in PublicCode)
OUTCOMES = tuple(end.value for end in AttemptEnd)

COUNTERS: Mapping[str, Figure] = {
    "jobs_created": Figure("Submissions that made a job, without those in a caller's own transaction"),
    "jobs_completed": Figure("Jobs that ended with a result"),
    "jobs_failed": Figure("Jobs that ended without a result, by public code", ("code",), CODES),
    "jobs_cancelled": Figure("Jobs that were cancelled while they ran"),
    "jobs_timed_out": Figure("Jobs that had not ended at their deadline"),
    "results_late": Figure("Results that came after the deadline, and were kept as late"),
    "retries_scheduled": Figure("Attempts that failed and are followed by another", ("code",), CODES),
    "jobs_parked": Figure(
        "Times that a job began to sleep, to wait for a signal or another job, or for a worker that knows it"
    ),
    "jobs_released": Figure("Jobs put back untouched"),
    "jobs_reclaimed": Figure("Jobs taken back from dead workers"),
    "fenced": Figure("Writes refused because the lease was lost"),
    "signals_sent": Figure("Signals left with jobs"),
}

SPREADS: Mapping[str, Figure] = {
    "attempt_seconds": Figure("How long attempts took, by what came of them", ("outcome",), OUTCOMES),
}

GAUGES: Mapping[str, Figure] = {
    "queue_depth": Figure("Jobs that have not ended, by queue and state", ("queue", "state")),
    "queue_oldest_ready_seconds": Figure("How long the first in line has been ready", ("queue",)),
    "worker_slots": Figure("Jobs that this worker can run at once"),
    "worker_running": Figure("Jobs that this worker runs now"),
    "worker_unsettled": Figure("Attempts of this worker that have ended and are not written yet"),
}
