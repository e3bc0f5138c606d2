"""One of two providers is down for minutes, with thousands of jobs waiting: what that costs, in figures.

    python -m tests.acceptance.harness.outage --store postgres

runs two worker processes with eight slots each. First the provider `mail` is called alone; then `llm` goes down, and
10,000 jobs come in, for one as many as for the other, mixed; `llm` comes back, and its backlog goes out; and `mail` is
called alone once more. It prints a table, writes what happened when into `build/outage-STORE.json`, from
which `tools/plot_outage.py` draws the picture in the docs, and exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from holdfast import Status
from holdfast_simulator import DOWN
from tests.acceptance.harness.databases import StoreName, open_database
from tests.acceptance.harness.figures import Figures
from tests.acceptance.harness.switchboard import SLOTS, Switchboard, switchboard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast_simulator import Entry
    from tests.acceptance.harness.switchboard import Happening

WORKERS = 2
CALL_SECONDS = 0.25
"""So long that slots, and not the processors, are what there is too little of."""

CALM = 750
HELD = 5_000
BESIDE = 5_000
DOWN_FOR = 150.0
BETWEEN = timedelta(seconds=15)
"""Half a cooldown: so long after an opening nobody is under way any more, and no trial has begun yet."""

TRIALS = 3
LOOK = 0.5


@dataclass
class Course:
    """What was done when, and how many jobs were held, each time somebody looked."""

    calm: list[list[str]] = field(default_factory=list)
    llm: list[str] = field(default_factory=list)
    mail: list[str] = field(default_factory=list)
    down_at: datetime | None = None
    up_at: datetime | None = None
    held: list[tuple[datetime, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """All that the figures are made of."""

    course: Course
    llm: Sequence[Entry]
    mail: Sequence[Entry]
    happenings: Sequence[Happening]
    retries: int
    attempts: int
    completed: int
    released: Sequence[tuple[datetime, int]]

    @property
    def opened(self) -> list[datetime]:
        """When the breaker opened, the first time and each time that a trial failed."""
        return [told.at for told in self.happenings if told.kind == "opened"]

    @property
    def closed(self) -> list[datetime]:
        """When it closed."""
        return [told.at for told in self.happenings if told.kind == "closed"]

    @property
    def failed(self) -> list[datetime]:
        """When calls failed."""
        return [call.at for call in self.llm if call.fault]

    @property
    def before_trials(self) -> int:
        """How many calls failed before the breaker had opened, or were under way then."""
        return sum(at < self.opened[0] + BETWEEN for at in self.failed)

    @property
    def trials(self) -> list[int]:
        """How many trials failed after each cooldown."""
        return [
            sum(one + BETWEEN <= at < next_ + BETWEEN for at in self.failed)
            for one, next_ in pairwise(self.opened)
        ]

    def rate(self, jobs: Sequence[str]) -> float:
        """Calls a second, of these jobs."""
        wanted = set(jobs)
        began = [call.monotonic for call in self.mail if (call.key or "").partition(":")[0] in wanted]
        return (len(began) - 1) / (began[-1] - began[0])


def run(board: Switchboard) -> Evidence:
    """Let it all happen."""
    course = Course()
    _calm(board, course)
    _outage(board, course)
    _recovery(board, course)
    _calm(board, course)
    return _evidence(board, course)


def _calm(board: Switchboard, course: Course) -> None:
    course.calm.append(board.submit("mail", CALM))
    board.wait_for_the_end(course.calm[-1], within=300)


def _outage(board: Switchboard, course: Course) -> None:
    board.strike("llm", DOWN)
    course.down_at = datetime.now(UTC)
    ends_at = time.monotonic() + DOWN_FOR
    for _ in range(50):  # mixed, so that each kind stands in the other's way if it can
        course.llm += board.submit("llm", HELD // 50)
        course.mail += board.submit("mail", BESIDE // 50)
    board.wait(lambda: _look(board, course) and time.monotonic() >= ends_at, "the end", within=DOWN_FOR + 60)
    board.heal("llm")
    course.up_at = datetime.now(UTC)


def _recovery(board: Switchboard, course: Course) -> None:
    left = set(course.llm + course.mail)
    board.wait(
        lambda: _look(board, course) and not left & board.database.live().keys(), "the backlog", within=600
    )


def _look(board: Switchboard, course: Course) -> bool:
    """Note how many jobs are held, now and then."""
    now = datetime.now(UTC)
    if not course.held or (now - course.held[-1][0]).total_seconds() >= LOOK:
        course.held.append((now, board.status("llm").held))
    return True


def _evidence(board: Switchboard, course: Course) -> Evidence:
    world, llm = board.world(), set(course.llm)
    attempts = [row["attempt"] for row in world.stages if row["id"] in llm]
    lines = [line for line in board.crew.lines("held jobs released") if line["provider"] == "llm"]
    released = sorted((datetime.fromisoformat(line["timestamp"]), line["jobs"]) for line in lines)
    return Evidence(
        course,
        board.calls("llm"),
        board.calls("mail"),
        board.happenings("llm"),
        retries=sum(row["kind"] == "retry" and row["id"] in llm for row in world.events),
        attempts=sum(attempts),
        completed=len(world.with_status(Status.COMPLETED)),
        released=released,
    )


def figures(seen: Evidence) -> Figures:
    """Put what was seen beside what is wanted."""
    told, slots = Figures(), WORKERS * SLOTS
    total = 2 * CALM + HELD + BESIDE
    calm = [seen.rate(jobs) for jobs in seen.course.calm]
    beside = seen.rate(seen.course.mail)
    told.exactly("jobs completed", seen.completed, total)
    told.at_most("calls to the sick provider before it was open", seen.before_trials, 11 + 2 * slots)
    told.tell("cooldowns with a trial that failed", len(seen.trials))
    told.at_least("fewest trials after a cooldown", min(seen.trials), 1)
    told.at_most("most trials after a cooldown", max(seen.trials), TRIALS)
    told.exactly("attempts spent while open", seen.retries - seen.before_trials, 0)
    told.exactly("attempts, beside jobs and calls that failed before", seen.attempts, HELD + seen.retries)
    told.tell("the other provider's calls a second, calm", " and ".join(f"{rate:.1f}" for rate in calm))
    told.tell("the other provider's calls a second, beside", beside)
    told.at_least("of its calm rate", beside / (sum(calm) / len(calm)), 0.9)
    told.exactly("openings after recovery", sum(at > seen.closed[0] for at in seen.opened), 0)
    told.tell("most jobs held", max(held for _, held in seen.course.held))
    told.tell("seconds from recovery to closing", _between(seen.course.up_at, seen.closed[0]))
    told.tell(
        "steps of the release", " ".join(str(jobs) for at, jobs in seen.released if at >= seen.closed[0])
    )
    told.tell("seconds from closing to the last call", _between(seen.closed[0], seen.llm[-1].at))
    return told


def _between(one: datetime | None, other: datetime) -> float:
    assert one is not None
    return (other - one).total_seconds()


def course_of(seen: Evidence, store: str) -> dict[str, object]:
    """Tell what happened when, in seconds since the provider went down, for whoever draws it."""

    def since(at: datetime | None) -> float:
        assert seen.course.down_at is not None
        assert at is not None
        return round((at - seen.course.down_at).total_seconds(), 3)

    def by_second(calls: Sequence[Entry]) -> list[tuple[int, int]]:
        return sorted(Counter(int(since(call.at) // 1) for call in calls).items())

    return {
        "store": store,
        "up_at": since(seen.course.up_at),
        "opened": [since(at) for at in seen.opened],
        "closed": [since(at) for at in seen.closed],
        "failed_calls": by_second([call for call in seen.llm if call.fault]),
        "good_calls": by_second([call for call in seen.llm if not call.fault]),
        "other_calls": by_second(seen.mail),
        "held": [(since(at), held) for at, held in seen.course.held],
        "released": [(since(at), jobs) for at, jobs in seen.released],
    }


def main() -> int:
    """Run it on one store; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    parser.add_argument("--output", type=Path, help="build/outage-STORE.json if left out")
    options = parser.parse_args()
    environment = {"CALL_SECONDS": str(CALL_SECONDS)}
    with tempfile.TemporaryDirectory(prefix="holdfast-outage-") as name:
        folder = Path(name)
        with (
            open_database(options.store, folder) as database,
            switchboard(database, folder, workers=WORKERS, environment=environment) as board,
        ):
            seen = run(board)
    output = options.output or Path(f"build/outage-{options.store}.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(course_of(seen, options.store)) + "\n")
    told = figures(seen)
    told.show(f"A provider is down for {DOWN_FOR:g} s, on {options.store}")
    return told.exit_code


if __name__ == "__main__":
    sys.exit(main())
