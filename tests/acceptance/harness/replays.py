"""Thousands of dead letters are replayed under one plan, while their workers are killed one after the other.

    python -m tests.acceptance.harness.replays --store postgres

lets invoices fail in their second stage, since the outside service refuses to send them; heals the service; and takes
all of them through triage, remediation and a plan whose canary goes first. Every second a worker is killed and replaced. It
prints a table, by the service's own log of calls and by the database, and exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from holdfast.operations import LetterFilter, LetterState
from holdfast_simulator import Status as Answer
from tests import invariants
from tests.acceptance.harness.databases import StoreName, open_database
from tests.acceptance.harness.invoices import BUDGET, Invoices, build
from tests.acceptance.harness.measurements import Measurements
from tests.acceptance.harness.polling import throttled, until
from tests.acceptance.harness.processes import HARNESS, Process, Service, WorkerHost, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.core.dead_letters.replay_plan import Phase
    from holdfast.engine.dead_letters.replay_planner import Progress
    from holdfast.operations import Letter
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database
    from tests.invariants import World

LETTERS = 10_000
WORKERS = 4
SLOTS = 8
CANARY = 5
PACE = 500.0
KILL_EVERY = 1.0
UNREACHABLE = 0.1
"""The share of the letters whose service answered 500 until their attempts were spent; it refused the others."""

OPERATOR = "ann"


@dataclass
class InvoicePool(WorkerPool):
    """Workers that draft and send, each started with the `holdfast worker` command."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def _worker(self, host: WorkerHost) -> Process:
        return Process.launch(
            *("holdfast", "worker", f"{HARNESS}.invoices_app:hold"),
            *("--slots", str(SLOTS), "--lease", "2s", "--log-format", "json"),
            log=self.folder / f"worker-{len(self.former)}-{os.urandom(3).hex()}.log",
            environment={
                "DATABASE_URL": host.url,
                "SERVICE_URL": self.service_url,
                "HOLDFAST_WORKER_POLL_SEC": "0.2",
                **self.environment,
            },
        )


@dataclass
class ReplayHarness:
    """Controls a run: it submits, injects faults into the service and ends them, and acts as the operator."""

    database: Database
    service: Service
    pool: InvoicePool
    invoices: Invoices
    kills: int = 0

    def fail_jobs(self, count: int, fault: Answer) -> list[str]:
        """Submit *count* invoices that cannot be sent; return the ids of their jobs when all have failed."""
        self.service.inject(fault, "/effects/send")
        handles = self.invoices.invoice.submit_many_sync((number,) for number in range(count))
        pending = {handle.id for handle in handles}
        until(
            throttled(lambda: not pending & self.database.live().keys()),
            within=600,
            what=f"{count} jobs to fail",
        )
        return [handle.id for handle in handles]

    def heal(self) -> None:
        """Let the service send again."""
        self.service.heal("/effects/send")

    def plan(self, letters: LetterFilter, *, canary: int, pace: float = PACE) -> str:
        """Triage, remediate and plan as an operator does; return the plan's token."""
        dead = self.invoices.hold.dead_letters
        dead.triage_sync(letters, "transient", actor=OPERATOR, reason="the service could not send")
        dead.remediate_sync(letters, "the service says that it sends again", actor=OPERATOR)
        planned = dead.plan_sync(
            letters, safe="every call has a key", actor=OPERATOR, canary=canary, pace=pace
        )
        assert planned.token is not None, planned.refused
        return planned.token

    def replay(self, token: str, *, killing: bool = False, within: float = 600.0) -> Progress:
        """Start a plan, wait until it has ended, and return its progress."""
        dead = self.invoices.hold.dead_letters
        dead.replay_sync(token, actor=OPERATOR)
        ended = throttled(lambda: not dead.progress_sync(token).plan.is_running)
        kill = _every(KILL_EVERY)

        def has_ended() -> bool:
            self.pool.replace_dead()
            if killing and kill():
                self._kill_one()
            return ended()

        until(has_ended, within=within, what="the end of the replay")
        return dead.progress_sync(token)

    def _kill_one(self) -> None:
        """Kill a worker, unless it is the last one at work: a start takes long enough."""
        victims = self.pool.at_work()
        if len(victims) > 1:
            random.choice(victims).kill()
            self.kills += 1

    def letters(self, job_ids: Sequence[str]) -> dict[str, Letter]:
        """Read the letters of these jobs."""
        selected, dead = set(job_ids), self.invoices.hold.dead_letters
        found = dead.list_sync(LetterFilter(limit=2 * LETTERS))
        return {letter.job_id: letter for letter in found if letter.job_id in selected}

    def calls(self) -> list[Entry]:
        """Read the calls to the service, in the order of arrival."""
        return sorted(self.service.calls(), key=lambda entry: entry.monotonic)


def _every(seconds: float) -> Callable[[], bool]:
    """Return a condition that is true once every *seconds*."""
    asked_at = time.monotonic()

    def ask() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < seconds:
            return False
        asked_at = time.monotonic()
        return True

    return ask


@contextmanager
def replay_harness(database: Database, folder: Path, *, workers: int = WORKERS) -> Iterator[ReplayHarness]:
    """Start the service and the workers, and wait until they work."""
    invoices = build(database.url)
    with (
        Service(folder) as service,
        InvoicePool(database.url, folder, service.url, workers) as pool,
    ):
        try:
            pool.wait_until_at_work()
            yield ReplayHarness(database, service, pool, invoices)
        finally:
            invoices.hold.close_sync()


