"""What the state of a breaker says to displays, metrics and backups."""

import pytest

from holdfast.core.providers.breaker_state import (
    STATES,
    BreakerState,
    OpenCause,
    calls_for_backup,
    failure_rate,
    failures,
    open_seconds,
    state_name,
    with_probe,
)
from holdfast.core.providers.call_reports import (
    BreakerChange,
)
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.ramp import Ramp
from tests.unit.breakers import (
    BAD,
    BLOCKED,
    COOLDOWN,
    GOOD,
    HALF_OPEN,
    NOW,
    OPEN,
    PAUSED_FOR_A_HINT,
    judged,
    told,
    under,
    with_trial,
)


def test_only_a_gate_without_orders_or_a_release_is_clear() -> None:
    others = [OPEN, BreakerState(ramp=Ramp(NOW, 3)), *(under(command) for command in OverrideKind)]

    assert BreakerState().is_closed
    assert not any(gate.is_closed for gate in others)


@pytest.mark.parametrize(
    "gate",
    [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        under(OverrideKind.CLOSED),
        under(OverrideKind.OBSERVE),
    ],
)
def test_where_calls_go_through_anyway_there_is_nothing_to_probe(gate: BreakerState) -> None:
    assert with_probe(gate) == gate


@pytest.mark.clause("BRK-6")
@pytest.mark.parametrize(
    ("gate", "wanted"),
    [
        (BreakerState(), False),
        (BreakerState(ramp=Ramp(NOW, 3)), False),
        (OPEN, True),
        (HALF_OPEN, True),
        (BLOCKED, True),
        (PAUSED_FOR_A_HINT, False),
        (under(OverrideKind.OPEN), True),
        (under(OverrideKind.PAUSE, OPEN), False),
        (under(OverrideKind.OBSERVE, OPEN), False),
        (under(OverrideKind.CLOSED, OPEN), False),
    ],
)
def test_a_backup_takes_over_from_a_provider_that_is_broken_and_not_from_one_that_asks_for_patience(
    gate: BreakerState, wanted: bool
) -> None:
    assert calls_for_backup(gate) is wanted


def test_every_state_has_a_name() -> None:
    shut = [OPEN, HALF_OPEN, PAUSED_FOR_A_HINT, BLOCKED]
    gates = [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        *shut,
        *(under(command) for command in OverrideKind),
    ]

    assert [state_name(gate, NOW) for gate in gates] == list(STATES)


def test_the_failure_rate_is_that_of_the_window_and_while_it_is_shut_that_which_shut_it() -> None:
    assert failure_rate(BreakerState()) == 0.0
    assert failure_rate(told(BreakerState(), BAD, GOOD, GOOD, GOOD)) == 0.25
    assert failures(OPEN) == (11, 20)
    again, changes = judged(with_trial(HALF_OPEN), "a 1", BAD)
    assert failures(again) == (11, 20)
    stays = BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, again=True)
    assert changes[-1] == stays, "the calls were told before"


@pytest.mark.parametrize(
    ("gate", "seconds"),
    [
        (BreakerState(), 0),
        (OPEN, 60),
        (HALF_OPEN, 90),
        (under(OverrideKind.OBSERVE, OPEN), 0),
        (under(OverrideKind.PAUSE), 60),
        (under(OverrideKind.PAUSE, HALF_OPEN), 90),
    ],
)
def test_how_long_calls_are_turned_away_counts_from_the_first_reason(
    gate: BreakerState, seconds: float
) -> None:
    assert open_seconds(gate, NOW + 60) == seconds
