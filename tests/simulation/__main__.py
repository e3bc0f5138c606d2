"""Live through many seeds, and print what came of it.

    python -m tests.simulation --seeds 200            many, from 1 on; one line of JSON last
    python -m tests.simulation --seed 17 --trace      one, with all that happened

The last line reports the seeds, the simulated hours, the faults by kind and the violations. A violation
prints its seed, the end of its trace and the command that replays it. Exit 1 if there was any, or if many seeds
brought about too few of the failures that services have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from tests.simulation.letter_jobs import HOOK_FAILURES
from tests.simulation.service_failures import LASTING, PASSING
from tests.simulation.simulated_archive import ARCHIVE_FAILURES
from tests.simulation.simulated_broker import BROKER_FAILURES
from tests.simulation.simulated_fleet import FLEET_FAILURES
from tests.simulation.simulation import Outcome, simulate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

EVERY_FAILURE = frozenset(
    {
        *(f"service: {failing.name}" for failing in (*PASSING, *LASTING)),
        *(f"archive: {name}" for name in ARCHIVE_FAILURES),
        *(f"hook: {name}" for name in HOOK_FAILURES),
        *(f"broker: {name}" for name in BROKER_FAILURES),
        *(f"fleet: {name}" for name in FLEET_FAILURES),
    }
)
"""How services, archive, hooks, brokers and fleets fail."""

ENOUGH = 200
"""Worlds in which nearly every one of these occurs."""

MOST_MISSING = 4
"""Some of them occur in one world of fifty: so many may be missing from that many worlds."""

SHOWN = 40
_JOB = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_OTHER = re.compile(rf"{_JOB.pattern}| committed \w+ [0-9a-f]{{4}}:")
"""What a line looks like that is about a job."""


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of texts depends on it, and with it what a seed brings about.
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})  # fmt: skip
    if options.seed is not None:
        return _one(options.seed, trace=options.trace)
    return _many(range(options.first, options.first + options.seeds))


def _one(seed: int, *, trace: bool) -> int:
    outcome = simulate(seed)
    if trace:
        _print(*outcome.trace)
    return _report([outcome])


def _many(seeds: range) -> int:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return _report(_short(outcome) for outcome in pool.map(simulate, seeds, chunksize=4))


def _short(outcome: Outcome) -> Outcome:
    if not outcome.violations:
        outcome.trace.clear()
    return outcome


def _report(outcomes: Iterable[Outcome]) -> int:
    faults: Counter[str] = Counter()
    seeds, seconds, jobs, violated = 0, 0.0, 0, []
    for outcome in outcomes:
        seeds += 1
        seconds += outcome.seconds
        jobs += outcome.jobs
        for name, number in outcome.injected.items():
            faults[_kind(name)] += number
        if outcome.violations:
            violated.append(outcome.seed)
            _print(*violation_lines(outcome))
    line = {
        "seeds": seeds,
        "simulated_hours": round(seconds / 3600, 2),
        "jobs": jobs,
        "faults": sum(faults.values()) - faults["lost hint"],  # they would outnumber all other faults
        "faults_by_kind": dict(faults.most_common()),
        "violations": len(violated),
        "violated_seeds": violated[:20],
    }
    if seeds == 1:
        line["trace"] = outcome.digest
    incomplete = too_many_missing(seeds, faults)
    if incomplete:
        _print(f"failures that never occurred: {', '.join(sorted(EVERY_FAILURE.difference(faults)))}")
    _print(json.dumps(line))
    return 1 if violated or incomplete else 0


def too_many_missing(seeds: int, happened: Collection[str]) -> bool:
    """Decide whether so many seeds should have brought about more kinds of failures than have *happened*."""
    return seeds >= ENOUGH and len(EVERY_FAILURE.difference(happened)) > MOST_MISSING


def _kind(name: str) -> str:
    """Leave out of a fault's name where it was injected."""
    return name.partition(" before ")[0].partition(" after ")[0]


def violation_lines(outcome: Outcome) -> Iterator[str]:
    """Report a violation: what it is, what led to it, how to see it again."""
    yield f"seed {outcome.seed} ({outcome.mode}): {outcome.violations[0]}"
    yield from _shortened(outcome.trace, _JOB.findall(outcome.violations[0]))[-SHOWN:]
    yield f"replay: make sim SEED={outcome.seed}"


def _shortened(trace: list[str], job_ids: list[str]) -> list[str]:
    """Leave out the lines of other jobs, and the processes that had nothing to do with these."""
    if not job_ids:
        return trace
    names = [name for job_id in job_ids for name in (job_id, f" {job_id[-4:]}:")]
    about = {line for line in trace if any(name in line for name in names)}
    processes = {_process(line) for line in about}
    return [
        line for line in trace if line in about or (_process(line) in processes and not _OTHER.search(line))
    ]


def _process(line: str) -> str:
    return line.split()[1]


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
