"""`holdfast schema` makes the tables, and reports whether they are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli_process import holdfast

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_dsn"))


def test_a_missing_schema_is_reported_applied_and_then_there(empty: str, tmp_path: Path) -> None:
    before = holdfast("schema", "status", "--url", empty, cwd=tmp_path)
    applied = holdfast("schema", "apply", "--url", empty, cwd=tmp_path)
    after = holdfast("schema", "status", "--url", empty, cwd=tmp_path)
    again = holdfast("schema", "apply", "--url", empty, cwd=tmp_path)

    assert before.returncode == 1
    assert "run `holdfast schema apply`" in before.stdout
    assert applied.returncode == 0
    assert applied.stdout.endswith("applied; before it was missing\n")
    assert (after.returncode, again.returncode) == (0, 0)
    assert after.stdout == again.stdout
    assert after.stdout.endswith("nothing to apply\n")


def test_machines_read_the_state(empty: str, tmp_path: Path) -> None:
    before = holdfast("schema", "status", "--json", "--url", empty, cwd=tmp_path)
    applied = json.loads(holdfast("schema", "apply", "--json", "--url", empty, cwd=tmp_path).stdout)
    after = json.loads(holdfast("schema", "status", "--json", "--url", empty, cwd=tmp_path).stdout)

    assert before.returncode == 1
    assert json.loads(before.stdout)["current"] is False
    assert applied == {"before": 0, **after}
    assert after["current"] is True
    assert after["found"] == after["expected"]


def test_asking_for_the_state_makes_no_file(tmp_path: Path) -> None:
    holdfast("schema", "status", "--url", "sqlite:///absent.db", cwd=tmp_path)

    assert list(tmp_path.iterdir()) == []
