"""Compares the page of guarantees with the tests that show them.

Reads the tables of `docs/reference/guarantees.md` and what the last test run noted in `build/clauses.json`, prints
one line for each guarantee, writes `build/conformance.json`, and exits with 1 when the page claims more than the
tests show: a promise without a passing test, a failing test, a mark whose id the page does not have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

Status = Literal["shown", "partial", "open", "failing"]

STORES = ("sqlite", "postgres")

ON_EVERY_STORE = ("JOB", "STG", "IDM", "OUT", "BRK", "DLQ", "OPS", "FAIL-3", "FAIL-4", "RET-7")
"""The groups, and single promises, that hold on each store, and must be shown on each."""

ROW = re.compile(r"^\|\s*(?P<id>[A-Z]+-\d+)\s*\|(?P<promise>.*)\|\s*(?P<state>[^|]*?)\s*\|\s*$")


class PageError(ValueError):
    """The page of guarantees cannot be read; the message names the line."""


@dataclass(frozen=True)
class Guarantee:
    """One row of the page: `promised`, `partial` with what is missing, or `open`."""

    id: str
    promise: str
    state: Literal["promised", "partial", "open"]
    missing: str = ""

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores on which this has to be shown; none when no store is involved."""
        return STORES if {self.id, self.id.split("-")[0]}.intersection(ON_EVERY_STORE) else ()


@dataclass(frozen=True)
class MarkedTest:
    """One test of the last run, with the ids it is marked with."""

    test: str
    clauses: tuple[str, ...]
    outcome: str
    notes: tuple[str, ...] = ()

    @property
    def stores(self) -> frozenset[str]:
        """The stores that it ran on, by its parameters or by what its mark says."""
        parameters = self.test.partition("[")[2]
        return frozenset(store for store in STORES if store in parameters or store in self.notes)


@dataclass(frozen=True)
class Verdict:
    """What the tests say about one guarantee."""

    guarantee: Guarantee
    status: Status
    tests: tuple[MarkedTest, ...] = ()
    missing: str = ""

    @property
    def passed(self) -> tuple[MarkedTest, ...]:
        return tuple(test for test in self.tests if test.outcome == "passed")

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores on which it was shown."""
        return tuple(store for store in STORES if any(store in test.stores for test in self.passed))


@dataclass(frozen=True)
class Report:
    """All verdicts, in the order of the page, and the marks that belong to none."""

    verdicts: tuple[Verdict, ...]
    unknown: dict[str, list[str]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the page claims nothing that the tests do not show."""
        return not self.unknown and all(verdict.status != "failing" for verdict in self.verdicts)


class Entry(TypedDict):
    """A guarantee in `conformance.json`."""

    status: Status
    tests: list[str]
    missing: str


def read_page(text: str) -> list[Guarantee]:
    """Return the guarantees in the tables of *text*. Raises `PageError` for an id given twice or an unknown state."""
    guarantees: dict[str, Guarantee] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        row = ROW.match(line)
        if row is None:
            continue
        if row["id"] in guarantees:
            raise PageError(f"line {number}: {row['id']} is there twice.")
        guarantees[row["id"]] = _guarantee(row, number)
    if not guarantees:
        raise PageError("no row like '| JOB-1 | ... | promised |' was found.")
    return list(guarantees.values())


def read_run(text: str) -> list[MarkedTest]:
    """Return the marked tests that a run noted."""
    return [
        MarkedTest(entry["test"], tuple(entry["clauses"]), entry["outcome"], tuple(entry["notes"]))
        for entry in json.loads(text)["tests"]
    ]


def make_report(guarantees: list[Guarantee], tests: list[MarkedTest], *, skips_count: bool) -> Report:
    """Compare each guarantee with the tests marked with it.

    A machine without PostgreSQL skips tests. With *skips_count* such a gap is a broken promise, otherwise
    the guarantee counts as partly shown.
    """
    shown = {
        guarantee.id: [test for test in tests if guarantee.id in test.clauses] for guarantee in guarantees
    }
    verdicts = [
        _verdict(guarantee, tuple(shown[guarantee.id]), skips_count=skips_count) for guarantee in guarantees
    ]
    unknown: dict[str, list[str]] = {}
    for test in tests:
        for clause in test.clauses:
            if clause not in shown:
                unknown.setdefault(clause, []).append(test.test)
    return Report(tuple(verdicts), unknown)


