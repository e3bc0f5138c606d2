"""Whether a breaker lets a call through, and the slots of its trials."""

from dataclasses import replace

import pytest

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import BreakerState, Ramp, Trial, state_name, with_probe
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission, extend_trials, take_trial
from holdfast.core.providers.ramp import all_released, release, seconds_to_next_release
from tests.unit.breakers import (
    BAD,
    BLOCKED,
    BREAKER,
    COOLDOWN,
    GOOD,
    HALF_OPEN,
    LEASE,
    NOW,
    OPEN,
    after_trial,
    kinds,
    under,
    with_trial,
)


@pytest.mark.clause("BRK-2")
def test_an_open_breaker_lets_no_call_through_before_its_cooldown_is_over() -> None:
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN - 0.001) is CallPermission.NONE
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN - 0.001, released=True) is CallPermission.NONE
    assert take_trial(OPEN, BREAKER, NOW, slot="a 1") is None
    assert call_permission(OPEN, BREAKER, NOW + COOLDOWN) is CallPermission.TRIAL


@pytest.mark.clause("BRK-3")
def test_fifty_workers_at_the_end_of_the_cooldown_get_three_trials_between_them() -> None:
    state, slots = HALF_OPEN, 0
    for worker in range(50):
        taken = take_trial(state, BREAKER, NOW, slot=f"{worker}")
        state, slots = taken or state, slots + (taken is not None)

    assert slots == 3
    assert call_permission(state, BREAKER, NOW) is CallPermission.NONE


@pytest.mark.clause("BRK-3")
def test_the_slot_of_a_trial_whose_worker_died_goes_to_another_and_its_late_verdict_is_dropped() -> None:
    full = with_trial(with_trial(with_trial(HALF_OPEN, "dead 1"), "b 1"), "c 1")
    later = NOW + LEASE
    full = extend_trials(full, {"b 1", "c 1"}, later - 1)
    assert take_trial(full, BREAKER, later - 0.001, slot="d 1") is None

    state = with_trial(full, "d 1", later)

    assert [trial.id for trial in state.trials] == ["b 1", "c 1", "d 1"]
    for verdict in (GOOD, BAD):
        assert after_trial(state, "dead 1", verdict, later) == (state, [])


def test_a_trial_whose_lease_ran_out_is_too_old_to_judge_by_even_if_no_worker_took_its_slot() -> None:
    state = with_trial(HALF_OPEN)
    later = NOW + LEASE

    assert after_trial(state, "a 1", BAD, later) == (state, [])
    assert extend_trials(state, {"a 1"}, later) == state
    assert with_trial(state, "a 1", later).trials == (Trial("a 1", later + LEASE),), "it is taken again"


def test_a_trial_that_takes_long_keeps_its_slot_while_its_worker_lives() -> None:
    state, now = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1"), NOW
    for _ in range(20):
        now += LEASE / 3
        state = extend_trials(state, {"a 1"}, now)

    state, changes = after_trial(state, "a 1", GOOD, now)

    assert kinds(changes) == ["tried"]
    assert after_trial(state, "b 1", GOOD, now) == (state, []), "no worker extended the other"


def test_a_lease_is_extended_in_good_time_and_not_each_time() -> None:
    state = with_trial(HALF_OPEN)

    assert extend_trials(state, {"a 1"}, NOW + 1) == state
    assert extend_trials(state, {"a 1"}, NOW + 6).trials == (Trial("a 1", NOW + 16),)


@pytest.mark.clause("BRK-3")
def test_a_slot_that_no_call_has_is_free_even_if_the_clock_was_set_back_under_it() -> None:
    state, earlier = with_trial(HALF_OPEN, "dead 1"), NOW - 40
    assert call_permission(state, Breaker(trials=1), earlier) is CallPermission.TRIAL

    state = take_trial(state, Breaker(trials=1), earlier, slot="b 1") or HALF_OPEN

    assert state.trials == (Trial("b 1", earlier + LEASE),)


def test_a_call_in_flight_keeps_its_slot_when_the_clock_is_set_back() -> None:
    state = extend_trials(with_trial(HALF_OPEN), {"a 1"}, NOW - 40)

    assert state.trials == (Trial("a 1", NOW - 40 + LEASE),)


def test_asked_again_under_the_same_name_it_is_the_same_slot() -> None:
    state = with_trial(HALF_OPEN)

    assert take_trial(state, BREAKER, NOW + 1, slot="a 1") == state


def test_other_workers_may_have_declared_fewer_trials() -> None:
    state = with_trial(with_trial(HALF_OPEN, "a 1"), "b 1")

    assert call_permission(state, Breaker(trials=1), NOW) is CallPermission.NONE


@pytest.mark.clause("BRK-5")
def test_new_jobs_queue_behind_held_jobs() -> None:
    recovering = BreakerState(ramp=Ramp(NOW, 3))

    assert call_permission(recovering, BREAKER, NOW) is CallPermission.NONE
    assert call_permission(recovering, BREAKER, NOW, released=True) is CallPermission.FREE
    assert call_permission(all_released(recovering), BREAKER, NOW) is CallPermission.FREE
    assert (state_name(recovering, NOW), state_name(all_released(recovering), NOW)) == (
        "recovering",
        "closed",
    )


def test_a_breaker_that_was_opened_later_than_now_was_opened_by_a_clock_that_went_back() -> None:
    hour_ago = NOW - 3_600

    assert call_permission(OPEN, BREAKER, hour_ago) is CallPermission.TRIAL
    assert seconds_to_next_release(OPEN, hour_ago) == 0.0
    assert call_permission(OPEN, BREAKER, NOW) is CallPermission.NONE, (
        "the moment it was opened is none of those"
    )


def test_a_trial_that_was_lent_its_slot_for_too_long_has_it_from_a_clock_that_went_back() -> None:
    lent = replace(HALF_OPEN, trials=tuple(Trial(f"a {number}", NOW + LEASE + 1) for number in range(3)))

    assert call_permission(lent, BREAKER, NOW) is CallPermission.TRIAL
    assert after_trial(lent, "a 1", BAD, NOW) == (lent, [])
    assert call_permission(lent, BREAKER, NOW + 1) is CallPermission.NONE, "a lease can be that long"


@pytest.mark.parametrize(
    "beneath", [OPEN, BLOCKED, under(OverrideKind.OPEN), under(OverrideKind.PAUSE, OPEN)]
)
def test_a_probe_lets_one_job_through_an_open_breaker(beneath: BreakerState) -> None:
    state = with_probe(beneath)

    assert release(state, BREAKER, NOW + 1)[1] == 1
    trying = with_trial(state, "a 1", NOW + 1)

    assert call_permission(trying, BREAKER, NOW + 1) is CallPermission.NONE
    assert release(trying, BREAKER, NOW + 1) == (trying, 0)
