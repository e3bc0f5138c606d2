"""How many held jobs are released, and when, by the state of the breaker."""

from dataclasses import replace

import pytest

from holdfast.core.providers.breaker import LONGEST_PAUSE
from holdfast.core.providers.breaker_state import BreakerState, with_probe
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.ramp import Ramp
from holdfast.core.providers.recovery import release, seconds_to_next_release
from tests.unit.breakers import BLOCKED, BREAKER, COOLDOWN, HALF_OPEN, NOW, OPEN, under, with_trial


@pytest.mark.clause("BRK-5")
def test_while_it_is_open_only_as_many_jobs_are_released_as_may_be_trials() -> None:
    trying = with_trial(HALF_OPEN)

    assert [release(state, BREAKER, NOW)[1] for state in (OPEN, HALF_OPEN, trying, BLOCKED)] == [0, 3, 2, 0]
    assert release(BLOCKED, BREAKER, NOW + LONGEST_PAUSE)[1] == 1


def test_while_it_is_open_too_one_step_is_taken_at_a_time() -> None:
    once, size = release(HALF_OPEN, BREAKER, NOW)
    assert size == 3

    assert release(once, BREAKER, NOW + 1.9) == (once, 0)
    assert seconds_to_next_release(once, NOW) == 2.0
    assert release(once, BREAKER, NOW + 2)[1] == 3, "no trial was taken: others may try"


def test_jobs_that_can_go_to_a_backup_go_in_growing_steps_past_an_open_breaker() -> None:
    state, first = release(OPEN, BREAKER, NOW, elsewhere=True)
    state, too_early = release(state, BREAKER, NOW + 1, elsewhere=True)
    state, second = release(state, BREAKER, NOW + 2, elsewhere=True)

    assert (first, too_early, second) == (3, 0, 6)
    assert call_permission(state, BREAKER, NOW + 2, released=True) is CallPermission.NONE, "not through it"


@pytest.mark.parametrize(
    "state", [BreakerState(ramp=Ramp(NOW + 3_600, 6)), replace(HALF_OPEN, ramp=Ramp(NOW + 3_600, 3))]
)
def test_a_step_that_is_further_off_than_steps_are_was_recorded_by_a_clock_that_went_back(
    state: BreakerState,
) -> None:
    after, size = release(state, BREAKER, NOW)

    assert size > 0
    assert after.ramp is not None
    assert after.ramp.at == NOW + 2


def test_when_the_next_held_jobs_can_go_follows_from_the_breaker() -> None:
    moves = [
        (BreakerState(), None),
        (BreakerState(ramp=Ramp(NOW + 2, 6)), 2.0),
        (BreakerState(ramp=Ramp(NOW - 5, 6)), 0.0),
        (OPEN, COOLDOWN),
        (HALF_OPEN, 0.0),
        (with_probe(OPEN), 0.0),
        (under(OverrideKind.PAUSE, OPEN), None),
        (with_probe(under(OverrideKind.PAUSE)), 0.0),
        (replace(with_probe(OPEN), ramp=Ramp(NOW + 2, 3)), 2.0),
        (replace(OPEN, ramp=Ramp(NOW + 2, 3)), COOLDOWN),
        (under(OverrideKind.OBSERVE, OPEN), 0.0),
    ]

    assert [seconds_to_next_release(state, NOW) for state, _ in moves] == [move for _, move in moves]
