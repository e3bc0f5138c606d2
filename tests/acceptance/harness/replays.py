"""Thousands of dead letters go back to work under one plan, while their workers are killed one after the other.

    python -m tests.acceptance.harness.replays --store postgres

has invoices fail in their second stage, since the outside service refuses to send them; heals the service; and takes all
of them through triage, remediation and a plan whose canary goes first. Every second a worker is killed and replaced. It
prints a table, by the service's own log of calls and by the database, and exits with 1 if a bar is missed.
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
from tests.acceptance.harness.figures import Figures
from tests.acceptance.harness.invoices import BUDGET, Invoices, build
from tests.acceptance.harness.pacing import now_and_then, until
from tests.acceptance.harness.processes import HARNESS, Crew, Place, Process, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.core.dead_letters.replay_plan import Phase
    from holdfast.engine.dead_letters.service import Progress
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
"""The part of the letters whose service gave no useful answer until their attempts were spent; it refused the others."""

OPERATOR = "ann"


@dataclass
class InvoiceCrew(Crew):
    """Workers that draft and send, each started with the command that every user has."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def _worker(self, place: Place) -> Process:
        return Process.launch(
            *("holdfast", "worker", f"{HARNESS}.invoices_at_work:hold"),
            *("--slots", str(SLOTS), "--lease", "2s", "--log-format", "json"),
            log=self.folder / f"worker-{len(self.former)}-{os.urandom(3).hex()}.log",
            environment={
                "DATABASE_URL": place.url,
                "SERVICE_URL": self.service_url,
                "HOLDFAST_WORKER_POLL_SEC": "0.2",
                **self.environment,
            },
        )


@dataclass
class Office:
    """The one place from which a run is led: it submits, breaks and heals the service, and does what an operator does."""

    database: Database
    service: Service
    crew: InvoiceCrew
    books: Invoices
    kills: int = 0

    def bury(self, count: int, fault: Answer) -> list[str]:
        """Have so many invoices drafted that cannot be sent; give the ids of their jobs when all have failed."""
        self.service.strike(fault, "/effects/send")
        handles = self.books.invoice.submit_many_sync((number,) for number in range(count))
        wanted = {handle.id for handle in handles}
        until(
            now_and_then(lambda: not wanted & self.database.live().keys()),
            within=600,
            what=f"{count} jobs to fail",
        )
        return [handle.id for handle in handles]

    def heal(self) -> None:
        """Let the service send again."""
        self.service.heal("/effects/send")

    def plan(self, wanted: LetterFilter, *, canary: int, pace: float = PACE) -> str:
        """Go the operator's way as far as a plan, and give its token."""
        dead = self.books.hold.dead_letters
        dead.triage_sync(wanted, "transient", actor=OPERATOR, reason="the service could not send")
        dead.remediate_sync(wanted, "the service says that it sends again", actor=OPERATOR)
        planned = dead.plan_sync(
            wanted, safe="every call has a key", actor=OPERATOR, canary=canary, pace=pace
        )
        assert planned.token is not None, planned.refused
        return planned.token

    def replay(self, token: str, *, killing: bool = False, within: float = 600.0) -> Progress:
        """Let a plan begin, and wait until it has ended; tell how."""
        dead = self.books.hold.dead_letters
        dead.replay_sync(token, actor=OPERATOR)
        ended = now_and_then(lambda: not dead.progress_sync(token).plan.is_running)
        kill = _every(KILL_EVERY)

        def has_ended() -> bool:
            self.crew.tend()
            if killing and kill():
                self._kill_somebody()
            return ended()

        until(has_ended, within=within, what="the end of the replay")
        return dead.progress_sync(token)

    def _kill_somebody(self) -> None:
        """Kill a worker, unless it would be the last one at work: starting takes them long enough."""
        victims = self.crew.at_work()
        if len(victims) > 1:
            random.choice(victims).kill()
            self.kills += 1

    def letters(self, job_ids: Sequence[str]) -> dict[str, Letter]:
        """Read what became of the letters of these jobs."""
        wanted, dead = set(job_ids), self.books.hold.dead_letters
        found = dead.list_sync(LetterFilter(limit=2 * LETTERS))
        return {letter.job_id: letter for letter in found if letter.job_id in wanted}

    def calls(self) -> list[Entry]:
        """Read who called the service, in the order of arrival."""
        return sorted(self.service.calls(), key=lambda entry: entry.monotonic)


