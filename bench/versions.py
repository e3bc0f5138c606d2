"""Measure two checkouts of Holdfast in turn, and print how the present one compares.

    git worktree add /tmp/before HEAD~20
    python -m bench.versions /tmp/before --only drain,pickup,submit --rounds 5

Each round measures every case twice, once with each checkout, and the order alternates. A ratio above 1 means that the
present checkout is faster. The first is the median of the rounds' ratios, the second compares the best round of each: on a
machine that others use, too, whatever disturbs a measurement only makes it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import STORES
from bench.plan import FULL, QUICK, chosen
from bench.servers import Databases

if TYPE_CHECKING:
    from bench.case import Case

HERE = Path(__file__).parent.parent
TIMEOUT_SECONDS = 240


def main() -> int:
    options = _options()
    plan = chosen(
        QUICK if options.quick else FULL, only=options.only, stores=options.store, engines=["holdfast"]
    )
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with Databases({case.store for case in plan}) as databases:
        for number in range(options.rounds):
            for case in plan:
                order = (options.before, HERE) if number % 2 == 0 else (HERE, options.before)
                took = {place: _seconds_per_job(case, place, databases) for place in order}
                seconds[" ".join(case.key)].append((took[options.before], took[HERE]))
                ratio = took[options.before] / took[HERE]
                print(f"{number + 1}/{options.rounds}  {' '.join(case.key)}: {ratio:.2f}", file=sys.stderr)
    for name, pairs in seconds.items():
        ratios = [before / here for before, here in pairs]
        best = min(before for before, _ in pairs) / min(here for _, here in pairs)
        print(
            f"{name:<45} {statistics.median(ratios):.3f}  best {best:.3f}  ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versions", description="Compare two checkouts of Holdfast."
    )
    parser.add_argument("before", type=lambda text: Path(text).resolve(), help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["drain", "pickup", "submit"])
    parser.add_argument("--store", type=lambda text: text.split(","), default=list(STORES))
    return parser.parse_args()


def _seconds_per_job(case: Case, checkout: Path, databases: Databases) -> float:
    with databases.fresh(case.store) as url:
        size = ["--size", str(case.size)] if case.size else []
        command = [sys.executable, "-m", "bench.measure", case.engine, case.measure, "--jobs", str(case.jobs),
                   *size, "--variant", case.variant, "--store", case.store, "--url", url]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
        )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    return 1 / result["per_second"] if "per_second" in result else result["p50_ms"] / 1_000


if __name__ == "__main__":
    sys.exit(main())
