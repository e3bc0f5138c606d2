"""Every crash point of every scenario, and what the walk does when there is something to find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import iscoroutinefunction
from itertools import chain
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from holdfast.ports import Store
from holdfast.stores.sqlite import leasing
from tests.crashpoints.fleet_scenarios import scenario as FLEETS  # noqa: N812 - all of them, by name
from tests.crashpoints.message_scenarios import scenario as MESSAGES  # noqa: N812 - all of them, by name
from tests.crashpoints.planned_fault import PlannedFault, Spot
from tests.crashpoints.walk import TURNS, faults_at, faults_in_turn, play
from tests.simulation.processes import Fault, Moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOOKS = {
    "events",
    "ids_between",
    "queues.recent",
    "reasons",
    "queues.counts",
    "queues.depths",
    "facts",
    "apply_schema",
    "providers.count_held",
    "providers.events",
    "dead_letters.groups",
    "dead_letters.counts",
    "dead_letters.steps",
    "dead_letters.original_args",
    "outbox.get",
    "outbox.find",
    "outbox.stats",
    "outbox.routes",
    "announcements.again",
}
"""What neither workers nor submitters call: it shows a person what there is, or is done before they begin."""


def store_calls() -> Iterator[str]:
    """Name every call of a store, those of its parts as `part.call`."""
    for name, call in vars(Store).items():
        if isinstance(call, property):
            part = get_type_hints(call.fget)["return"]
            yield from (f"{name}.{inner}" for inner, of in vars(part).items() if iscoroutinefunction(of))
        elif iscoroutinefunction(call):
            yield name


FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST", "1"))
EVERY = 9
"""Of the calls of each scenario, one in so many is in the sample; no divisor in common with `TURNS`."""

EVERY_PORT = {
    *(f"store.{name}" for name in store_calls() if name not in LOOKS),
    *("sqlite.write", "sqlite.read", "service.post", "handler", "hook"),
    *("archive.put", "archive.get", "archive.names"),
    *("broker.publish", "broker.close", "broker.subscribe"),
    *("broker.receive", "broker.acknowledge", "broker.requeue"),
    "fleet.send",
}


def walk(*options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crashpoints", *options], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-2_000:]
    return done, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.clause("JOB-1", "sqlite")
@pytest.mark.clause("JOB-3", "sqlite")
@pytest.mark.clause("JOB-4", "sqlite")
@pytest.mark.clause("JOB-5", "sqlite")
@pytest.mark.clause("JOB-6", "sqlite")
@pytest.mark.clause("JOB-7", "sqlite")
@pytest.mark.clause("JOB-10", "sqlite")
@pytest.mark.clause("STG-1", "sqlite")
@pytest.mark.clause("STG-2", "sqlite")
@pytest.mark.clause("IDM-1", "sqlite")
@pytest.mark.clause("IDM-3", "sqlite")
@pytest.mark.clause("SLA-2", "sqlite")
@pytest.mark.clause("SLA-3", "sqlite")
@pytest.mark.clause("SLA-4", "sqlite")
@pytest.mark.clause("DLQ-3", "sqlite")
@pytest.mark.clause("DLQ-4", "sqlite")
@pytest.mark.clause("OPS-1", "sqlite")
@pytest.mark.clause("OPS-2", "sqlite")
@pytest.mark.clause("OUT-1", "sqlite")
@pytest.mark.clause("OUT-3", "sqlite")
@pytest.mark.clause("OUT-4", "sqlite")
@pytest.mark.clause("OUT-5", "sqlite")
def test_no_promise_is_broken_at_any_crash_point() -> None:
    """A sample of the whole walk, which is `make crashpoints`: one fault at every ninth call, in CI others each time."""
    done, report = walk(
        "--turn", str(1 + FIRST % TURNS), "--every", str(EVERY), "--offset", str(FIRST % EVERY)
    )

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert report["violations"] == 0
    assert report["scenarios"] >= 12
    faulty = report["runs"] - report["scenarios"]
    assert abs(faulty - report["port_calls"] / EVERY) <= report["scenarios"] + 0.02 * report["port_calls"]
    # A call that is in flight when the victim stops has a beginning and no end: a consumer waits for messages then, and
    # a slot of a fleet's process for a claim.
    unended = 2 * report["port_calls"] - report["moments"]
    assert 0 <= unended <= report["scenarios"] // 10 + len(MESSAGES) + len(FLEETS)
    assert set(report["calls_by_port"]) == EVERY_PORT


def test_the_turns_divide_the_whole_walk() -> None:
    passed = play("stages", None).passed

    turns = [list(faults_in_turn(passed, turn)) for turn in range(1, 1 + TURNS)]

    assert sorted(chain(*turns)) == sorted(faults_at(passed))
    for turn in turns:
        assert len({(planned.spot.moment, planned.fault) for planned in turn}) == TURNS


def test_a_broken_fence_is_found_and_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(connection: object, rows: Sequence[Any]) -> Sequence[Any]:
        return rows

    monkeypatch.setattr(leasing, "still_leased", all_of_them)
    pauses = [planned for planned in faults_at(play("stages", None).passed) if planned.fault is Fault.PAUSE]

    found = next((outcome for planned in pauses if (outcome := play("stages", planned)).violations), None)

    assert found is not None
    again = play("stages", found.planned)
    assert (again.violations, again.trace) == (found.violations, found.trace)


def test_a_fault_that_is_never_injected_is_a_violation() -> None:
    nowhere = PlannedFault(Spot(10_000, "store.claim", Moment.BEFORE), Fault.CRASH)

    assert play("complete", nowhere).violations == ["the fault was never injected"]


def test_one_fault_is_replayed_by_its_number() -> None:
    done, report = walk(
        "--scenario", "submit", "--call", "6", "--fault", "crash", "--moment", "after", "--trace"
    )

    assert (done.returncode, report["runs"]) == (0, 2)
    assert "victim:0:p crash after #6" in done.stdout
