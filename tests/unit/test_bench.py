"""What the benchmark measures, and how it summarizes its measurements; the measuring itself is `make bench`."""

from __future__ import annotations

from bench.engines import ENGINES, HOMES
from bench.plan import FULL, QUICK, cases, chosen, in_turn
from bench.report import BARS, Record, Report


def a_record(measure: str, store: str, engine: str, value: float, *, setting: str = "default") -> Record:
    unit = "p50_ms" if measure == "pickup" else "per_second"
    return {"key": (measure, store, engine, setting), "round": 1, "result": {unit: value}}


def test_every_engine_is_measured_where_it_keeps_its_jobs() -> None:
    measured = {(case.engine, case.store) for case in cases(QUICK)}

    assert measured == {(name, HOMES.get(name, "postgres")) for name in ENGINES} | {("holdfast", "sqlite")}


def test_every_bar_has_both_sides_in_the_plan() -> None:
    planned = {(case.measure, case.store, case.engine) for case in cases(FULL)}

    for bar in BARS:
        assert {(bar.measure, bar.store, "holdfast"), bar.beside} <= planned


def test_only_what_was_asked_for_is_measured() -> None:
    some = chosen(QUICK, only=["submit"], stores=["sqlite"], engines=["holdfast", "huey"])

    assert {(case.engine, case.store) for case in some} == {("holdfast", "sqlite"), ("huey", "sqlite")}
    assert {case.measure for case in some} == {"submit-one", "submit-tasks", "submit-bulk"}


def test_every_other_round_goes_backwards() -> None:
    plan = list(cases(QUICK))

    assert in_turn(plan, 2) == in_turn(plan, 1)[::-1]


def test_each_engine_is_shown_at_its_best_and_the_best_of_all_first() -> None:
    report = Report(
        [
            a_record("drain", "postgres", "pgqueuer", 10),
            a_record("drain", "postgres", "holdfast", 20),
            a_record("drain", "postgres", "holdfast", 30, setting="500"),
            a_record("pickup", "postgres", "pgqueuer", 3.0),
            a_record("pickup", "postgres", "holdfast", 2.0),
        ]
    )

    drains = [(series.engine, series.setting) for series in report.best_of_each("drain")]
    pickups = [series.engine for series in report.best_of_each("pickup")]
    assert drains == [("holdfast", "500"), ("pgqueuer", "default")]
    assert pickups == ["holdfast", "pgqueuer"]  # where less is better


def test_a_bar_compares_best_with_best() -> None:
    report = Report(
        [
            a_record("drain", "sqlite", "holdfast", 50, setting="500"),
            a_record("drain", "sqlite", "holdfast", 10),
            a_record("drain", "sqlite", "huey", 5),
            a_record("drain", "sqlite", "huey", 20, setting="16"),
        ]
    )

    [bar] = report.bars()
    assert (bar["title"], bar["ratio"], bar["met"]) == ("SQLite drain, beside Huey", 2.5, True)
