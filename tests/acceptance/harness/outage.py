"""One of two providers is down for minutes, with thousands of jobs waiting: what that costs.

    python -m tests.acceptance.harness.outage --store postgres

runs two worker processes with eight slots each. First only `mail` is called; then `llm` goes down, and 10,000 jobs
are submitted, half for each provider, mixed; `llm` comes back, and its backlog is processed; and only `mail` is
called once more. It prints a table, writes a timeline into `build/outage-STORE.json`, from
which `tools/plot_outage.py` draws the picture in the docs, and exits with 1 if a bound is missed.
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
from tests.acceptance.harness.measurements import Measurements
from tests.acceptance.harness.provider_harness import SLOTS, ProviderHarness, provider_harness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast_simulator import Entry
    from tests.acceptance.harness.provider_harness import ProviderEvent

WORKERS = 2
CALL_SECONDS = 0.25
"""Long enough that slots, and not processors, are the bottleneck."""

CALM = 750
HELD = 5_000
BESIDE = 5_000
DOWN_FOR = 150.0
BETWEEN = timedelta(seconds=15)
"""Half a cooldown: by then all calls from before an opening have ended, and no trial has begun yet."""

TRIALS = 3
LOOK = 0.5


@dataclass
class Timeline:
    """What was done when, and samples of how many jobs were held."""

    calm: list[list[str]] = field(default_factory=list)
    llm: list[str] = field(default_factory=list)
    mail: list[str] = field(default_factory=list)
    down_at: datetime | None = None
    up_at: datetime | None = None
    held: list[tuple[datetime, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """The raw data of the measurements."""

    timeline: Timeline
    llm: Sequence[Entry]
    mail: Sequence[Entry]
    provider_events: Sequence[ProviderEvent]
    retries: int
    attempts: int
    completed: int
    released: Sequence[tuple[datetime, int]]

    @property
    def opened(self) -> list[datetime]:
        """When the breaker opened, the first time and each time that a trial failed."""
        return [event.at for event in self.provider_events if event.kind == "opened"]

    @property
    def closed(self) -> list[datetime]:
        """When it closed."""
        return [event.at for event in self.provider_events if event.kind == "closed"]

    @property
    def failed(self) -> list[datetime]:
        """When calls failed."""
        return [call.at for call in self.llm if call.fault]

    @property
    def before_trials(self) -> int:
        """How many calls failed before the breaker had opened, or were in flight then."""
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
        selected = set(jobs)
        began = [call.monotonic for call in self.mail if (call.key or "").partition(":")[0] in selected]
        return (len(began) - 1) / (began[-1] - began[0])


def run(harness: ProviderHarness) -> Evidence:
    """Run all phases."""
    timeline = Timeline()
    _calm(harness, timeline)
    _outage(harness, timeline)
    _recovery(harness, timeline)
    _calm(harness, timeline)
    return _evidence(harness, timeline)


def _calm(harness: ProviderHarness, timeline: Timeline) -> None:
    timeline.calm.append(harness.submit("mail", CALM))
    harness.wait_for_the_end(timeline.calm[-1], within=300)


def _outage(harness: ProviderHarness, timeline: Timeline) -> None:
    harness.inject("llm", DOWN)
    timeline.down_at = datetime.now(UTC)
    ends_at = time.monotonic() + DOWN_FOR
    for _ in range(50):  # mixed, so that each kind can block the other
        timeline.llm += harness.submit("llm", HELD // 50)
        timeline.mail += harness.submit("mail", BESIDE // 50)
    harness.wait(
        lambda: _look(harness, timeline) and time.monotonic() >= ends_at, "the end", within=DOWN_FOR + 60
    )
    harness.heal("llm")
    timeline.up_at = datetime.now(UTC)


def _recovery(harness: ProviderHarness, timeline: Timeline) -> None:
    left = set(timeline.llm + timeline.mail)
    harness.wait(
        lambda: _look(harness, timeline) and not left & harness.database.live().keys(),
        "the backlog",
        within=600,
    )


def _look(harness: ProviderHarness, timeline: Timeline) -> bool:
    """Sample how many jobs are held, every `LOOK` seconds."""
    now = datetime.now(UTC)
    if not timeline.held or (now - timeline.held[-1][0]).total_seconds() >= LOOK:
        timeline.held.append((now, harness.status("llm").held))
    return True


def _evidence(harness: ProviderHarness, timeline: Timeline) -> Evidence:
    world, llm = harness.world(), set(timeline.llm)
    attempts = [row["attempt"] for row in world.stages if row["id"] in llm]
    lines = [line for line in harness.pool.lines("held jobs released") if line["provider"] == "llm"]
    released = sorted((datetime.fromisoformat(line["timestamp"]), line["jobs"]) for line in lines)
    return Evidence(
        timeline,
        harness.calls("llm"),
        harness.calls("mail"),
        harness.provider_events("llm"),
        retries=sum(row["kind"] == "retry" and row["id"] in llm for row in world.events),
        attempts=sum(attempts),
        completed=len(world.with_status(Status.COMPLETED)),
        released=released,
    )


def measurements(seen: Evidence) -> Measurements:
    """Compare the evidence with the bounds."""
    measured, slots = Measurements(), WORKERS * SLOTS
    total = 2 * CALM + HELD + BESIDE
    calm = [seen.rate(jobs) for jobs in seen.timeline.calm]
    beside = seen.rate(seen.timeline.mail)
    measured.exactly("jobs completed", seen.completed, total)
    measured.at_most(
        "calls to the failing provider before its breaker opened", seen.before_trials, 11 + 2 * slots
    )
    measured.record("cooldowns with a trial that failed", len(seen.trials))
    measured.at_least("fewest trials after a cooldown", min(seen.trials), 1)
    measured.at_most("most trials after a cooldown", max(seen.trials), TRIALS)
    measured.exactly("attempts spent while open", seen.retries - seen.before_trials, 0)
    measured.exactly("attempts, beside jobs and calls that failed before", seen.attempts, HELD + seen.retries)
    measured.record("the other provider's calls a second, calm", " and ".join(f"{rate:.1f}" for rate in calm))
    measured.record("the other provider's calls a second, beside", beside)
    measured.at_least("of its calm rate", beside / (sum(calm) / len(calm)), 0.9)
    measured.exactly("openings after recovery", sum(at > seen.closed[0] for at in seen.opened), 0)
    measured.record("most jobs held", max(held for _, held in seen.timeline.held))
    measured.record("seconds from recovery to closing", _between(seen.timeline.up_at, seen.closed[0]))
    measured.record(
        "steps of the release", " ".join(str(jobs) for at, jobs in seen.released if at >= seen.closed[0])
    )
    measured.record("seconds from closing to the last call", _between(seen.closed[0], seen.llm[-1].at))
    return measured


def _between(one: datetime | None, other: datetime) -> float:
    assert one is not None
    return (other - one).total_seconds()


def timeline_of(seen: Evidence, store: str) -> dict[str, object]:
    """Return what happened when, in seconds since the provider went down, for `tools/plot_outage.py`."""

    def since(at: datetime | None) -> float:
        assert seen.timeline.down_at is not None
        assert at is not None
        return round((at - seen.timeline.down_at).total_seconds(), 3)

    def by_second(calls: Sequence[Entry]) -> list[tuple[int, int]]:
        return sorted(Counter(int(since(call.at) // 1) for call in calls).items())

    return {
        "store": store,
        "up_at": since(seen.timeline.up_at),
        "opened": [since(at) for at in seen.opened],
        "closed": [since(at) for at in seen.closed],
        "failed_calls": by_second([call for call in seen.llm if call.fault]),
        "good_calls": by_second([call for call in seen.llm if not call.fault]),
        "other_calls": by_second(seen.mail),
        "held": [(since(at), held) for at, held in seen.timeline.held],
        "released": [(since(at), jobs) for at, jobs in seen.released],
    }


def main() -> int:
    """Run it on one store; exit with 1 if a bound is missed."""
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
            provider_harness(database, folder, workers=WORKERS, environment=environment) as harness,
        ):
            seen = run(harness)
    output = options.output or Path(f"build/outage-{options.store}.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(timeline_of(seen, options.store)) + "\n")
    measured = measurements(seen)
    measured.show(f"A provider is down for {DOWN_FOR:g} s, on {options.store}")
    return measured.exit_code


if __name__ == "__main__":
    sys.exit(main())