@dataclass(frozen=True)
class Evidence:
    """The raw data of the measurements."""

    jobs: Sequence[str]
    calls_before: int
    calls: Sequence[Entry]
    letters: Mapping[str, Letter]
    world: World
    canary: int
    canary_done_at: float
    """When the last job of the canary had completed, in seconds since the epoch."""
    phase: Phase
    kills: int
    seconds: tuple[float, float]
    """How long it took until all had failed, and until all were back."""

    @property
    def later(self) -> Sequence[Entry]:
        """The calls since the service was healed."""
        return self.calls[self.calls_before :]

    @property
    def completed(self) -> set[str]:
        """The jobs that completed as their second generation."""
        return {
            row["id"] for row in self.world.ended if (row["status"], row["generation"]) == ("completed", 2)
        } & set(self.jobs)

    @property
    def verified(self) -> list[Letter]:
        """The letters that were replayed once, and whose jobs have completed."""
        return [
            letter
            for letter in self.letters.values()
            if (letter.state, letter.replays) == (LetterState.VERIFIED, 1)
        ]

    @property
    def drafted_again(self) -> int:
        """How many stages that were finished had their call made again."""
        return sum(entry.route == "POST /effects/draft" for entry in self.later)

    @property
    def effects(self) -> Counter[tuple[str, str]]:
        """How often each stage of each job took effect."""
        return Counter((job_of(entry), entry.route) for entry in self.calls if entry.effect_id is not None)

    @property
    def most_attempts(self) -> int:
        """The most calls that a stage made in one generation."""
        return max(Counter(entry.key for entry in self.calls).values())

    @property
    def too_early(self) -> set[str]:
        """The jobs that were called for before the canary had completed, beside the canary."""
        return {
            job_of(entry) for entry in self.later if entry.at.timestamp() < self.canary_done_at
        } - self.canaries

    @property
    def canaries(self) -> set[str]:
        """The jobs that went first."""
        return set(list(dict.fromkeys(map(job_of, self.later)))[: self.canary])


def job_of(entry: Entry) -> str:
    """Read from a call's key for which job it was made."""
    return (entry.key or "").partition(":")[0]


def run(harness: ReplayHarness, *, letters: int, canary: int = CANARY, pace: float = PACE) -> Evidence:
    """Have *letters* jobs fail, and replay them all under one plan while workers are killed."""
    began = time.monotonic()
    unreachable = max(1, round(letters * UNREACHABLE))
    jobs = harness.fail_jobs(letters - unreachable, Answer(400)) + harness.fail_jobs(unreachable, Answer(500))
    failed = time.monotonic()
    harness.heal()
    before = len(harness.calls())
    token = harness.plan(LetterFilter(name="invoice", limit=letters), canary=canary, pace=pace)
    progress = harness.replay(token, killing=True)
    back = time.monotonic()
    return _evidence(
        harness,
        jobs,
        before,
        canary=canary,
        phase=progress.plan.phase,
        seconds=(failed - began, back - failed),
    )


def _evidence(
    harness: ReplayHarness,
    jobs: Sequence[str],
    before: int,
    *,
    canary: int,
    phase: Phase,
    seconds: tuple[float, float],
) -> Evidence:
    calls = harness.calls()
    first = list(dict.fromkeys(map(job_of, calls[before:])))[:canary]
    ends = [harness.invoices.hold.read_sync(job_id).finished_at for job_id in first]
    return Evidence(
        jobs,
        before,
        calls,
        harness.letters(jobs),
        harness.database.world(),
        canary,
        max(at.timestamp() for at in ends if at is not None),
        phase,
        harness.kills,
        seconds,
    )


def measurements(seen: Evidence) -> Measurements:
    """Compare the evidence with the bounds."""
    measured, total = Measurements(), len(seen.jobs)
    effects = seen.effects
    failed, back = seen.seconds
    damage = invariants.damage(seen.world, seen.calls, seen.jobs)
    measured.exactly("jobs completed, as generation 2", len(seen.completed), total)
    measured.exactly("completed twice", damage.double_completions, 0)
    measured.exactly("letters verified, after one replay", len(seen.verified), total)
    measured.exactly("finished stages run again", seen.drafted_again, 0)
    measured.exactly("stages with one effect", sum(count == 1 for count in effects.values()), 2 * total)
    measured.exactly("stages with more", sum(count > 1 for count in effects.values()), 0)
    measured.at_most("most attempts of a stage", seen.most_attempts, BUDGET)
    measured.exactly("jobs of the canary", len(seen.canaries), seen.canary)
    measured.exactly("jobs that did not wait for it", len(seen.too_early), 0)
    measured.record("seconds until all had failed", failed)
    measured.record("seconds until all were back", back)
    measured.record("letters replayed a second", total / back)
    measured.at_least("workers killed meanwhile", seen.kills, 1)
    measured.record(
        "calls repeated under the same key", sum(entry.duplicate_of is not None for entry in seen.later)
    )
    return measured


def main() -> int:
    """Run it on one store; exit with 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    parser.add_argument("--letters", type=int, default=LETTERS, metavar="N", help="how many jobs fail first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-replays-") as name:
        folder = Path(name)
        with open_database(options.store, folder) as database, replay_harness(database, folder) as harness:
            measured = measurements(run(harness, letters=options.letters))
    measured.show(f"{options.letters:,} dead letters are replayed, on {options.store}")
    return measured.exit_code


if __name__ == "__main__":
    sys.exit(main())
