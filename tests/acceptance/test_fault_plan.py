"""A chaos run injects enough faults of each kind."""

from __future__ import annotations

import random
from collections import Counter

from tests.acceptance.harness.fault_plan import NETWORK, plan

FIVE_MINUTES = 300.0
A_TEST = 10.0


def test_five_minutes_on_postgresql_leave_nothing_out() -> None:
    faults = plan("postgres", FIVE_MINUTES, random.Random(1))

    counts = Counter(fault.kind for fault in faults)
    assert counts["kill"] >= 60
    assert counts["zombie"] >= 20
    assert counts["crash"] >= 10
    assert sum(counts[kind] for kind in NETWORK) >= 20
    assert min(counts[kind] for kind in (*NETWORK, "power_cut", "clock")) >= 2


def test_five_minutes_on_sqlite_fill_the_disk_again_and_again() -> None:
    counts = Counter(fault.kind for fault in plan("sqlite", FIVE_MINUTES, random.Random(1)))

    assert counts.keys() == {"kill", "zombie", "disk_full"}
    assert (counts["kill"] >= 60, counts["zombie"] >= 20, counts["disk_full"] >= 5) == (True, True, True)


def test_a_short_run_has_one_of_each_kind() -> None:
    assert {"kill", "zombie", "crash", "clock", *NETWORK} <= {
        fault.kind for fault in plan("postgres", A_TEST, random.Random(1))
    }
    assert {fault.kind for fault in plan("sqlite", A_TEST, random.Random(1))} == {
        "kill",
        "zombie",
        "disk_full",
    }


def test_faults_are_planned_in_order_and_within_the_time_and_impossible_ones_are_left_out() -> None:
    faults = plan("postgres", A_TEST, random.Random(1), without=["clock"])

    assert faults == sorted(faults)
    assert all(0 <= fault.at <= A_TEST for fault in faults)
    assert "clock" not in {fault.kind for fault in faults}
    assert faults == plan("postgres", A_TEST, random.Random(1), without=["clock"])
