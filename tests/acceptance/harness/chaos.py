"""Everything goes wrong at once while jobs come in; then all of them must have come to their end, once.

    python -m tests.acceptance.harness.chaos --store postgres --minutes 5

kills and pauses workers, crashes PostgreSQL, breaks the network and moves clocks; with SQLite it fills the disk.
The last line that it prints is JSON: what was done, and what came of it. It exits with 0 when every invariant
held and, from five minutes on, recovery came in time and enough got done. The seed decides when each blow falls
and whom it hits; what the machine makes of it is its own affair.

How much gets done is measured with ticks, jobs of 20 ms of which there is always a backlog: while nothing is wrong,
before and after, and while everything is, by the same workers in the same run. A tick only waits, and a worker has
few slots for them, so that in calm times the slots are the limit and not the machine: a worker that is dead costs
its whole share. Orders and parcels, which run beside them, call a service that keeps a log.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from holdfast import Status
from holdfast_simulator import count
from tests import invariants
from tests.acceptance.harness.app import BUDGET
from tests.acceptance.harness.databases import StoreName
from tests.acceptance.harness.driver import LEASE, Driver
from tests.acceptance.harness.measuring import Mark, drain, recover
from tests.acceptance.harness.pacing import ticks, until
from tests.acceptance.harness.plans import NETWORK, plan
from tests.acceptance.harness.scene import Scene, set_up
from tests.servers import in_ci

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN_WITHIN = 120.0
RECOVER_WITHIN = LEASE + 10
ENOUGH = 0.40
LONG = 300.0
"""Runs of at least this many seconds have the machine to themselves: speed and throughput are judged, too."""


@dataclass
class Report:
    """What a run did, and what came of it. `fenced` counts writes that came under a lost lease."""

    store: StoreName
    seconds: float
    seed: int
    ok: bool = True
    broken: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    network_faults: int = 0
    lost: int = 0
    double_completions: int = 0
    keyed_duplicates: int = 0
    acknowledged: int = 0
    completed: int = 0
    calls: int = 0
    effects: int = 0
    replayed_answers: int = 0
    fenced: int = 0
    leases_lost: int = 0
    reclaimed: int = 0
    most_attempts: int = 0
    most_leases: int = 0
    calm_before_per_second: float = 0.0
    calm_after_per_second: float = 0.0
    faulty_per_second: float = 0.0
    throughput_ratio: float = 0.0
    least_backlog: int = 0
    orphans: int = 0
    recovery_seconds: float = 0.0
    drained_in: float = 0.0

    def must(self, claim: Callable[[], Any]) -> None:
        """Take note if *claim* does not hold."""
        try:
            claim()
        except (AssertionError, TimeoutError) as broken:
            self.ok = False
            self.broken.append(str(broken))


def run_chaos(store: StoreName, *, seconds: float, seed: int, folder: Path) -> Report:
    """Run it all, and report what held and what broke."""
    report = Report(store, seconds, seed)
    report.must(lambda: _run(report, folder))
    report.must(lambda: _judge(report))
    return report


def _run(report: Report, folder: Path) -> None:
    with set_up(report.store, folder, seconds=report.seconds, seed=report.seed) as scene:
        report.left_out = {str(kind): reason for kind, reason in scene.left_out.items()}
        driver = Driver(scene.database, scene.crew, random.Random(report.seed), scene.routes)
        _strike_and_measure(report, scene, driver)
        report.must(lambda: _recover(report, driver))
        driver.let_go()
        _compare_with_calm(report, scene)
        acknowledged = scene.submitter.finish()
        report.must(lambda: _drain(report, scene))
        report.must(lambda: _check(report, scene, acknowledged))
        _count_log_lines(report, scene)
        report.must(lambda: _dismiss(scene))


def _strike_and_measure(report: Report, scene: Scene, driver: Driver) -> None:
    """Let some time pass in peace, then carry out the plan, and count the ticks in both."""
    until(lambda: scene.submitter.backlogs()[1:], within=30, what="the backlog to be there")
    report.calm_before_per_second = _calm_rate(report, scene)
    before = Mark.now(scene.database)
    blows = plan(report.store, report.seconds, driver.chance, without=scene.left_out)
    driver.run(blows, seconds=report.seconds)
    report.faulty_per_second = Mark.now(scene.database).rate_since(before)
    report.faults = {str(kind): number for kind, number in driver.struck.items()}
    report.network_faults = sum(driver.struck[kind] for kind in NETWORK)


def _calm_rate(report: Report, scene: Scene) -> float:
    """Count ticks while nothing is wrong."""
    before = Mark.now(scene.database)
    for _ in ticks(min(20.0, report.seconds / 10)):
        scene.crew.tend()
    return Mark.now(scene.database).rate_since(before)


def _compare_with_calm(report: Report, scene: Scene) -> None:
    """Take the better of the calm times before and after: the machine may have had other work in one of them."""
    scene.crew.wait_until_at_work()
    report.calm_after_per_second = _calm_rate(report, scene)
    calm = max(report.calm_before_per_second, report.calm_after_per_second)
    report.throughput_ratio = round(report.faulty_per_second / calm, 3)
    report.least_backlog = min(scene.submitter.backlogs()[1:])


def _recover(report: Report, driver: Driver) -> None:
    recovery = recover(driver, within=10 * RECOVER_WITHIN)
    report.orphans, report.recovery_seconds = recovery.orphans, round(recovery.seconds, 1)


def _drain(report: Report, scene: Scene) -> None:
    report.drained_in = round(drain(scene.database, scene.crew, within=DRAIN_WITHIN), 1)


def _check(report: Report, scene: Scene, acknowledged: list[str]) -> None:
    world, calls = scene.database.world(), scene.service.calls()
    told = count(calls)
    report.acknowledged = len(acknowledged)
    report.completed = len(world.with_status(Status.COMPLETED))
    report.calls, report.effects, report.replayed_answers = told.calls, told.effects, told.replayed_answers
    report.most_attempts = max(row["attempt"] for row in world.jobs)
    report.most_leases = max((row["lease_token"] + 1) // 2 for row in world.jobs)
    damage = invariants.damage(world, calls, acknowledged)
    report.lost, report.double_completions, report.keyed_duplicates = damage
    invariants.all_hold(world, calls, acknowledged=acknowledged, budget=BUDGET)


def _count_log_lines(report: Report, scene: Scene) -> None:
    crew = scene.crew
    report.fenced = len(crew.lines("write fenced"))
    report.leases_lost = len(crew.lines("lease lost"))
    report.reclaimed = sum(line["jobs"] for line in crew.lines("jobs reclaimed"))


def _dismiss(scene: Scene) -> None:
    """See that nobody died of anything but the driver, and that all leave when they are asked to."""
    deaths = scene.crew.deaths_by_themselves()
    assert not deaths, f"workers died by themselves: {deaths}"
    codes = scene.crew.dismiss()
    assert not any(codes), f"workers ended with {codes}"


def _judge(report: Report) -> None:
    if in_ci():
        assert not report.left_out, f"not everything could be broken here: {report.left_out}"
    if report.seconds >= LONG:
        assert report.recovery_seconds <= RECOVER_WITHIN, (
            f"recovery took {report.recovery_seconds:.1f} s, {RECOVER_WITHIN:g} s are allowed"
        )
        assert report.throughput_ratio >= ENOUGH, (
            f"{report.throughput_ratio:.2f} of the calm throughput was left, {ENOUGH:.2f} is enough"
        )


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=1)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    seconds = options.minutes * 60 if options.seconds is None else options.seconds
    report = run_chaos(options.store, seconds=seconds, seed=options.seed, folder=folder)
    for kind, reason in report.left_out.items():
        sys.stderr.write(f"Left out: {kind}: {reason}\n")
    if report.ok:
        shutil.rmtree(folder)
    else:
        sys.stderr.write(f"The logs are in {folder}\n")
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
