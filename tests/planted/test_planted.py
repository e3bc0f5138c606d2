"""Bugs that are put into the engine on purpose are found, and a life that shows one can be lived again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.claiming.claimer import Claimer
from holdfast.engine.worker.worker import Worker
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.queries import SQL
from tests.planted.bugs import BUGS, planted
from tests.planted.finders import by_tests
from tests.planted.guarantees import BROKEN_BY
from tests.planted.planting import Outdated, Schema, Sql, Swap
from tools.conformance import read_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "guarantees.md"

SIMULATED = [bug.name for bug in BUGS.values() if bug.simulated]
FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST", "1"))
SAMPLE = sorted({"drop-the-fence", *random.Random(FIRST).sample(SIMULATED, 16)})
"""Bugs that this run looks for, by the same number as its simulated worlds; `make sim-selfcheck` looks for all."""
TIMES = int(os.environ.get("HOLDFAST_SAME_LIFE", "3"))
"""How often each process of the test of equal lives repeats one; `make sim-selfcheck` repeats it ten times."""

Line = dict[str, Any]


def selfcheck(*options: str) -> list[Line]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def recorded() -> list[Line]:
    """Each bug of the sample in the life that is known to show it, and those lives without any bug."""
    return selfcheck("--recorded", *(f"--bug={bug}" for bug in SAMPLE))


@pytest.mark.parametrize("bug", SAMPLE)
def test_a_planted_bug_is_found_in_a_simulated_life(recorded: list[Line], bug: str) -> None:
    found = {line["bug"]: line["said"] for line in recorded}

    assert found.get(bug), f"{bug} was not found; python -m tests.planted --bug {bug} searches for it"


def test_the_healthy_engine_breaks_no_promise_in_the_same_lives(recorded: list[Line]) -> None:
    lives = [line for line in recorded if line["bug"] is None]

    assert lives
    assert [line for line in lives if line["said"] is not None] == []


def test_a_life_that_shows_a_bug_is_the_same_each_time(recorded: list[Line]) -> None:
    """Half of them are lived by a process of their own, half by one that lives through another in between."""
    [where] = [line["where"] for line in recorded if line["bug"] == "drop-the-fence"]
    life = ("--bug", "drop-the-fence", "--seed", where)

    with ThreadPoolExecutor(2) as threads:
        alone = list(threads.map(lambda _: selfcheck(*life), range(TIMES)))
    alternating = selfcheck(*life, "--times", str(TIMES), "--between", "5")

    lives = [line for lines in alone for line in lines] + alternating
    assert len(lives) == 2 * TIMES
    assert {(line["digest"], line["said"]) for line in lives} == {(lives[0]["digest"], lives[0]["said"])}
    assert lives[0]["said"]


def test_a_query_that_scans_is_found_by_the_tests_of_its_guarantee() -> None:
    assert by_tests("claim-scans-the-table", "JOB-9").failed


def test_every_guarantee_of_the_engine_has_a_bug_that_breaks_it() -> None:
    page = read_page(PAGE.read_text(encoding="utf-8"))
    engine = {guarantee.id for guarantee in page if guarantee.id.startswith(("JOB-", "STG-", "IDM-", "SLA-"))}

    assert set(BROKEN_BY) == engine
    assert all(clause in BUGS[bug].clauses for clause, bug in BROKEN_BY.items())


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_there_while_it_is_planted_and_gone_afterwards(name: str) -> None:
    healthy = whole_engine(name)

    with planted(name):
        sick = whole_engine(name)

    assert sick != healthy
    assert whole_engine(name) == healthy


def whole_engine(name: str) -> list[Any]:
    """Return the current values of what the patches of a bug change."""
    return [
        schema.MIGRATIONS
        if isinstance(patch, Schema)
        else SQL[patch.statement]
        if isinstance(patch, Sql)
        else vars(patch.owner)[patch.name]
        for patch in BUGS[name].patches
        if isinstance(patch, Sql | Swap | Schema)
    ]


@pytest.mark.parametrize(
    "patch",
    [
        Sql("claimable", "a text that is not there", ""),
        Schema("a text that is not there", ""),
        Swap(Worker, "a_method_that_is_not_there", None),
        Swap(Claimer, "run_once", lambda self, an_argument_that_no_caller_passes: None),
    ],
)
def test_a_patch_that_does_not_fit_the_code_is_refused(patch: Sql | Swap | Schema) -> None:
    with pytest.raises(Outdated), patch.planted():
        pass
