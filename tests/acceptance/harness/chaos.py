"""All faults at once while jobs are submitted; then each job must have ended exactly once.

    python -m tests.acceptance.harness.chaos --store postgres --minutes 5

kills and pauses workers, crashes PostgreSQL, breaks the network and moves clocks; with SQLite it fills the disk.
The last line that it prints is JSON: the faults injected, and the results. It exits with 0 when every invariant
held and, from five minutes on, recovery was fast enough and throughput high enough. The seed decides when each fault is
injected and into which process; the interleaving that follows is up to the machine.

Throughput is measured with ticks, jobs of 20 ms of which there is always a backlog: without faults, before and
after, and with faults, by the same workers in the same run. A tick only waits, and a worker has
few slots for them, so that without faults the slots are the bottleneck and not the machine: a dead worker costs
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
from tests.acceptance.harness.fault_injector import LEASE, FaultInjector
from tests.acceptance.harness.fault_plan import NETWORK, plan
from tests.acceptance.harness.polling import ticks, until
from tests.acceptance.harness.recovery import TickCount, drain, recover
from tests.acceptance.harness.testbed import Testbed, start_testbed
from tests.servers import in_ci

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN_WITHIN = 120.0
RECOVER_WITHIN = LEASE + 10
ENOUGH = 0.40
LONG = 300.0
"""Runs of at least this many seconds have the machine to themselves: recovery time and throughput are checked, too."""


@dataclass
class Report:
    """The faults and the results of a run. `fenced` counts writes that came under a lost lease."""

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
        """Record a failure if *claim* does not hold."""
        try:
            claim()
        except (AssertionError, TimeoutError) as broken:
            self.ok = False
            self.broken.append(str(broken))


def run_chaos(store: StoreName, *, seconds: float, seed: int, folder: Path) -> Report:
    """Run faults and checks; report which invariants held and which broke."""
    report = Report(store, seconds, seed)
    report.must(lambda: _run(report, folder))
    report.must(lambda: _check_report(report))
    return report


def _run(report: Report, folder: Path) -> None:
    with start_testbed(report.store, folder, seconds=report.seconds, seed=report.seed) as testbed:
        report.left_out = {str(kind): reason for kind, reason in testbed.left_out.items()}
        injector = FaultInjector(testbed.database, testbed.pool, random.Random(report.seed), testbed.routes)
        _inject_and_measure(report, testbed, injector)
        report.must(lambda: _recover(report, injector))
        injector.wait_until_healthy()
        _compare_with_calm(report, testbed)
        acknowledged = testbed.submitter.finish()
        report.must(lambda: _drain(report, testbed))
        report.must(lambda: _check(report, testbed, acknowledged))
        _count_log_lines(report, testbed)
        report.must(lambda: _stop_workers(testbed))


def _inject_and_measure(report: Report, testbed: Testbed, injector: FaultInjector) -> None:
    """Run without faults for some time, then carry out the plan, and count the ticks in both."""
    until(lambda: testbed.submitter.backlogs()[1:], within=30, what="the backlog")
    report.calm_before_per_second = _calm_rate(report, testbed)
    before = TickCount.now(testbed.database)
    faults = plan(report.store, report.seconds, injector.chance, without=testbed.left_out)
    injector.run(faults, seconds=report.seconds)
    report.faulty_per_second = TickCount.now(testbed.database).rate_since(before)
    report.faults = {str(kind): number for kind, number in injector.injected.items()}
    report.network_faults = sum(injector.injected[kind] for kind in NETWORK)


def _calm_rate(report: Report, testbed: Testbed) -> float:
    """Count ticks while no fault is active."""
    before = TickCount.now(testbed.database)
    for _ in ticks(min(20.0, report.seconds / 10)):
        testbed.pool.replace_dead()
    return TickCount.now(testbed.database).rate_since(before)


def _compare_with_calm(report: Report, testbed: Testbed) -> None:
    """Compare with the higher of the rates before and after: the machine may have had other work in one of them."""
    testbed.pool.wait_until_at_work()
    report.calm_after_per_second = _calm_rate(report, testbed)
    calm = max(report.calm_before_per_second, report.calm_after_per_second)
    report.throughput_ratio = round(report.faulty_per_second / calm, 3)
    report.least_backlog = min(testbed.submitter.backlogs()[1:])


def _recover(report: Report, injector: FaultInjector) -> None:
    recovery = recover(injector, within=10 * RECOVER_WITHIN)
    report.orphans, report.recovery_seconds = recovery.orphans, round(recovery.seconds, 1)


def _drain(report: Report, testbed: Testbed) -> None:
    report.drained_in = round(drain(testbed.database, testbed.pool, within=DRAIN_WITHIN), 1)


def _check(report: Report, testbed: Testbed, acknowledged: list[str]) -> None:
    world, calls = testbed.database.world(), testbed.service.calls()
    counts = count(calls)
    report.acknowledged = len(acknowledged)
    report.completed = len(world.with_status(Status.COMPLETED))
    report.calls, report.effects, report.replayed_answers = (
        counts.calls,
        counts.effects,
        counts.replayed_answers,
    )
    report.most_attempts = max(row["attempt"] for row in world.jobs)
    report.most_leases = max((row["lease_token"] + 1) // 2 for row in world.jobs)
    damage = invariants.damage(world, calls, acknowledged)
    report.lost, report.double_completions, report.keyed_duplicates = damage
    invariants.all_hold(world, calls, acknowledged=acknowledged, budget=BUDGET)


def _count_log_lines(report: Report, testbed: Testbed) -> None:
    pool = testbed.pool
    report.fenced = len(pool.lines("write fenced"))
    report.leases_lost = len(pool.lines("lease lost"))
    report.reclaimed = sum(line["jobs"] for line in pool.lines("jobs reclaimed"))


def _stop_workers(testbed: Testbed) -> None:
    """Check that no worker died of anything but an injected fault, and that all stop on SIGTERM."""
    deaths = testbed.pool.unexpected_deaths()
    assert not deaths, f"workers died without an injected fault: {deaths}"
    codes = testbed.pool.stop()
    assert not any(codes), f"workers ended with {codes}"


def _check_report(report: Report) -> None:
    if in_ci():
        assert not report.left_out, f"some faults cannot be injected here: {report.left_out}"
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
