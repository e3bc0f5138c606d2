"""What the long runs about providers make of their measurements: a table, an exit code, and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from tests.acceptance.harness import rates
from tests.acceptance.harness.measurements import Measurements
from tools.plot_outage import draw

if TYPE_CHECKING:
    import pytest

TIMELINE = {
    "store": "postgres",
    "up_at": 150.0,
    "opened": [0.1, 30.2],
    "closed": [152.0],
    "failed_calls": [(0, 16), (30, 3)],
    "good_calls": [(152, 6), (154, 6)],
    "other_calls": [(-1, 60), (0, 61), (1, 62)],
    "held": [(0.0, 0), (0.5, 5_000), (151.0, 5_000)],
    "released": [(30.2, 3), (152.0, 3)],
}


def test_a_run_that_meets_every_bar_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measurements()
    measured.at_most("calls", 16, 43)
    measured.at_least("of its calm rate", 0.93, 0.9)
    measured.exactly("openings", 0, 0)
    measured.record("steps", "3 6 12")

    measured.show("A run")

    assert measured.exit_code == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:]] == ["met"] * 3 + ["12"]


def test_one_bar_that_is_missed_ends_a_run_with_1() -> None:
    too_much, too_little, different = Measurements(), Measurements(), Measurements()
    too_much.at_most("calls", 44, 43)
    too_little.at_least("of its calm rate", 0.89, 0.9)
    different.exactly("openings", 1, 0)

    assert [measurements.exit_code for measurements in (too_much, too_little, different)] == [1, 1, 1]


def test_calls_that_are_evenly_spread_meet_the_bars_of_a_rate() -> None:
    evenly = [number / rates.RATE for number in range(round(rates.RATE * rates.SECONDS))]

    assert rates.measurements(evenly, killed_at=15.0).exit_code == 0


def test_calls_that_come_in_a_heap_miss_the_bar_of_a_rate() -> None:
    evenly = [number / rates.RATE for number in range(round(rates.RATE * rates.SECONDS))]
    heap = sorted([*evenly, *[10.0] * 6])

    assert rates.measurements(heap, killed_at=15.0).exit_code == 1


def test_the_picture_of_an_outage_has_a_dot_for_every_second_with_calls() -> None:
    picture = ElementTree.fromstring(draw(TIMELINE))

    dots = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 2 + 2 + 3
    assert all(0 <= float(dot.attrib["cy"]) <= 530 for dot in dots)
