"""Walk over every crash point: inject a fault at each call of each scenario to the outside, and recover.

    python -m tests.crashpoints                        the whole walk; one line of JSON last
    python -m tests.crashpoints --turn 1               an eighth of it: one fault at each call, the kinds in rotation
    python -m tests.crashpoints --turn 1 --every 9 --offset 4
                                                       of that, every ninth call of each scenario, from the fifth on
    python -m tests.crashpoints --scenario stages      one scenario; --call, --fault and --moment narrow it further
    python -m tests.crashpoints --scenario stages --call 17 --fault crash --moment before --trace

A call has a number, in the order in which the victim makes its calls without a fault. Every fault is
injected at each call, before it did anything and after it did all of it; the turns 1 to 8 divide that
walk. The last line counts the scenarios, the calls, the runs, and the runs that broke a
promise; exit 1 if any did.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tests.crashpoints.every_scenario import SCENARIOS
from tests.crashpoints.planned_fault import FAULTS, PlannedFault
from tests.crashpoints.walk import TURNS, Outcome, faults_at, faults_in_turn, play, play_each
from tests.simulation.processes import Moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOGETHER = 32
SHOWN = 40
LEAD = 5
"""Lines of a trace that are shown from before the fault."""


class Batch(NamedTuple):
    """Some runs of one scenario, for one process."""

    scenario: str
    faults: list[PlannedFault]
    with_trace: bool


def main() -> int:
    """Run from the command line."""
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of texts depends on it, and with it the order of the victim's calls.
        os.execve(sys.executable, [sys.executable, "-m", "tests.crashpoints", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})  # fmt: skip
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        calm = list(pool.map(play, [options.scenario] if options.scenario else SCENARIOS))
        batches = [batch for outcome in calm for batch in _batches(outcome, options)]
        faulty = (outcome for outcomes in pool.map(_play_batch, batches) for outcome in outcomes)
        return _report(calm, faulty, whole=options.trace)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--call", type=int)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--moment", choices=list(Moment))
    parser.add_argument("--turn", type=int, choices=range(1, 1 + TURNS))
    parser.add_argument("--every", type=int, default=1, help="of the faults of each scenario, one in so many")
    parser.add_argument(
        "--offset", type=int, default=0, help="how many faults come before the first of these"
    )
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    return parser.parse_args()


def _batches(calm: Outcome, options: argparse.Namespace) -> Iterator[Batch]:
    """Divide the faults that a scenario calls for, or those of them that the options select."""
    faults = faults_at(calm.passed) if options.turn is None else faults_in_turn(calm.passed, options.turn)
    selected = [
        planned
        for planned in faults
        if options.call in (None, planned.spot.call)
        and options.fault in (None, planned.fault)
        and options.moment in (None, planned.spot.moment)
    ]
    selected = selected[options.offset :: options.every]
    for start in range(0, len(selected), TOGETHER):
        yield Batch(calm.scenario, selected[start : start + TOGETHER], options.trace)


def _play_batch(batch: Batch) -> list[Outcome]:
    outcomes = play_each(batch.scenario, batch.faults)
    for outcome in outcomes:
        if not outcome.violations and not batch.with_trace:
            outcome.trace.clear()  # it would only be carried from process to process
    return outcomes


def _report(calm: list[Outcome], faulty: Iterable[Outcome], *, whole: bool) -> int:
    runs, violated = 0, 0
    for outcome in chain(calm, faulty):
        runs += 1
        violated += bool(outcome.violations)
        _print(*_render(outcome, whole=whole and outcome.planned is not None))
    spots = [(outcome.scenario, spot) for outcome in calm for spot in outcome.passed]
    calls = {(scenario, spot.call): spot.point for scenario, spot in spots}
    line = {
        "scenarios": len(calm),
        "port_calls": len(calls),
        "moments": len(spots),
        "runs": runs,
        "violations": violated,
        "calls_by_port": dict(Counter(calls.values()).most_common()),
    }
    _print(json.dumps(line))
    return 1 if violated else 0


def _render(outcome: Outcome, *, whole: bool) -> Iterator[str]:
    """Render a run: with *whole* its trace; what was broken, what led to it, how to see it again."""
    if whole:
        yield from outcome.trace
    if outcome.violations:
        yield f"{outcome.scenario}, {_fault(outcome)}: {outcome.violations[0]}"
        if not whole:
            yield from _shortened(outcome)
        yield f"replay: python -m tests.crashpoints --scenario {outcome.scenario}{_choice(outcome)} --trace"


def _fault(outcome: Outcome) -> str:
    return "without a fault" if outcome.planned is None else f"{outcome.planned.fault} {outcome.planned.spot}"


def _choice(outcome: Outcome) -> str:
    if outcome.planned is None:
        return ""
    spot, fault = outcome.planned
    return f" --call {spot.call} --fault {fault} --moment {spot.moment}"


def _shortened(outcome: Outcome) -> list[str]:
    """The trace from shortly before the fault."""
    injected = [place for place, line in enumerate(outcome.trace) if _fault(outcome) in line]
    start = max(0, injected[0] - LEAD) if injected else 0
    return outcome.trace[start : start + SHOWN]


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
