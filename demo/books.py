"""The contents of the database, read by plain SQL, independently of the library."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

_JOB_COUNTS = """
SELECT (SELECT count(*) FROM holdfast_jobs WHERE leased_by LIKE :living),
       (SELECT count(*) FROM holdfast_jobs WHERE leased_by NOT LIKE :living),
       (SELECT count(*) FROM holdfast_jobs WHERE status = 'queued' AND retry_after IS NULL),
       (SELECT count(*) FROM holdfast_jobs WHERE status = 'queued' AND retry_after IS NOT NULL),
       (SELECT count(*) FROM holdfast_finished WHERE status = 'completed'),
       (SELECT count(*) FROM holdfast_finished WHERE status = 'failed'),
       (SELECT count(*) FROM holdfast_job_events WHERE kind = 'retry')
"""

_JOBS = """
SELECT id, status, attempt, generation, NULL FROM holdfast_jobs
 UNION ALL
SELECT id, status, attempt, generation, result FROM holdfast_finished
"""


_FAILURE_TEXTS = """
SELECT failure || ifnull(evidence, '') || ifnull(notes, '') FROM holdfast_dead_letters
 UNION ALL
SELECT reason || meta FROM holdfast_letter_steps
 UNION ALL
SELECT facts FROM holdfast_tickets
 UNION ALL
SELECT meta FROM holdfast_job_events
"""


class JobCounts(NamedTuple):
    """The number of jobs in each state at one moment, and of retries; *orphaned* jobs have a dead worker."""

    running: int
    orphaned: int
    ready: int
    parked: int
    completed: int
    failed: int
    retries: int

    @property
    def live(self) -> int:
        """Jobs that have not ended."""
        return self.running + self.orphaned + self.ready + self.parked


class JobRow(NamedTuple):
    """A job, live or ended; *result* is the JSON of one that completed."""

    id: str
    status: str
    attempt: int
    generation: int
    result: str | None


class StageRow(NamedTuple):
    """A stage whose end was stored, when, and in which attempt at it."""

    job_id: str
    name: str
    status: str
    attempt: int
    stored_at: datetime


class ProviderEventRow(NamedTuple):
    """An entry in the history of a provider: its breaker opened, or closed, or a trial has ended."""

    name: str
    at: datetime
    kind: str


class EventRow(NamedTuple):
    """An entry in a job's history."""

    job_id: str
    kind: str
    meta: Mapping[str, Any]


class LetterRow(NamedTuple):
    """A dead letter: the state of its repair, the number of replays, and whether its input was corrected."""

    job_id: str
    state: str
    replays: int
    corrected: bool


class StepRow(NamedTuple):
    """A step that was taken with a dead letter."""

    job_id: str
    state: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that the database holds at one moment.

    *keys* maps each key to its job; *failure_texts* are all texts of letters and histories about failures.
    """

    jobs: list[JobRow]
    stages: list[StageRow]
    events: list[EventRow]
    provider_events: list[ProviderEventRow]
    keys: Mapping[str, str]
    letters: list[LetterRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    failure_texts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Database:
    """The file with the jobs, opened read-only."""

    path: Path

    def job_counts(self, *, living: int) -> JobCounts:
        """Count the jobs; only those that the process *living* holds are running."""
        with self._snapshot() as connection:
            return JobCounts(*connection.execute(_JOB_COUNTS, {"living": _worker(living)}).fetchone())

    def held_by(self, pid: int) -> frozenset[str]:
        """Return the jobs that the worker process *pid* holds, alive or dead."""
        with self._snapshot() as connection:
            rows = connection.execute("SELECT id FROM holdfast_jobs WHERE leased_by LIKE ?", [_worker(pid)])
            return frozenset(job_id for (job_id,) in rows)

    def books(self) -> Books:
        """Read all rows."""
        with self._snapshot() as connection:
            stages = connection.execute(
                "SELECT job_id, name, status, attempt, stored_at FROM holdfast_stages"
            )
            events = connection.execute("SELECT job_id, kind, meta FROM holdfast_job_events ORDER BY seq")
            provider_events = connection.execute(
                "SELECT name, at, kind FROM holdfast_provider_events ORDER BY seq"
            )
            letters = connection.execute(
                "SELECT job_id, state, replays, corrected FROM holdfast_dead_letters"
            )
            steps = connection.execute("SELECT job_id, state, at FROM holdfast_letter_steps ORDER BY seq")
            return Books(
                jobs=[JobRow(*row) for row in connection.execute(_JOBS)],
                stages=[
                    StageRow(job_id, name, status, attempt, _instant(at))
                    for job_id, name, status, attempt, at in stages
                ],
                events=[EventRow(job_id, kind, json.loads(meta)) for job_id, kind, meta in events],
                provider_events=[
                    ProviderEventRow(name, _instant(at), kind) for name, at, kind in provider_events
                ],
                keys=dict(connection.execute("SELECT key, job_id FROM holdfast_job_keys")),
                letters=[
                    LetterRow(job_id, state, replays, bool(corrected))
                    for job_id, state, replays, corrected in letters
                ],
                steps=[StepRow(job_id, state, _instant(at)) for job_id, state, at in steps],
                failure_texts=[text for (text,) in connection.execute(_FAILURE_TEXTS)],
            )

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield connection


def _worker(pid: int) -> str:
    """Return the LIKE pattern of the name of the worker in process *pid*."""
    return f"%:{pid}:%"


def _instant(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
