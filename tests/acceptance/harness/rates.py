"""A rate over four worker processes, one of which is killed: how well it is kept, and how much of it is used.

    python -m tests.acceptance.harness.rates --store postgres

prints a table, and exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from holdfast.core.providers.limits import LEASE
from tests.acceptance.harness.databases import StoreName, open_database
from tests.acceptance.harness.measurements import Measurements
from tests.acceptance.harness.provider_harness import ProviderHarness, provider_harness

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE = 50
WORKERS = 4
SECONDS = 30.0
MOST = 55
ENOUGH = 0.9
WARM_UP = 200


def run(harness: ProviderHarness) -> tuple[list[float], float]:
    """Run for `SECONDS`, and kill a worker halfway; return when each call arrived, and when the worker died."""
    # The first call of a process takes long enough for others to catch up with it: the client is loaded, and connects.
    harness.wait_for_the_end(harness.submit("mail", WARM_UP))
    harness.submit("metered", round(1.5 * RATE * SECONDS))
    harness.wait(lambda: bool(harness.calls("metered")), "the first call")
    first = harness.calls("metered")[0].monotonic
    harness.wait(lambda: time.monotonic() >= first + SECONDS / 2, "half of the time")
    harness.pool.members[0].kill()
    killed_at = time.monotonic() - first
    harness.wait(lambda: time.monotonic() >= first + SECONDS, "the end")
    arrivals = [call.monotonic - first for call in harness.calls("metered")]
    return [at for at in arrivals if at < SECONDS], killed_at


def within(arrivals: Sequence[float], start: float, length: float = 1.0) -> int:
    """Count the calls in the *length* seconds from *start*."""
    return bisect_left(arrivals, start + length) - bisect_left(arrivals, start)


def measurements(arrivals: Sequence[float], killed_at: float) -> Measurements:
    """Compare the evidence with the bounds."""
    measured = Measurements()
    after = [at for at in arrivals if at > killed_at and within(arrivals, at) >= ENOUGH * RATE]
    measured.at_most("most calls in any second", max(within(arrivals, at) for at in arrivals), MOST)
    measured.at_least("of the allowance used", len(arrivals) / (RATE * SECONDS), ENOUGH)
    measured.record("calls in the second after the kill", within(arrivals, killed_at))
    measured.at_most(
        "seconds from the kill to the whole rate", min(after, default=SECONDS) - killed_at, LEASE
    )
    measured.record("longest gap between two calls", max(later - at for at, later in pairwise(arrivals)))
    return measured


def main() -> int:
    """Run it on one store; exit with 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-rates-") as name:
        folder = Path(name)
        with (
            open_database(options.store, folder) as database,
            provider_harness(database, folder, workers=WORKERS, environment={"RATE": f"{RATE}/s"}) as harness,
        ):
            measured = measurements(*run(harness))
    measured.show(f"{RATE} calls a second over {WORKERS} processes, on {options.store}")
    return measured.exit_code


if __name__ == "__main__":
    sys.exit(main())
