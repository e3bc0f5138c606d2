"""The outcome of an attempt: a transition to write, and what is reported about it."""

from typing import NamedTuple

from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.traces import ids
from holdfast.core.jobs.transitions import Transition

Lease = tuple[str, int]
"""A job's id and the token under which this worker holds it."""


class AttemptOutcome(NamedTuple):
    """A transition, and the fields of its log line."""

    change: Transition
    attempt: int
    seconds: float
    trace: str | None = None
    name: str = ""
    queue: str = ""

    @property
    def lease(self) -> Lease:
        """The lease under which it is written: job id and token, the first two fields of every transition."""
        return self.change[:2]

    @classmethod
    def of(cls, claim: Claim, change: Transition) -> "AttemptOutcome":
        """Make one for a job whose function was not called."""
        return cls(change, claim.attempt, 0.0, None, claim.name, claim.queue)

    def fields(self) -> dict[str, object]:
        """Return the fields that every log line about the job has."""
        named = {"name": self.name, "queue": self.queue} if self.name else {}
        return {"job_id": self.change.id, **named, **ids(self.trace)}
