"""Every figure by name, with what it means: one list for those who keep figures, show them or explain them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from holdfast.core.breakers import Outcome
from holdfast.core.exhaustion import LEVELS
from holdfast.core.failures import PublicCode
from holdfast.core.letters import LetterState
from holdfast.core.transitions import AttemptEnd
from holdfast.telemetry.figures import Labels

PROVIDER = "provider"
"""A label whose values an application declares."""


class Figure(NamedTuple):
    """What a figure means, and by what it is told apart.

    *values* are those that its last label can have, unless that is a provider; each is shown from the start,
    because a counter that appears with its first event hides that event from everybody who looks at changes.
    """

    meaning: str
    labels: Sequence[str] = ()
    values: Sequence[str] = ()

    def series(self, providers: Iterable[str] = ()) -> list[Labels]:
        """Give every series that is known before anything is counted.

        >>> Figure("Calls", (PROVIDER, "outcome"), ("success", "failure")).series(["llm"])
        [(('outcome', 'success'), ('provider', 'llm')), (('outcome', 'failure'), ('provider', 'llm'))]
        """
        names = tuple(providers)
        choices = [names if label == PROVIDER else self.values for label in self.labels]
        return [tuple(sorted(zip(self.labels, values, strict=True))) for values in product(*choices)]


CODES = tuple(code.value for code in PublicCode)
OUTCOMES = tuple(end.value for end in AttemptEnd)
CALLS = tuple(outcome.value for outcome in Outcome)
STATES = tuple(state.value for state in LetterState)

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
    "jobs_held": Figure(
        "Times that a job was put aside because its provider let no call through", (PROVIDER,)
    ),
    "jobs_released": Figure("Jobs put back untouched"),
    "jobs_reclaimed": Figure("Jobs taken back from dead workers"),
    "fenced": Figure("Writes refused because the lease was lost"),
    "signals_sent": Figure("Signals left with jobs"),
    "letter_steps": Figure("Steps that people took with dead letters", ("state",), STATES),
    "letters_replayed": Figure("Dead letters whose job was sent on"),
    "letters_archived": Figure("Dead letters that left for the archive"),
    "letters_restored": Figure("Dead letters that came back from the archive"),
    "tickets": Figure("Tickets that were told, by how loudly", ("level",), tuple(LEVELS)),
    "jobs_purged": Figure("Jobs that ended long ago and were deleted"),
    "keys_purged": Figure("Keys and versions of deleted jobs that were deleted"),
    "provider_calls": Figure(
        "Calls to providers, by what they say about the provider", (PROVIDER, "outcome"), CALLS
    ),
    "provider_trials": Figure("Calls that were to show whether a provider is back", (PROVIDER,)),
    "provider_openings": Figure(
        "Times that a breaker opened, or a provider asked for silence or refused everybody", (PROVIDER,)
    ),
    "provider_shut_seconds": Figure("How long providers were shut, once they are back", (PROVIDER,)),
    "provider_backups": Figure("Calls that a provider's backup was given instead", (PROVIDER,)),
}

SPREADS: Mapping[str, Figure] = {
    "attempt_seconds": Figure("How long attempts took, by what came of them", ("outcome",), OUTCOMES),
    "provider_seconds": Figure("How long calls to providers took", (PROVIDER,)),
    "permit_seconds": Figure("How long calls waited for a provider's limits", (PROVIDER,)),
}

GAUGES: Mapping[str, Figure] = {
    "queue_depth": Figure("Jobs that have not ended, by queue and state", ("queue", "state")),
    "queue_oldest_ready_seconds": Figure("How long the first in line has been ready", ("queue",)),
    "worker_slots": Figure("Jobs that this worker can run at once"),
    "worker_running": Figure("Jobs that this worker runs now"),
    "worker_unsettled": Figure("Attempts of this worker that have ended and are not written yet"),
    "provider_state": Figure("1 for the state that a provider is in, 0 for the others", (PROVIDER, "state")),
    "provider_failure_rate": Figure(
        "Part of the last calls that failed, or of those that have shut the provider", (PROVIDER,)
    ),
    "provider_shut_for_seconds": Figure(
        "How long calls have been turned away; 0 if they are not", (PROVIDER,)
    ),
    "dead_letters": Figure("Dead letters by state", ("state",)),
    "provider_held": Figure("Jobs that are held until their provider can be called", (PROVIDER,)),
}
