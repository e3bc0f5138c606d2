"""What is printed of a violation: enough to see its cause, and the command that shows all of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.planted.__main__ import RECORD
from tests.planted.bugs import planted
from tests.simulation.__main__ import violation_lines
from tests.simulation.processes import Fault
from tests.simulation.simulation import Simulation, simulate

if TYPE_CHECKING:
    import pytest

SEED: int = json.loads(RECORD.read_text(encoding="utf-8"))["drop-the-fence"]
"""A life in which a fence is needed."""


def test_a_violation_shows_its_seed_its_cause_and_how_to_see_it_again() -> None:
    with planted("drop-the-fence"):
        outcome = simulate(SEED)

    first, *lines, last = violation_lines(outcome)

    assert first.startswith(f"seed {SEED} (")
    assert first.endswith(outcome.violations[0])
    assert any(f" {fault} " in line for line in lines for fault in Fault), "what led to it is not shown"
    assert any("VIOLATION" in line for line in lines)
    assert len(lines) < len(outcome.trace)
    assert last == f"replay: make sim SEED={SEED}"


def test_a_life_that_breaks_the_simulation_is_a_violation_and_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(simulation: Simulation) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Simulation, "_check", broken)

    [violation] = simulate(SEED).violations

    assert violation.startswith("the simulation itself broke: ZeroDivisionError() at test_reports.py:")
