"""The table of guarantees claims no more than the tests show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tools import conformance
from tools.conformance import MarkedTest, PageError, Report, make_report, read_page

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """
# Guarantees

| id | promise | state |
| --- | --- | --- |
| JOB-1 | A job is kept. | promised |
| RET-1 | Waits double. | promised |
| OUT-1 | All or nothing. | partial: other drivers |
| BRK-1 | Opens above half. | open |
"""


def a_test(clause: str, outcome: str = "passed", *, store: str = "", note: str = "") -> MarkedTest:
    parameters = f"[{store}]" if store else ""
    return MarkedTest(
        f"tests/test_it.py::test_{clause}{parameters}", (clause,), outcome, (note,) if note else ()
    )


EVERYTHING = [
    a_test("JOB-1", store="sqlite"),
    a_test("JOB-1", store="postgres"),
    a_test("RET-1"),
    a_test("OUT-1"),
]


def report_of(tests: list[MarkedTest], *, skips_count: bool = True) -> Report:
    return make_report(read_page(PAGE), tests, skips_count=skips_count)


def status(clause: str, tests: list[MarkedTest], *, skips_count: bool = True) -> str:
    verdicts = report_of(tests, skips_count=skips_count).verdicts
    return next(verdict.status for verdict in verdicts if verdict.guarantee.id == clause)


def test_a_page_whose_promises_are_all_shown_holds() -> None:
    report = report_of(EVERYTHING)

    assert [verdict.status for verdict in report.verdicts] == ["shown", "shown", "partial", "open"]
    assert report.holds


@pytest.mark.parametrize("clause", ["JOB-1", "RET-1", "OUT-1"])
def test_a_promise_without_a_test_is_broken(clause: str) -> None:
    report = report_of([test for test in EVERYTHING if clause not in test.clauses])

    assert not report.holds


@pytest.mark.parametrize("clause", ["JOB-1", "RET-1", "OUT-1", "BRK-1"])
def test_one_failing_test_outweighs_the_passing_ones(clause: str) -> None:
    tests = [*EVERYTHING, a_test(clause, "failed")]

    assert status(clause, tests) == "failing"


def test_a_test_that_never_ran_shows_nothing() -> None:
    assert status("RET-1", [a_test("RET-1", "not run")], skips_count=False) == "failing"


def test_a_promise_about_stores_is_shown_on_each_of_them() -> None:
    on_one_store = [a_test("JOB-1", store="sqlite"), a_test("JOB-1")]

    assert status("JOB-1", on_one_store) == "failing"
    assert status("JOB-1", [*on_one_store, a_test("JOB-1", store="postgres-fresh")]) == "shown"


def test_a_mark_may_name_the_store_itself() -> None:
    tests = [a_test("JOB-1", store="sqlite"), a_test("JOB-1", note="postgres")]

    assert status("JOB-1", tests) == "shown"


def test_a_skipped_store_is_a_gap_here_and_a_failure_where_skips_count() -> None:
    tests = [a_test("JOB-1", store="sqlite"), a_test("JOB-1", "skipped", store="postgres")]

    assert status("JOB-1", tests, skips_count=False) == "partial"
    assert status("JOB-1", tests, skips_count=True) == "failing"


def test_an_open_guarantee_stays_open_until_the_page_promises_it() -> None:
    assert status("BRK-1", [a_test("BRK-1")]) == "open"


def test_a_mark_with_an_unknown_id_is_an_error() -> None:
    report = report_of([*EVERYTHING, a_test("JOB-99")])

    assert not report.holds
    assert "JOB-99" in conformance.table(report)


def test_the_table_says_what_is_missing() -> None:
    shown = conformance.table(report_of(EVERYTHING[1:]))

    assert "JOB-1: no passing test on sqlite" in shown
    assert "other drivers" in shown


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| JOB-1 | Again. | open |", "JOB-1 is there twice"),
        ("| JOB-2 | A job. | soon |", "the state 'soon'"),
        ("| JOB-2 | A job. | partial |", "the state 'partial'"),
    ],
)
def test_a_page_that_cannot_be_read_says_where(row: str, complaint: str) -> None:
    with pytest.raises(PageError, match=complaint):
        read_page(PAGE + row + "\n")


def test_the_command_writes_its_findings_and_fails_on_a_broken_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, run, out = tmp_path / "page.md", tmp_path / "run.json", tmp_path / "out" / "conformance.json"
    page.write_text(PAGE)
    run.write_text(
        json.dumps({"tests": [{"test": "t::a", "clauses": ["RET-1"], "notes": [], "outcome": "passed"}]})
    )

    code = conformance.main(["--page", str(page), "--run", str(run), "--out", str(out)])

    assert code == 1
    found = json.loads(out.read_text())
    assert found["RET-1"] == {"status": "shown", "tests": ["t::a"], "missing": ""}
    assert found["JOB-1"]["status"] == "failing"
    assert "4 guarantees: 1 shown, 0 partial, 1 open, 2 failing" in capsys.readouterr().out


def test_without_a_run_the_command_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = conformance.main(["--run", str(tmp_path / "none.json")])

    assert code == 2
    assert "make conformance" in capsys.readouterr().err
