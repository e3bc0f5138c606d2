"""A sample of the worlds of `make sim`, and no promise broken; what was found once can be seen again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.simulation.__main__ import ENOUGH, EVERY_FAILURE, MOST_MISSING, too_many_missing

SEEDS = int(os.environ.get("HOLDFAST_SIM_SEEDS", "200"))
FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST", "1"))

EVERY_KIND = {"crash", "pause", "error", "cancel", "slow", "disk", "lost hint", "taken down", "shutdown: stop",
              "shutdown: cancel", "shutdown: kill", "clock: set forward", "clock: set back"}  # fmt: skip


def simulation(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options], capture_output=True, text=True, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.clause("JOB-1", "sqlite")
@pytest.mark.clause("JOB-3", "sqlite")
@pytest.mark.clause("JOB-4", "sqlite")
@pytest.mark.clause("JOB-6", "sqlite")
@pytest.mark.clause("JOB-7", "sqlite")
@pytest.mark.clause("JOB-12", "sqlite")
@pytest.mark.clause("STG-1", "sqlite")
@pytest.mark.clause("STG-2", "sqlite")
@pytest.mark.clause("IDM-1", "sqlite")
@pytest.mark.clause("IDM-3", "sqlite")
@pytest.mark.clause("SLA-1", "sqlite")
@pytest.mark.clause("SLA-2", "sqlite")
@pytest.mark.clause("SLA-3", "sqlite")
@pytest.mark.clause("SLA-4", "sqlite")
@pytest.mark.clause("DLQ-3", "sqlite")
@pytest.mark.clause("DLQ-4", "sqlite")
@pytest.mark.clause("OPS-1", "sqlite")
@pytest.mark.clause("OPS-2", "sqlite")
@pytest.mark.clause("OPS-3", "sqlite")
@pytest.mark.clause("OUT-1", "sqlite")
@pytest.mark.clause("OUT-3", "sqlite")
@pytest.mark.clause("OUT-4", "sqlite")
@pytest.mark.clause("OUT-5", "sqlite")
def test_no_promise_is_broken_in_any_simulated_world() -> None:
    done = simulation("--seeds", str(SEEDS), "--first", str(FIRST))

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    report = last_line(done)
    assert (report["seeds"], report["violations"]) == (SEEDS, 0)
    assert report["faults"] >= 25 * SEEDS, "too few faults fell for this to mean anything"
    happened = set(report["faults_by_kind"])
    assert happened >= EVERY_KIND, "what never happened was never survived"


def test_many_worlds_in_which_failures_of_the_services_are_missing_are_refused() -> None:
    few, many = sorted(EVERY_FAILURE)[:MOST_MISSING], sorted(EVERY_FAILURE)[: MOST_MISSING + 1]

    assert not too_many_missing(ENOUGH, EVERY_FAILURE.difference(few))
    assert too_many_missing(ENOUGH, EVERY_FAILURE.difference(many))
    assert not too_many_missing(ENOUGH - 1, EVERY_FAILURE.difference(many))


def test_a_seed_brings_about_the_same_world_each_time() -> None:
    digests = {last_line(simulation("--seed", "5"))["trace"] for _ in range(3)}

    assert len(digests) == 1