def table(report: Report) -> str:
    """Return the report for a person: one line for each guarantee, then what has to be done."""
    lines = [f"{'id':<8}{'status':<9}{'tests':>6}  {'stores':<17} missing"]
    lines += [_line(verdict) for verdict in report.verdicts]
    lines += ["", _summary(report)]
    lines += [f"Broken: {verdict.guarantee.id}: {verdict.missing}" for verdict in _failing(report)]
    lines += [
        f"No such guarantee: {clause!r}, in {', '.join(tests)}" for clause, tests in report.unknown.items()
    ]
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Return the report for a program: status, tests and what is missing, by id."""
    entries = {
        verdict.guarantee.id: Entry(
            status=verdict.status, tests=[test.test for test in verdict.tests], missing=verdict.missing
        )
        for verdict in report.verdicts
    }
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Print the table, write the file, and return the exit code."""
    options = _parser().parse_args(arguments)
    for run in options.run:
        if not run.exists():
            print(f"{run} is not there: 'make conformance' runs the tests that write it.", file=sys.stderr)
            return 2
    try:
        guarantees = read_page(options.page.read_text(encoding="utf-8"))
    except PageError as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 2
    tests = [test for run in options.run for test in read_run(run.read_text(encoding="utf-8"))]
    report = make_report(
        guarantees, tests, skips_count=os.environ.get("CI", "").lower() in {"1", "true", "yes"}
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(as_json(report), encoding="utf-8")
    print(table(report))
    return 0 if report.holds else 1


def _guarantee(row: re.Match[str], number: int) -> Guarantee:
    state, _, missing = row["state"].partition(":")
    promise = row["promise"].strip()
    match state.strip(), missing.strip():
        case "promised", "":
            return Guarantee(row["id"], promise, "promised")
        case "open", "":
            return Guarantee(row["id"], promise, "open")
        case "partial", what if what:
            return Guarantee(row["id"], promise, "partial", what)
    raise PageError(
        f"line {number}: the state {row['state']!r} is not 'promised', 'partial: what is missing' or 'open'."
    )


def _verdict(guarantee: Guarantee, tests: tuple[MarkedTest, ...], *, skips_count: bool) -> Verdict:
    broken = [test.test for test in tests if test.outcome == "failed"]
    if broken:
        return Verdict(guarantee, "failing", tests, f"failed: {', '.join(broken)}")
    if guarantee.state == "open":
        return Verdict(guarantee, "open", tests)
    lacking, skipped = _gap(guarantee, tests)
    if lacking and (skips_count or not skipped):
        return Verdict(guarantee, "failing", tests, lacking)
    if lacking or guarantee.state == "partial":
        return Verdict(guarantee, "partial", tests, "; ".join(filter(None, (guarantee.missing, lacking))))
    return Verdict(guarantee, "shown", tests)


def _gap(guarantee: Guarantee, tests: tuple[MarkedTest, ...]) -> tuple[str, bool]:
    """Return what no passing test shows, and whether skipped tests would have shown it."""
    passed = [test for test in tests if test.outcome == "passed"]
    skipped = [test for test in tests if test.outcome == "skipped"]
    if guarantee.state == "partial" or not guarantee.stores:
        return ("", False) if passed else ("no passing test", bool(skipped))
    lacking = [store for store in guarantee.stores if not any(store in test.stores for test in passed)]
    would_show = all(any(store in test.stores for test in skipped) for store in lacking)
    return f"no passing test on {' or '.join(lacking)}" if lacking else "", would_show


def _line(verdict: Verdict) -> str:
    count = f"{len(verdict.passed)}/{len(verdict.tests)}" if verdict.tests else "-"
    stores = " ".join(verdict.stores) or "-"
    return f"{verdict.guarantee.id:<8}{verdict.status:<9}{count:>6}  {stores:<17} {verdict.missing}".rstrip()


def _summary(report: Report) -> str:
    counts = dict.fromkeys(("shown", "partial", "open", "failing"), 0)
    for verdict in report.verdicts:
        counts[verdict.status] += 1
    return f"{len(report.verdicts)} guarantees: " + ", ".join(
        f"{count} {status}" for status, count in counts.items()
    )


def _failing(report: Report) -> list[Verdict]:
    return [verdict for verdict in report.verdicts if verdict.status == "failing"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.conformance", description="Guarantees and their tests."
    )
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/guarantees.md"), help="the guarantees"
    )
    parser.add_argument(
        "--run", type=Path, nargs="+", default=[Path("build/clauses.json")], help="what the test runs noted"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/conformance.json"), help="where the result goes"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
