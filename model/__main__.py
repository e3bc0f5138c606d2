"""Check every variant of the model, and print the verdict on each promise. Exit code 0: all as expected."""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from model.checker import CheckerFailedError, Outcome, check, get_ready
from model.variants import SECTIONS, VARIANTS, Verdict
from tools.debian import NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main() -> int:
    """Run everything and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    parser.add_argument("--stories", action="store_true", help="print each counter-example step by step")
    parser.add_argument(
        "--faults", type=int, metavar="N", help="number of faults, where a variant does not fix it"
    )
    options = parser.parse_args()
    try:
        get_ready()
        outcomes = check_all(faults=options.faults)
    except (NotInstalledError, CheckerFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    for line in report(outcomes, stories=options.stories):
        print(line)
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def check_all(*, faults: int | None = None) -> list[Outcome]:
    """Check all variants, as many at a time as there are processors; in their order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(check, [variant.with_faults(faults) for variant in VARIANTS]))


def report(outcomes: Sequence[Outcome], *, stories: bool = False) -> Iterator[str]:
    """Yield the lines of the report: a table, then one line of JSON."""
    of = dict(zip(VARIANTS, outcomes, strict=True))
    for title, variants in SECTIONS.items():
        yield f"\n{title}"
        for variant in variants:
            yield from _rows(of[variant])
            if stories:
                yield from (f"        {step}" for step in of[variant].story)
    yield ""
    yield json.dumps(summary(outcomes))


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Count what was found, and name what was not expected."""
    return {
        "runs": len(outcomes),
        "hold": sum(outcome.verdict is Verdict.HOLDS for outcome in outcomes),
        "counter_examples": sum(outcome.verdict is Verdict.BROKEN for outcome in outcomes),
        "unexpected": [outcome.variant.name for outcome in outcomes if not outcome.as_expected],
        "states": sum(outcome.states for outcome in outcomes),
    }


def _rows(outcome: Outcome) -> Iterator[str]:
    """Yield a line for each promise: the variant, the promise, the verdict, and the states of that search."""
    name, states = outcome.variant.name, f"{outcome.states:,}"
    surprise = "" if outcome.as_expected else "   NOT EXPECTED"
    for promise in outcome.variant.promises:
        yield f"  {name:<52} {promise.value:<49} {outcome.verdict:<15} {states:>9}{surprise}"
        name, states = "", ""


if __name__ == "__main__":
    sys.exit(main())
