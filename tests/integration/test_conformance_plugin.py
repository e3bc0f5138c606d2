"""A run of pytest leaves a true note of what each marked test showed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest

@pytest.fixture
def cannot_clean_up():
    yield
    raise RuntimeError

@pytest.mark.clause("A-1")
@pytest.mark.clause("A-2", "postgres")
def test_passes(): pass

@pytest.mark.clause("A-1")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_fails_on_one_store(store): assert store == "sqlite"

@pytest.mark.clause("A-3")
def test_fails_at_the_end(cannot_clean_up): pass

@pytest.mark.clause("A-4")
def test_skips(): pytest.skip("no server")

@pytest.mark.clause("A-5")
@pytest.mark.xfail
def test_was_expected_to_fail(): pass

def test_without_a_mark(): pass
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_the_note_has_every_marked_test_with_its_outcome(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = clause\n")
    plugin = ["-p", "tests.conformance_plugin", "-p", "no:cacheprovider"]
    spread = ["-n", str(processes)] if processes > 1 else []

    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *spread, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )

    noted = json.loads((tmp_path / "build/clauses.json").read_text())["tests"]
    assert {entry["test"].partition("::")[2]: entry["outcome"] for entry in noted} == {
        "test_passes": "passed",
        "test_fails_on_one_store[sqlite]": "passed",
        "test_fails_on_one_store[postgres]": "failed",
        "test_fails_at_the_end": "failed",
        "test_skips": "skipped",
        "test_was_expected_to_fail": "skipped",
    }
    assert noted[0]["clauses"] == ["A-1", "A-2"]
    assert noted[0]["notes"] == ["postgres"]
