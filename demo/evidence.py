"""The evidence for the promises, and the findings.

The evidence is the provider's own log of calls, the rows of the database, and what the demo itself did: what it
submitted, killed and replayed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from demo.books import Books
from holdfast_simulator import Entry


class Place(NamedTuple):
    """A stage of a job, as the key of a call names it."""

    job_id: str
    stage: str


class Kill(NamedTuple):
    """A worker process that was killed, and the jobs that it held when it died."""

    pid: int
    held: frozenset[str]


class Outage(NamedTuple):
    """What the demo did to a provider: jobs that called it, jobs that ran meanwhile, and when it recovered."""

    provider: str
    cooldown: timedelta
    calling: frozenset[str]
    beside: frozenset[str]
    healed_at: datetime


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the promises are checked against.

    *submitted* maps each job to the stages it has to go through, *keys* each key to the job that the
    first submission got, *again* to the one that the second got. *calls_before* is how many calls there
    were when the second submission began. *kills_planned* is how many kills the demo set out to make.
    *outage* is set if a provider was broken. *replayed* are the jobs whose dead letters were replayed, and
    *corrected* those of them with other input. *secrets* must not be in a dead letter or in a line of *logs*.
    """

    submitted: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, str]
    again: Mapping[str, str]
    calls_before: int
    calls: Sequence[Entry]
    books: Books
    kills: Sequence[Kill]
    kills_planned: int
    replayed: frozenset[str]
    budget: int
    retry_after: timedelta
    outage: Outage | None = None
    corrected: frozenset[str] = frozenset()
    secrets: Sequence[str] = ()
    logs: Sequence[str] = ()

    @property
    def completed(self) -> set[str]:
        """The jobs that the database knows as completed."""
        return {row.id for row in self.books.jobs if row.status == "completed"}

    @property
    def expected(self) -> set[Place]:
        """The effects that have to take place, once each."""
        return {Place(job_id, stage) for job_id, stages in self.submitted.items() for stage in stages}


class Finding(NamedTuple):
    """A promise and what happened; *culprits* is what broke it."""

    promise: str
    happened: str
    holds: bool
    culprits: tuple[str, ...] = ()


def finding(promise: str, happened: str, culprits: Iterable[object], *, tested: object = True) -> Finding:
    """Return the finding: a promise holds if it was *tested*, and there are no *culprits*."""
    named = tuple(sorted(":".join(each) if isinstance(each, tuple) else str(each) for each in culprits))
    return Finding(promise, happened, bool(tested) and not named, named)


def place_of(key: str | None) -> Place:
    """Read from a call's key which stage of which job made it.

    >>> place_of("0190-7a:1:ship:#1")
    Place(job_id='0190-7a', stage='ship')
    """
    parts = (key or "").split(":")
    return Place(parts[0], parts[2] if len(parts) > 2 else "")


def generation_of(key: str | None) -> int:
    """Read the generation of the job from a call's key: the first is 1, and each replay adds one."""
    parts = (key or "").split(":")
    return int(parts[1]) if len(parts) > 1 else 0
