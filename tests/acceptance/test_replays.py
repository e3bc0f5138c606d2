"""Hundreds of dead letters replayed at once, on each store: one run, and the claims about it.

All fail in their second stage; the service that refused them is healed, and they are replayed under one plan while
workers are killed. Then others fail, and are replayed though the service is as broken as before. Each test is one
claim, judged by the service's own log of calls and by the database. `make replay` is the long run, with measurements.
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
from tests.acceptance.harness.replays import Evidence, ReplayHarness, job_of, replay_harness, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.dead_letters.replay_planner import Progress
    from holdfast.operations import Letter
    from holdfast_simulator import Entry
    from tests.acceptance.harness.databases import Database

LETTERS = 200
CANARY = 3
WORKERS = 3
PACE = 100.0
PREMATURE = 20


@dataclass(frozen=True)
class PrematureReplay:
    """A replay before the fault was fixed."""

    jobs: Sequence[str]
    calls: Sequence[Entry]
    ended: Progress
    letters: Mapping[str, Letter]


@dataclass(frozen=True)
class Replays:
    """Both replays."""

    bulk: Evidence
    premature: PrematureReplay


@pytest.fixture(scope="module")
def replays(lasting_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Replays:
    """Replay everything once."""
    folder = tmp_path_factory.mktemp("replays")
    with replay_harness(lasting_database, folder, workers=WORKERS) as harness:
        return Replays(run(harness, letters=LETTERS, canary=CANARY, pace=PACE), _replay_prematurely(harness))


def _replay_prematurely(harness: ReplayHarness) -> PrematureReplay:
    jobs = harness.fail_jobs(PREMATURE, Answer(400))
    before = len(harness.calls())
    token = harness.plan(LetterFilter(name="invoice", limit=PREMATURE), canary=CANARY)
    ended = harness.replay(token)
    return PrematureReplay(jobs, harness.calls()[before:], ended, harness.letters(jobs))


@pytest.mark.clause("OPS-2")
@pytest.mark.clause("JOB-4")
def test_every_letter_of_a_plan_is_verified_though_its_workers_are_killed(replays: Replays) -> None:
    bulk = replays.bulk

    assert (bulk.kills >= 1, bulk.phase) == (True, Phase.DONE)
    assert bulk.completed == set(bulk.jobs)
    assert {letter.job_id for letter in bulk.verified} == set(bulk.jobs)


@pytest.mark.clause("OPS-2")
@pytest.mark.clause("STG-1")
def test_a_replay_begins_at_the_stage_that_failed(replays: Replays) -> None:
    bulk = replays.bulk

    assert {entry.route for entry in bulk.later} == {"POST /effects/send"}
    assert Counter(route for _, route in bulk.effects) == {
        "POST /effects/draft": LETTERS,
        "POST /effects/send": LETTERS,
    }


def test_no_stage_takes_effect_twice_in_a_replay(replays: Replays) -> None:
    bulk = replays.bulk

    assert set(bulk.effects.values()) == {1}
    invariants.no_effect_doubled(bulk.calls)
    invariants.results_name_logged_effects(bulk.world, bulk.calls, bulk.jobs)


def test_the_canary_goes_alone_until_it_has_completed(replays: Replays) -> None:
    bulk = replays.bulk

    assert len(bulk.canaries) == CANARY < len({job_of(entry) for entry in bulk.later})
    assert bulk.too_early == set()


@pytest.mark.clause("STG-2")
def test_a_replayed_stage_has_a_budget_of_its_own(replays: Replays) -> None:
    bulk = replays.bulk
    spent = Counter(entry.key for entry in bulk.calls[: bulk.calls_before])
    exhausted = {key for key, calls in spent.items() if calls == BUDGET}

    assert len(exhausted) == round(LETTERS * 0.1)
    assert bulk.most_attempts <= BUDGET
    invariants.attempts_stay_within(BUDGET, bulk.world, bulk.calls)


def test_the_books_balance_after_a_replay(replays: Replays) -> None:
    invariants.nothing_completed_twice(replays.bulk.world)
    invariants.the_books_balance(replays.bulk.world)


@pytest.mark.clause("OPS-2")
def test_a_plan_whose_canary_fails_in_the_same_place_stops_with_no_other_call(replays: Replays) -> None:
    premature = replays.premature
    called = Counter(job_of(entry) for entry in premature.calls)

    assert premature.ended.plan.phase is Phase.STOPPED
    assert premature.ended.plan.why == "the canary failed in the same place as before"
    assert (len(called), set(called.values())) == (CANARY, {1})
    assert Counter(letter.state for letter in premature.letters.values()) == {
        LetterState.NEW: CANARY,
        LetterState.VALIDATED: PREMATURE - CANARY,
    }


@pytest.mark.clause("OPS-3")
def test_a_letter_that_fails_again_as_before_is_escalated_and_no_other(replays: Replays) -> None:
    called = {job_of(entry) for entry in replays.premature.calls}

    escalated = {letter.job_id for letter in replays.premature.letters.values() if letter.escalated}

    assert escalated == called
