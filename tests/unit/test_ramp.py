"""The growing steps in which held jobs are released."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.providers.breaker_state import BreakerState
from holdfast.core.providers.ramp import LARGEST_RELEASE, Ramp
from holdfast.core.providers.recovery import release
from tests.unit.breakers import BAD, BLOCKED, BREAKER, GOOD, NOW, after_calls, after_trial, with_trial


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
