"""Every crash point of every scenario, and what the walk does when there is something to find."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import iscoroutinefunction
from itertools import chain
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from holdfast.ports import Store
from holdfast.stores.sqlite import leasing
from tests.crashpoints.strikes import Spot, Strike
from tests.crashpoints.walk import TURNS, play, play_each, strikes_at, strikes_in_turn
from tests.simulation.processes import Fault, Moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOOKS = {
    "events",
    "ids_between",
    "queues.recent",
    "keys_of",
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


EVERY_PORT = {
    *(f"store.{name}" for name in store_calls() if name not in LOOKS),
    *("sqlite.write", "sqlite.read", "service.post", "handler", "hook"),
    *("archive.put", "archive.get", "archive.names"),
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
def test_no_promise_is_broken_at_any_crash_point() -> None:
    """An eighth of the whole walk, which is `make crashpoints`: every call, struck once."""
    done, told = walk("--turn", "1")

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert told["violations"] == 0
    assert told["scenarios"] >= 12
    assert told["scenarios"] + 0.98 * told["port_calls"] <= told["runs"]
    assert told["runs"] <= told["scenarios"] + told["port_calls"]
    # What a loop has under way when its victim stops has a beginning and no end.
    assert 0 <= 2 * told["port_calls"] - told["moments"] <= told["scenarios"] // 10
    assert set(told["calls_by_port"]) == EVERY_PORT


def test_the_turns_divide_the_whole_walk() -> None:
    passed = play("stages", None).passed

    turns = [list(strikes_in_turn(passed, turn)) for turn in range(1, 1 + TURNS)]

    assert sorted(chain(*turns)) == sorted(strikes_at(passed))
    for turn in turns:
        assert len({(strike.spot.moment, strike.fault) for strike in turn}) == TURNS


def test_a_broken_fence_is_found_and_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(connection: object, rows: Sequence[Any]) -> Sequence[Any]:
        return rows

    monkeypatch.setattr(leasing, "held", all_of_them)
    pauses = [strike for strike in strikes_at(play("stages", None).passed) if strike.fault is Fault.PAUSE]

    found = [outcome for outcome in play_each("stages", pauses) if outcome.violations]

    assert found
    again = play("stages", found[0].strike)
    assert (again.violations, again.trace) == (found[0].violations, found[0].trace)


def test_a_blow_that_never_falls_is_a_violation() -> None:
    nowhere = Strike(Spot(10_000, "store.claim", Moment.BEFORE), Fault.CRASH)

    assert play("complete", nowhere).violations == ["the blow never fell"]


def test_one_blow_is_replayed_by_its_number() -> None:
    done, told = walk(
        "--scenario", "submit", "--call", "6", "--fault", "crash", "--moment", "after", "--trace"
    )

    assert (done.returncode, told["runs"]) == (0, 2)
    assert "victim:0:p crash after #6" in done.stdout
