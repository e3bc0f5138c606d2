"""Notes which guarantee each test shows, and how the test ended.

After a run, `build/clauses.json` has one entry for each test with a clause mark; `tools/conformance.py`
joins it with the page of guarantees. `--clauses` names another file. When tests run in several processes
(`pytest -n 2`), each of them notes its own and hands that to the one that started it, which writes the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypedDict

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Outcome = Literal["passed", "failed", "skipped", "not run"]


class MarkedTest(TypedDict):
    """One test and the guarantees it shows."""

    test: str
    clauses: list[str]
    notes: list[str]
    outcome: Outcome


class ClauseRecorder:
    """Collects marks when tests are found and outcomes as they come in, and writes both at the end."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._tests: dict[str, MarkedTest] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what another process noted: every process knows all tests and has run some of them."""
        for test in getattr(node, "workeroutput", {}).get("clauses", []):
            if test["outcome"] != "not run" or test["test"] not in self._tests:
                self._tests[test["test"]] = test

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the marked tests that were selected; each counts as not run until it reports."""
        for item in session.items:
            marks = list(item.iter_markers("clause"))
            if marks:
                self._tests[item.nodeid] = _marked(item.nodeid, marks)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        test = self._tests.get(report.nodeid)
        if test is not None:
            test["outcome"] = _after(test["outcome"], report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, also after failures and Ctrl-C; or leave that to the process that started this one."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["clauses"] = list(self._tests.values())
            return
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._target.write_text(
            json.dumps({"tests": list(self._tests.values())}, indent=1) + "\n", encoding="utf-8"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--clauses`."""
    parser.addoption(
        "--clauses", default="build/clauses.json", help="where to note the guarantees that tests show"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record every run in which tests are more than listed."""
    if not config.getoption("collectonly"):
        target = config.rootpath / config.getoption("--clauses")
        config.pluginmanager.register(ClauseRecorder(target), "clause-recorder")


def _marked(nodeid: str, marks: Sequence[pytest.Mark]) -> MarkedTest:
    clauses = {str(mark.args[0]) if mark.args else "" for mark in marks}
    notes = [str(note) for mark in marks for note in mark.args[1:]]
    return MarkedTest(test=nodeid, clauses=sorted(clauses), notes=notes, outcome="not run")


def _after(outcome: Outcome, report: pytest.TestReport) -> Outcome:
    if outcome == "failed" or report.failed:
        return "failed"
    # A test that was expected to fail shows nothing, whatever its outcome.
    if outcome == "skipped" or report.skipped or hasattr(report, "wasxfail"):
        return "skipped"
    return "passed" if report.when == "call" else outcome