def _every(seconds: float) -> Callable[[], bool]:
    """Give a question that is answered with yes once in so many seconds."""
    asked_at = time.monotonic()

    def ask() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < seconds:
            return False
        asked_at = time.monotonic()
        return True

    return ask


@contextmanager
def office(database: Database, folder: Path, *, workers: int = WORKERS) -> Iterator[Office]:
    """Start the service and the workers, and wait until they work."""
    books = build(database.url)
    with (
        Service(folder) as service,
        InvoiceCrew(database.url, folder, service.url, workers) as crew,
    ):
        try:
            crew.wait_until_at_work()
            yield Office(database, service, crew, books)
        finally:
            books.hold.close_sync()


@dataclass(frozen=True)
class Evidence:
    """All that the figures are made of."""

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


def run(room: Office, *, letters: int, canary: int = CANARY, pace: float = PACE) -> Evidence:
    """Have so many jobs fail, and replay them all under one plan while workers are killed."""
    began = time.monotonic()
    unreachable = max(1, round(letters * UNREACHABLE))
    jobs = room.bury(letters - unreachable, Answer(400)) + room.bury(unreachable, Answer(500))
    buried = time.monotonic()
    room.heal()
    before = len(room.calls())
    wanted = LetterFilter(name="invoice", limit=letters)
    token = room.plan(wanted, canary=canary, pace=pace)
    told = room.replay(token, killing=True)
    back = time.monotonic()
    return _evidence(
        room, jobs, before, canary=canary, phase=told.plan.phase, seconds=(buried - began, back - buried)
    )


def _evidence(
    room: Office, jobs: Sequence[str], before: int, *, canary: int, phase: Phase, seconds: tuple[float, float]
) -> Evidence:
    calls = room.calls()
    first = list(dict.fromkeys(map(job_of, calls[before:])))[:canary]
    ends = [room.books.hold.read_sync(job_id).finished_at for job_id in first]
    return Evidence(
        jobs,
        before,
        calls,
        room.letters(jobs),
        room.database.world(),
        canary,
        max(at.timestamp() for at in ends if at is not None),
        phase,
        room.kills,
        seconds,
    )


def figures(seen: Evidence) -> Figures:
    """Put what was seen beside what is wanted."""
    told, total = Figures(), len(seen.jobs)
    effects = seen.effects
    buried, back = seen.seconds
    damage = invariants.damage(seen.world, seen.calls, seen.jobs)
    told.exactly("jobs completed, as generation 2", len(seen.completed), total)
    told.exactly("completed twice", damage.double_completions, 0)
    told.exactly("letters verified, after one replay", len(seen.verified), total)
    told.exactly("finished stages run again", seen.drafted_again, 0)
    told.exactly("stages with one effect", sum(count == 1 for count in effects.values()), 2 * total)
    told.exactly("stages with more", sum(count > 1 for count in effects.values()), 0)
    told.at_most("most attempts of a stage", seen.most_attempts, BUDGET)
    told.exactly("jobs of the canary", len(seen.canaries), seen.canary)
    told.exactly("jobs that did not wait for it", len(seen.too_early), 0)
    told.tell("seconds until all had failed", buried)
    told.tell("seconds until all were back", back)
    told.tell("letters replayed a second", total / back)
    told.at_least("workers killed meanwhile", seen.kills, 1)
    told.tell(
        "calls repeated under the same key", sum(entry.duplicate_of is not None for entry in seen.later)
    )
    return told


def main() -> int:
    """Run it on one store; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    parser.add_argument("--letters", type=int, default=LETTERS, metavar="N", help="how many jobs fail first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-replays-") as name:
        folder = Path(name)
        with open_database(options.store, folder) as database, office(database, folder) as room:
            told = figures(run(room, letters=options.letters))
    told.show(f"{options.letters:,} dead letters are replayed, on {options.store}")
    return told.exit_code


if __name__ == "__main__":
    sys.exit(main())
