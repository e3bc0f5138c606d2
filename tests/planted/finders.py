"""Three finders of bugs: simulated lives, the walk over crash points, and the tests of a guarantee."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.crashpoints.every_scenario import SCENARIOS
from tests.crashpoints.walk import faults_at, play, play_each
from tests.planted.bugs import planted
from tests.simulation.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.crashpoints.planned_fault import PlannedFault
    from tests.crashpoints.walk import Outcome as Walked

FAULTS = 4
"""Faults in each scenario in one round of the walk."""

LONGEST = 600
"""Seconds after which a run of tests that a bug has brought to a halt is given up."""

ENOUGH = 3
"""Failed tests after which a guarantee is broken beyond doubt: some of them wait for long before they fail."""

_PYTEST = [
    *(sys.executable, "-m", "pytest", "-q", f"--maxfail={ENOUGH}"),
    *("-p", "tests.planted.plugin", "-p", "no:cacheprovider", "tests/contract"),
]


class Found(NamedTuple):
    """How a bug was found: after how many tries, where the last of them was, and which violation it showed."""

    tries: int
    where: str
    said: str


class Lived(NamedTuple):
    """The outcome of one simulated life."""

    seed: int
    digest: str
    said: str | None


def live(bug: str | None, seed: int) -> Lived:
    """Live through *seed*, with *bug* in the engine or without any."""
    if bug is None:
        outcome = simulate(seed)
    else:
        with planted(bug):
            outcome = simulate(seed)
    return Lived(seed, outcome.digest, outcome.violations[0] if outcome.violations else None)


def by_simulation(bug: str, seeds: Iterable[int]) -> Found | None:
    """Live through *seeds* one after another, until one shows the bug."""
    for tries, seed in enumerate(seeds, start=1):
        said = live(bug, seed).said
        if said is not None:
            return Found(tries, str(seed), said)
    return None


def by_scenario(bug: str, scenario: str) -> Found | None:
    """Play one scenario of the crash points, without any fault."""
    with planted(bug):
        walked = play(scenario, None)
    return Found(1, _place(walked), walked.violations[0]) if walked.violations else None


def by_crash_points(bug: str, *, rounds: int) -> Found | None:
    """Walk over crash points until one shows the bug, or all *rounds* have shown nothing."""
    with planted(bug):
        for tries, walked in enumerate(_walk(rounds), start=1):
            if walked.violations:
                return Found(tries, _place(walked), walked.violations[0])
    return None


def _walk(rounds: int) -> Iterator[Walked]:
    """Every scenario without a fault; then, round by round, a few faults in each, from anywhere in its story."""
    calm = {scenario: play(scenario, None) for scenario in SCENARIOS}
    yield from calm.values()
    faults = {scenario: _mixed(walked) for scenario, walked in calm.items()}
    for turn in range(rounds):
        for scenario, planned in faults.items():
            yield from play_each(scenario, planned[turn * FAULTS : (turn + 1) * FAULTS])


def _mixed(walked: Walked) -> list[PlannedFault]:
    faults = list(faults_at(walked.passed))
    random.Random(walked.scenario).shuffle(faults)
    return faults


def _place(walked: Walked) -> str:
    fault = "" if walked.planned is None else f", {walked.planned.fault} {walked.planned.spot}"
    return f"{walked.scenario}{fault}"


class Shown(NamedTuple):
    """The outcome of the tests of a guarantee."""

    failed: list[str]
    passed: int


def by_tests(bug: str | None, clause: str | None) -> Shown:
    """Run the tests of *clause*, or of all guarantees, with *bug* in the engine or without any."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "clauses.json"
        options = [f"--clauses={target}"]
        options += [f"--plant={bug}"] * (bug is not None) + [f"--shows={clause}"] * (clause is not None)
        done = subprocess.run(
            [*_PYTEST, *options], capture_output=True, text=True, check=False, timeout=LONGEST
        )
        if not target.exists():
            raise RuntimeError(
                f"the tests of {clause} did not run: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
            )
        tests = json.loads(target.read_text(encoding="utf-8"))["tests"]
    failed = [test["test"].rpartition("::")[2] for test in tests if test["outcome"] == "failed"]
    return Shown(failed, sum(test["outcome"] == "passed" for test in tests))
