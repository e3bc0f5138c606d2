"""What the state of a breaker says to displays, metrics and backups."""

import pytest

from holdfast.core.providers.breaker_state import (
    STATES,
    BreakerState,
    OpenCause,
    Ramp,
    calls_for_backup,
    failure_rate,
    failures,
    open_seconds,
    state_name,
    with_probe,
)
from holdfast.core.providers.call_reports import BreakerChange
from holdfast.core.providers.override import OverrideKind
from tests.unit.breakers import (
    ASKED_TO_PAUSE,
    BAD,
    BLOCKED,
    COOLDOWN,
    GOOD,
    HALF_OPEN,
    NOW,
    OPEN,
    after_calls,
    after_trial,
    under,
    with_trial,
)


def test_only_a_breaker_without_an_override_or_a_release_is_closed() -> None:
    others = [OPEN, BreakerState(ramp=Ramp(NOW, 3)), *(under(kind) for kind in OverrideKind)]

    assert BreakerState().is_closed
    assert not any(state.is_closed for state in others)


@pytest.mark.parametrize(
    "state",
    [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        under(OverrideKind.CLOSED),
        under(OverrideKind.OBSERVE),
    ],
)
def test_where_calls_go_through_anyway_there_is_nothing_to_probe(state: BreakerState) -> None:
    assert with_probe(state) == state


@pytest.mark.clause("BRK-6")
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (BreakerState(), False),
        (BreakerState(ramp=Ramp(NOW, 3)), False),
        (OPEN, True),
        (HALF_OPEN, True),
        (BLOCKED, True),
        (ASKED_TO_PAUSE, False),
        (under(OverrideKind.OPEN), True),
        (under(OverrideKind.PAUSE, OPEN), False),
        (under(OverrideKind.OBSERVE, OPEN), False),
        (under(OverrideKind.CLOSED, OPEN), False),
    ],
)
def test_a_backup_takes_over_from_a_provider_that_is_broken_and_not_from_one_that_asks_for_a_pause(
    state: BreakerState, expected: bool
) -> None:
    assert calls_for_backup(state) is expected


def test_every_state_has_a_name() -> None:
    open_ones = [OPEN, HALF_OPEN, ASKED_TO_PAUSE, BLOCKED]
    states = [
        BreakerState(),
        BreakerState(ramp=Ramp(NOW, 3)),
        *open_ones,
        *(under(kind) for kind in OverrideKind),
    ]

    assert [state_name(state, NOW) for state in states] == list(STATES)


def test_the_failure_rate_is_that_of_the_window_and_while_it_is_open_that_which_opened_it() -> None:
    assert failure_rate(BreakerState()) == 0.0
    assert failure_rate(after_calls(BreakerState(), BAD, GOOD, GOOD, GOOD)) == 0.25
    assert failures(OPEN) == (11, 20)
    again, changes = after_trial(with_trial(HALF_OPEN), "a 1", BAD)
    assert failures(again) == (11, 20)
    stays = BreakerChange("opened", OpenCause.FAILURES, COOLDOWN, again=True)
    assert changes[-1] == stays, "the calls were reported before"


@pytest.mark.parametrize(
    ("state", "seconds"),
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
    state: BreakerState, seconds: float
) -> None:
    assert open_seconds(state, NOW + 60) == seconds
