"""What must hold at the end of a simulated life: the common invariants, and what people were told."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast import Status
from tests import invariants
from tests.simulation.jobs import BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast_simulator import Entry
    from tests.invariants import World
    from tests.simulation.people import Memory

_WITH_EFFECTS = {"plain", "order", "fan", "long"}


def broken(world: World, entries: Sequence[Entry], memory: Memory) -> Iterator[str]:
    """Name every promise that was broken."""
    first_time = {row["id"] for row in world.ended if row["generation"] == 1 and row["name"] in _WITH_EFFECTS}
    completed = first_time & world.with_status(Status.COMPLETED)
    checks: list[Callable[[], None]] = [
        lambda: invariants.nothing_completed_twice(world),
        lambda: invariants.no_effect_doubled(entries),
        lambda: invariants.results_tell_of_real_effects(world, entries, completed),
        lambda: invariants.the_books_balance(world),
        lambda: what_was_acknowledged_exists(world, memory),
        lambda: what_was_cancelled_stayed_so(world, memory),
        lambda: what_was_told_is_stored(world, memory),
        lambda: no_key_was_called_beyond_its_budget(world, entries),
        lambda: failed_jobs_had_reason_to(world),
    ]
    for check in checks:
        try:
            check()
        except AssertionError as error:
            yield str(error)


def what_was_acknowledged_exists(world: World, memory: Memory) -> None:
    """An acknowledged job is there, whatever happened since."""
    missing = set(memory.acknowledged) - {row["id"] for row in world.jobs}
    assert not missing, f"acknowledged, and gone: {sorted(missing)}"


def what_was_cancelled_stayed_so(world: World, memory: Memory) -> None:
    """Who was told that a job is cancelled will never see it run."""
    wrong = memory.cancelled - world.with_status(Status.CANCELLED)
    assert not wrong, f"told that they were cancelled, and they are not: {sorted(wrong)}"


def what_was_told_is_stored(world: World, memory: Memory) -> None:
    """A result that somebody got is the one that is stored."""
    stored = {row["id"]: row["result"] for row in world.ended}
    for job_id, told in memory.results.items():
        assert json.loads(stored.get(job_id) or "null") == told, f"job {job_id} told {told}"


def no_key_was_called_beyond_its_budget(world: World, entries: Sequence[Entry]) -> None:
    """The service saw each key as often as there were attempts, and no more; those given back are not counted.

    Of stages that run side by side, one that is stopped because another failed gets its attempt back.
    """
    given_back: Counter[str] = Counter()
    for event in world.events:
        given_back[event["id"]] += event["kind"] == "queued"
    names = {row["id"]: row["name"] for row in world.jobs}
    for key, calls in Counter(entry.key for entry in entries).items():
        job_id = (key or "").partition(":")[0]
        budget = BUDGET * 3 if names.get(job_id) == "fan" else BUDGET
        assert calls <= budget + given_back[job_id], f"{key} was called {calls} times, of {budget}"


def failed_jobs_had_reason_to(world: World) -> None:
    """A job fails for a reason that lasts, or when its attempts are spent."""
    for row in world.ended:
        if row["status"] == "failed" and _may_be_tried_again(json.loads(row["failure"])):
            spent = row["attempt"] >= BUDGET - 1 or _stage_is_spent(world, row)
            assert spent, f"job {row['id']} failed in attempt {row['attempt']}: {row['failure']}"


def _stage_is_spent(world: World, row: dict[str, Any]) -> bool:
    stages = [stage for stage in world.stages if stage["id"] == row["id"] and stage["status"] == "failed"]
    return any(stage["attempt"] >= BUDGET - 1 for stage in stages)


def _may_be_tried_again(failure: dict[str, Any]) -> bool:
    return failure["error_class"] in {
        "CONNECT_FAILED",
        "NETWORK_TIMEOUT",
        "CONNECTION_LOST",
        "UPSTREAM_5XX",
        "OVERLOADED",
        "WORKER_LOST",
    }
