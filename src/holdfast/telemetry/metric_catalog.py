"""The catalog of metrics: names, meanings and labels."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.failures.escalation import LEVELS
from holdfast.core.failures.failure import PublicCode
from holdfast.core.jobs.transitions import AttemptEnd
from holdfast.core.messages.inbox import ReceivedAs
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.telemetry.metric_registry import Labels

PROVIDER = "provider"
"""A label whose values are declared by the application."""


class MetricSpec(NamedTuple):
    """The meaning and the labels of a metric.

    *values* are the possible values of its last label, unless that is a provider; each is exported from the start,
    because a counter that appears with its first event hides that event from `rate` and `increase`.
    """

    meaning: str
    labels: Sequence[str] = ()
    values: Sequence[str] = ()

    def series(self, providers: Iterable[str] = ()) -> list[Labels]:
        """Return every series that is known before anything is counted.

        >>> MetricSpec("Calls", (PROVIDER, "outcome"), ("success", "failure")).series(["llm"])
        [(('outcome', 'success'), ('provider', 'llm')), (('outcome', 'failure'), ('provider', 'llm'))]
        """
        names = tuple(providers)
        choices = [names if label == PROVIDER else self.values for label in self.labels]
        return [tuple(sorted(zip(self.labels, values, strict=True))) for values in product(*choices)]


CODES = tuple(code.value for code in PublicCode)
OUTCOMES = tuple(end.value for end in AttemptEnd)
CALLS = tuple(outcome.value for outcome in CallOutcome)
STATES = tuple(state.value for state in LetterState)
RECEIVED = tuple(outcome.value for outcome in ReceivedAs)

COUNTERS: Mapping[str, MetricSpec] = {
    "jobs_created": MetricSpec("Submissions that made a job, without those in a caller's own transaction"),
    "jobs_completed": MetricSpec("Jobs that ended with a result"),
    "jobs_failed": MetricSpec("Jobs that ended without a result, by public code", ("code",), CODES),
    "jobs_cancelled": MetricSpec("Jobs that were cancelled while they ran"),
    "jobs_timed_out": MetricSpec("Jobs that had not ended at their deadline"),
    "results_late": MetricSpec("Results that came after the deadline, and were kept as late"),
    "retries_scheduled": MetricSpec("Attempts that failed and are followed by another", ("code",), CODES),
    "jobs_parked": MetricSpec(
        "Times that a job began to sleep, to wait for a signal or another job, or for a worker that knows it"
    ),
    "jobs_held": MetricSpec(
        "Times that a job was held because its provider could not be called", (PROVIDER,)
    ),
    "jobs_released": MetricSpec("Jobs returned to the queue without a failure"),
    "jobs_reclaimed": MetricSpec("Jobs reclaimed from dead workers"),
    "fenced": MetricSpec("Writes rejected because the lease was lost"),
    "signals_sent": MetricSpec("Signals sent to jobs"),
    "letter_steps": MetricSpec("Steps of the workflow taken with dead letters", ("state",), STATES),
    "letters_replayed": MetricSpec("Dead letters whose job was replayed"),
    "letters_archived": MetricSpec("Dead letters moved to the archive"),
    "letters_restored": MetricSpec("Dead letters restored from the archive"),
    "tickets": MetricSpec("Tickets raised, by level", ("level",), tuple(LEVELS)),
    "dispatches_sent": MetricSpec("Dispatches that the broker of a fleet has confirmed"),
    "dispatches_resent": MetricSpec("Dispatches that were sent again because they had not arrived in time"),
    "dispatches_skipped": MetricSpec("Dispatches that reached a fleet when their job was not ready any more"),
    "announcements_rendered": MetricSpec("Announcements of jobs whose messages were stored in the outbox"),
    "announcements_failed": MetricSpec("Times that an announcement could not be rendered, and was postponed"),
    "jobs_purged": MetricSpec("Jobs that ended long ago and were deleted"),
    "keys_purged": MetricSpec("Keys and versions of deleted jobs that were deleted"),
    "messages_stored": MetricSpec(
        "Messages stored in the outbox, without those in a caller's own transaction"
    ),
    "messages_received": MetricSpec(
        "Messages that consumers received, by what became of them", ("outcome",), RECEIVED
    ),
    "messages_purged": MetricSpec("Published, skipped and received messages that were deleted"),
    "provider_calls": MetricSpec("Calls to providers, by outcome", (PROVIDER, "outcome"), CALLS),
    "provider_trials": MetricSpec("Trial calls to providers", (PROVIDER,)),
    "provider_openings": MetricSpec(
        "Times that a breaker opened, or a provider asked for a pause or refused all calls", (PROVIDER,)
    ),
    "provider_shut_seconds": MetricSpec(
        "How long calls to providers were refused, counted when they recover", (PROVIDER,)
    ),
    "provider_backups": MetricSpec("Calls that went to the backup of a provider", (PROVIDER,)),
    "messages_published": MetricSpec("Messages of the outbox that a broker has confirmed"),
    "message_retries": MetricSpec("Messages that a broker refused and that are published again later"),
    "messages_failed": MetricSpec("Messages that a broker refused until their attempts were spent"),
}

HISTOGRAMS: Mapping[str, MetricSpec] = {
    "attempt_seconds": MetricSpec("How long attempts took, by what came of them", ("outcome",), OUTCOMES),
    "provider_seconds": MetricSpec("How long calls to providers took", (PROVIDER,)),
    "permit_seconds": MetricSpec("How long calls waited for a provider's limits", (PROVIDER,)),
}

GAUGES: Mapping[str, MetricSpec] = {
    "queue_depth": MetricSpec("Jobs that have not ended, by queue and state", ("queue", "state")),
    "queue_oldest_ready_seconds": MetricSpec("How long the first in line has been ready", ("queue",)),
    "worker_slots": MetricSpec("Jobs that this worker can run at once"),
    "worker_running": MetricSpec("Jobs that this worker runs now"),
    "worker_unsettled": MetricSpec("Attempts of this worker that have ended and are not written yet"),
    "provider_state": MetricSpec(
        "1 for the state that a provider is in, 0 for the others", (PROVIDER, "state")
    ),
    "provider_failure_rate": MetricSpec(
        "Share of the last calls that failed, or of those that opened the breaker", (PROVIDER,)
    ),
    "provider_shut_for_seconds": MetricSpec(
        "How long calls have been refused; 0 if they are not", (PROVIDER,)
    ),
    "dead_letters": MetricSpec("Dead letters by state", ("state",)),
    "provider_held": MetricSpec("Jobs that are held until their provider can be called", (PROVIDER,)),
    "outbox_depth": MetricSpec("Messages of the outbox that are not published, by state", ("state",)),
    "outbox_lag_seconds": MetricSpec("How long the oldest message that can be published has waited"),
    "outbox_blocked_routes": MetricSpec("Routes that a broker refuses, and whose messages are held"),
}
