"""The ramp: the growing steps in which held jobs are released, by the state of the breaker."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.providers.breaker import LONGEST_PAUSE
from holdfast.core.providers.breaker_state import BreakerState, Ramp, with_probe
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.ramp import LARGEST_RELEASE, release, seconds_to_next_release
from tests.unit.breakers import (
    BAD,
    BLOCKED,
    BREAKER,
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


@pytest.mark.clause("BRK-5")
def test_held_jobs_go_out_in_steps_that_double_every_two_seconds() -> None:
    state = after_calls(with_trial(BLOCKED, now=NOW + 300), now=NOW)
    state, _ = after_trial(state, "a 1", GOOD, NOW + 300)

    sizes = []
    for tenth in range(61):
        state, size = release(state, BREAKER, NOW + 300 + tenth / 10)
        sizes += [(tenth / 10, size)] * bool(size)

    assert sizes == [(0.0, 3), (2.0, 6), (4.0, 12), (6.0, 24)]


@pytest.mark.clause("BRK-5")
@given(st.lists(st.floats(0, 3_600), min_size=1, max_size=12))
def test_however_late_a_worker_looks_one_step_is_taken_at_a_time(pauses: list[float]) -> None:
    state, now, taken_at = BreakerState(ramp=Ramp(NOW, 3)), NOW, -1e9
    steps: list[int] = []
    for pause in pauses:
        now += pause
        state, size = release(state, BREAKER, now)
        if size:
            assert now - taken_at >= 2
            steps, taken_at = [*steps, size], now

    assert steps == [3 * 2**number for number in range(len(steps))]


def test_a_job_held_just_as_the_release_ended_begins_another() -> None:
    state, size = release(BreakerState(), BREAKER, NOW)

    assert (size, state.ramp) == (3, Ramp(NOW + 2, 6))


def test_a_release_that_never_ends_stays_within_what_a_store_can_count() -> None:
    state, now, size = BreakerState(), NOW, 0
    for _ in range(100):
        state, size = release(state, BREAKER, now)
        now += 2

    assert size == LARGEST_RELEASE


def test_opening_again_ends_the_ramp() -> None:
    recovering = BreakerState(ramp=Ramp(NOW, 24))

    assert after_calls(recovering, *[BAD] * 10).ramp is None


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
    state, first = release(OPEN, BREAKER, NOW, to_backup=True)
    state, too_early = release(state, BREAKER, NOW + 1, to_backup=True)
    state, second = release(state, BREAKER, NOW + 2, to_backup=True)

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
