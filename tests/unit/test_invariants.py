"""The invariants hold for a world in order, and each of them notices its own kind of disorder."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_simulator import Entry
from tests import invariants
from tests.invariants import World

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = 3

DONE: dict[str, Any] = {
    "id": "done",
    "name": "order",
    "status": "completed",
    "attempt": 1,
    "generation": 1,
    "lease_token": 3,
    "losses": 0,
    "created_at": 1,
    "last_attempt_at": 4,
    "leased_by": "host:2:b",
    "finished_at": 6,
    "result": '["eff_1@2", "done@2"]',
    "failure": None,
    "stage": None,
    "deadline_at": 7,
    "timed_out_at": None,
    "timed_out_token": None,
    "late_result": None,
}
LATE = DONE | {
    "status": "failed",
    "lease_token": 4,
    "deadline_at": 5,
    "timed_out_at": 6,
    "timed_out_token": 3,
    "result": None,
    "failure": '{"error_class": "TIMEOUT"}',
    "late_result": '["done@2"]',
}
ACCEPTED = LATE | {"status": "completed", "finished_at": 9, "result": '["done@2"]', "failure": None}
RUNNING: dict[str, Any] = {
    "id": "running",
    "name": "order",
    "status": "processing",
    "attempt": 1,
    "generation": 1,
    "lease_token": 1,
    "losses": 0,
    "created_at": 1,
    "last_attempt_at": 2,
    "leased_by": "host:1:a",
    "lease_expires_at": 9,
    "retry_after": None,
}
IN_ORDER = World(
    live=[RUNNING],
    ended=[DONE],
    payloads=[{"id": "done"}, {"id": "running"}],
    stages=[
        {
            "id": "done",
            "name": "charge",
            "call": "#1",
            "status": "done",
            "attempt": 1,
            "generation": 1,
            "lease_token": 3,
            "result": '"eff_1@2"',
        }
    ],
    events=[
        {"id": "done", "seq": 1, "at": 2, "kind": "processing", "meta": '{"worker": "host:1:a"}'},
        {"id": "done", "seq": 2, "at": 3, "kind": "queued", "meta": "{}"},
    ],
    signals=[
        {"id": "done", "number": 1, "name": "go", "data": '"now"'},
        {"id": "done", "number": 2, "name": "go", "data": '"again"'},
    ],
)
ACCEPTANCE = [
    {"id": "done", "seq": 3, "at": 6, "kind": "expired", "meta": "{}"},
    {"id": "done", "seq": 4, "at": 9, "kind": "accepted", "meta": "{}"},
]


def a_call(key: str | None = "done:1:charge:#1", effect_id: str | None = "eff_1") -> Entry:
    return Entry(
        number=1,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        monotonic=0.0,
        route="POST /effects/charge",
        key=key,
        body_hash=None,
        fault=None,
        status=200,
        effect_id=effect_id,
        duplicate_of=None,
    )


def with_ended(**changes: Any) -> World:
    return replace(IN_ORDER, ended=[DONE | changes])


def with_live(**changes: Any) -> World:
    return replace(IN_ORDER, live=[RUNNING | changes])


def that_took(*results: str) -> World:
    """Return a world in which a job waited once for each of *results*, which its wait stored."""
    waits = [
        IN_ORDER.stages[0] | {"name": "@signal go", "call": f"#{number}", "result": result}
        for number, result in enumerate(results, start=1)
    ]
    return replace(IN_ORDER, stages=waits)


def test_a_world_in_order_passes() -> None:
    invariants.all_hold(IN_ORDER, [a_call()], acknowledged=["done"], budget=BUDGET)


def test_a_world_with_late_results_in_order_passes() -> None:
    invariants.the_books_balance(replace(IN_ORDER, ended=[LATE]))
    invariants.the_books_balance(replace(IN_ORDER, ended=[ACCEPTED], events=IN_ORDER.events + ACCEPTANCE))


def test_a_world_with_signals_in_order_passes() -> None:
    world = that_took('{"number":1,"data":"now"}', '{"timed_out":true}', '{"number":2,"data":"again"}')

    invariants.signals_were_taken_once(world)


def test_a_wait_that_began_again_after_a_retry_takes_what_came_later() -> None:
    first, second = that_took('{"number":2,"data":"again"}', '{"number":1,"data":"now"}').stages

    invariants.signals_were_taken_once(replace(IN_ORDER, stages=[first | {"generation": 2}, second]))


@pytest.mark.parametrize(
    ("world", "check"),
    [
        (replace(IN_ORDER, ended=[DONE, DONE]), invariants.nothing_completed_twice),
        (replace(IN_ORDER, live=[RUNNING | {"id": "done"}]), invariants.nothing_completed_twice),
        (replace(IN_ORDER, stages=IN_ORDER.stages * 2), invariants.nothing_completed_twice),
        (with_live(leased_by=None), invariants.leases_belong_to_running_jobs),
        (with_live(status="queued"), invariants.leases_belong_to_running_jobs),
        (with_live(retry_after=5), invariants.leases_belong_to_running_jobs),
        (replace(IN_ORDER, payloads=[{"id": "done"}]), invariants.counts_conserve),
        (replace(IN_ORDER, ended=[]), invariants.counts_conserve),
        (with_ended(last_attempt_at=2.5), invariants.histories_follow_the_graph),
        (replace(IN_ORDER, events=[]), invariants.every_lease_is_in_the_history),
        (with_ended(generation=2), invariants.every_replay_is_in_the_history),
        (with_ended(stage="charge"), invariants.failed_stages_are_on_record),
        (with_ended(lease_token=2), invariants.stages_were_written_under_a_lease),
        (with_ended(result='["eff_1@2", "done@1"]'), invariants.signed_results_are_from_the_holder),
        (with_ended(deadline_at=6), invariants.deadlines_were_kept),
        (replace(IN_ORDER, ended=[LATE | {"deadline_at": 8}]), invariants.deadlines_were_kept),
        (replace(IN_ORDER, ended=[LATE | {"failure": None}]), invariants.deadlines_were_kept),
        (replace(IN_ORDER, ended=[ACCEPTED]), invariants.late_results_were_applied_by_people_only),
        (
            replace(IN_ORDER, ended=[LATE], events=ACCEPTANCE),
            invariants.late_results_were_applied_by_people_only,
        ),
        (
            replace(IN_ORDER, ended=[ACCEPTED | {"result": "1"}], events=ACCEPTANCE),
            invariants.late_results_were_applied_by_people_only,
        ),
        (
            replace(IN_ORDER, ended=[LATE | {"timed_out_token": 1}]),
            invariants.late_results_are_from_the_last_holder,
        ),
        (
            that_took('{"number":1,"data":"now"}', '{"number":1,"data":"now"}'),
            invariants.signals_were_taken_once,
        ),
        (
            that_took('{"number":2,"data":"again"}', '{"number":1,"data":"now"}'),
            invariants.signals_were_taken_once,
        ),
        (that_took('{"number":3,"data":"never sent"}'), invariants.signals_were_taken_once),
    ],
)
def test_disorder_in_the_tables_is_noticed(world: World, check: Callable[[World], None]) -> None:
    with pytest.raises(AssertionError):
        check(world)


@pytest.mark.parametrize("calls", [[a_call(), a_call(effect_id="eff_2")], [a_call(key=None)]])
def test_effects_that_are_doubled_or_without_a_key_are_noticed(calls: list[Entry]) -> None:
    with pytest.raises(AssertionError):
        invariants.no_effect_doubled(calls)


@pytest.mark.parametrize("acknowledged", ["never stored", "running"])
def test_a_promise_that_was_not_kept_is_noticed(acknowledged: str) -> None:
    with pytest.raises(AssertionError):
        invariants.every_acknowledged_job_completed(IN_ORDER, [acknowledged])


def test_a_result_of_something_that_did_not_take_place_is_noticed() -> None:
    with pytest.raises(AssertionError):
        invariants.results_name_logged_effects(IN_ORDER, [a_call(effect_id="eff_9")], ["done"])


def test_attempts_beyond_the_budget_are_noticed_but_for_the_claim_that_ends_a_lost_job() -> None:
    lost = json.dumps({"error_class": "WORKER_LOST"})

    invariants.attempts_stay_within(BUDGET, with_ended(status="failed", attempt=4, failure=lost))

    with pytest.raises(AssertionError):
        invariants.attempts_stay_within(BUDGET, with_ended(attempt=4))
    with pytest.raises(AssertionError):
        invariants.attempts_stay_within(BUDGET, IN_ORDER, [a_call()] * 4)


def test_damage_is_counted_by_its_kind() -> None:
    assert invariants.damage(IN_ORDER, [a_call()], ["done"]) == (0, 0, 0)

    doubled = replace(IN_ORDER, ended=[DONE, DONE])
    calls = [a_call(), a_call(effect_id="eff_2")]
    assert invariants.damage(doubled, calls, ["done", "running", "never stored"]) == (2, 1, 1)
