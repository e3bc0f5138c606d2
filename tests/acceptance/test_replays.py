"""Hundreds of dead letters replayed at once, on each store: one run, and what is to be said of it.

All fail in their second stage; the service that refused them is healed, and they go back to work under one plan while
workers are killed. Then others fail, and are replayed though the service is as broken as before. Each test is one
claim, judged by the service's own log of calls and by the database. `make replay` is the long one, with figures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from holdfast.core.dead_letters.replay_plan import Phase
from holdfast.operations import LetterFilter, LetterState
from holdfast_simulator import Status as Answer
from tests import invariants
from tests.acceptance.harness.invoices import BUDGET
from tests.acceptance.harness.replays import Evidence, Office, job_of, office, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.dead_letters.service import Progress
    from holdfast.operations import Letter
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database

LETTERS = 200
CANARY = 3
WORKERS = 3
PACE = 100.0
IN_VAIN = 20


@dataclass(frozen=True)
class InVain:
    """A replay that came too early."""

    jobs: Sequence[str]
    calls: Sequence[Entry]
    ended: Progress
    letters: Mapping[str, Letter]


@dataclass(frozen=True)
class Told:
    """Both replays."""

    bulk: Evidence
    in_vain: InVain


@pytest.fixture(scope="module")
def told(lasting_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Replay everything once."""
    folder = tmp_path_factory.mktemp("replays")
    with office(lasting_database, folder, workers=WORKERS) as room:
        return Told(run(room, letters=LETTERS, canary=CANARY, pace=PACE), _in_vain(room))


def _in_vain(room: Office) -> InVain:
    jobs = room.bury(IN_VAIN, Answer(400))
    before = len(room.calls())
    token = room.plan(LetterFilter(name="invoice", limit=IN_VAIN), canary=CANARY)
    ended = room.replay(token)
    return InVain(jobs, room.calls()[before:], ended, room.letters(jobs))


@pytest.mark.clause("OPS-2")
@pytest.mark.clause("JOB-4")
def test_every_letter_of_a_plan_is_verified_though_its_workers_are_killed(told: Told) -> None:
    bulk = told.bulk

    assert (bulk.kills >= 1, bulk.phase) == (True, Phase.DONE)
    assert bulk.completed == set(bulk.jobs)
    assert {letter.job_id for letter in bulk.verified} == set(bulk.jobs)


@pytest.mark.clause("OPS-2")
@pytest.mark.clause("STG-1")
def test_a_replay_begins_at_the_stage_that_failed(told: Told) -> None:
    bulk = told.bulk

    assert {entry.route for entry in bulk.later} == {"POST /effects/send"}
    assert Counter(route for _, route in bulk.effects) == {
        "POST /effects/draft": LETTERS,
        "POST /effects/send": LETTERS,
    }


def test_no_stage_takes_effect_twice_in_a_replay(told: Told) -> None:
    bulk = told.bulk

    assert set(bulk.effects.values()) == {1}
    invariants.no_effect_doubled(bulk.calls)
    invariants.results_tell_of_real_effects(bulk.world, bulk.calls, bulk.jobs)


def test_the_canary_goes_alone_until_it_has_completed(told: Told) -> None:
    bulk = told.bulk

    assert len(bulk.canaries) == CANARY < len({job_of(entry) for entry in bulk.later})
    assert bulk.too_early == set()


@pytest.mark.clause("STG-2")
def test_a_replayed_stage_has_a_budget_of_its_own(told: Told) -> None:
    bulk = told.bulk
    spent = Counter(entry.key for entry in bulk.calls[: bulk.calls_before])
    exhausted = {key for key, calls in spent.items() if calls == BUDGET}

    assert len(exhausted) == round(LETTERS * 0.1)
    assert bulk.most_attempts <= BUDGET
    invariants.attempts_stay_within(BUDGET, bulk.world, bulk.calls)


def test_the_books_balance_after_a_replay(told: Told) -> None:
    invariants.nothing_completed_twice(told.bulk.world)
    invariants.the_books_balance(told.bulk.world)


@pytest.mark.clause("OPS-2")
def test_a_plan_whose_canary_fails_in_the_same_place_stops_with_no_other_call(told: Told) -> None:
    in_vain = told.in_vain
    called = Counter(job_of(entry) for entry in in_vain.calls)

    assert in_vain.ended.plan.phase is Phase.STOPPED
    assert in_vain.ended.plan.why == "the canary failed in the same place as before"
    assert (len(called), set(called.values())) == (CANARY, {1})
    assert Counter(letter.state for letter in in_vain.letters.values()) == {
        LetterState.NEW: CANARY,
        LetterState.VALIDATED: IN_VAIN - CANARY,
    }


@pytest.mark.clause("OPS-3")
def test_a_letter_that_fails_again_as_before_is_escalated_and_no_other(told: Told) -> None:
    called = {job_of(entry) for entry in told.in_vain.calls}

    escalated = {letter.job_id for letter in told.in_vain.letters.values() if letter.escalated}

    assert escalated == called
