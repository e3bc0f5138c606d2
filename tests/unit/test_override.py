"""What an operator's override makes of a breaker."""

from dataclasses import replace

import pytest

from holdfast.core.providers.breaker_state import BreakerState, Ramp, overridden, state_name, with_probe
from holdfast.core.providers.call_reports import CallOutcome, CallReport, apply_reports
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.ramp import release
from tests.unit.breakers import (
    ASKED_TO_PAUSE,
    BAD,
    BLOCKED,
    BREAKER,
    COOLDOWN,
    DENIED,
    EXHAUSTED,
    GOOD,
    NOW,
    OPEN,
    after_calls,
    after_trial,
    kinds,
    under,
    with_trial,
)


@pytest.mark.parametrize("beneath", [BreakerState(), OPEN, BLOCKED, ASKED_TO_PAUSE])
@pytest.mark.parametrize(
    ("kind", "expected", "name"),
    [
        (OverrideKind.OPEN, CallPermission.NONE, "forced open"),
        (OverrideKind.CLOSED, CallPermission.FREE, "forced closed"),
        (OverrideKind.OBSERVE, CallPermission.FREE, "observed"),
        (OverrideKind.PAUSE, CallPermission.NONE, "paused"),
    ],
)
def test_an_override_applies_whatever_the_breaker_says(
    beneath: BreakerState, kind: OverrideKind, expected: CallPermission, name: str
) -> None:
    state = under(kind, beneath)

    assert call_permission(state, BREAKER, NOW + 1e6) is expected
    assert state_name(state, NOW) == name
    assert release(state, BREAKER, NOW)[1] == (3 if expected is CallPermission.FREE else 0)


@pytest.mark.parametrize("kind", [OverrideKind.CLOSED, OverrideKind.OBSERVE])
def test_an_override_that_lets_every_call_through_holds_no_job_when_it_is_cleared(kind: OverrideKind) -> None:
    cleared = overridden(under(kind), None, NOW + 1)

    assert call_permission(cleared, BREAKER, NOW + 1) is CallPermission.FREE
    assert state_name(cleared, NOW + 1) == "closed"


@pytest.mark.parametrize("kind", [OverrideKind.OPEN, OverrideKind.PAUSE])
def test_after_an_override_that_let_no_call_through_jobs_are_released_step_by_step(
    kind: OverrideKind,
) -> None:
    cleared = overridden(under(kind), None, NOW + 1)

    assert cleared.ramp == Ramp(NOW + 1, 3)


def test_an_override_leaves_a_release_in_progress_as_it_is() -> None:
    recovering = BreakerState(ramp=Ramp(NOW + 1, 24))

    assert under(OverrideKind.OBSERVE, recovering).ramp == recovering.ramp
    assert under(OverrideKind.PAUSE, recovering).ramp is None


def test_calls_in_flight_say_nothing_about_what_follows_an_override() -> None:
    state = under(OverrideKind.OBSERVE)

    assert apply_reports(state, BREAKER, [CallReport(EXHAUSTED, state.generation - 1)], NOW) == (state, [])


def test_forcing_it_closed_states_that_the_provider_is_healthy() -> None:
    suspected = replace(after_calls(BreakerState(), *[BAD] * 9, DENIED, DENIED), open_period=OPEN.open_period)

    state = overridden(under(OverrideKind.CLOSED, suspected), None, NOW)

    assert (state.open_period, state.seen, state.denials) == (None, (), 0)
    assert state_name(state, NOW) == "recovering", "held jobs are released step by step"


def test_while_it_is_forced_closed_no_outcome_counts() -> None:
    state = under(OverrideKind.CLOSED)

    assert after_calls(state, *[BAD] * 20, EXHAUSTED) == state


def test_an_override_that_is_cleared_leaves_the_breaker_as_it_was() -> None:
    state = overridden(under(OverrideKind.PAUSE, OPEN), None, NOW + 1)

    assert (state.open_period, state.ramp, state.override) == (OPEN.open_period, None, None)
    assert state.generation == OPEN.generation + 2


def test_under_observation_the_breaker_opens_and_closes_on_paper_while_every_call_is_made() -> None:
    state, opened = apply_reports(under(OverrideKind.OBSERVE), BREAKER, [CallReport(BAD, 2)] * 10, NOW)
    before_the_cooldown = after_calls(state, GOOD, GOOD, GOOD, now=NOW + 1)
    closed = after_calls(state, GOOD, GOOD, GOOD, now=NOW + COOLDOWN)

    assert kinds(opened) == ["opened"]
    assert before_the_cooldown == state
    assert (state.open_period is None, closed.open_period is None) == (False, True)
    assert {call_permission(one, BREAKER, NOW) for one in (state, closed)} == {CallPermission.FREE}


def test_an_override_applies_whatever_a_probe_finds_out() -> None:
    trying = with_trial(with_probe(under(OverrideKind.OPEN)))

    assert [state_name(after_trial(trying, "a 1", outcome)[0], NOW) for outcome in CallOutcome] == [
        "forced open"
    ] * 6
    good, bad = (after_trial(trying, "a 1", outcome)[0] for outcome in (GOOD, BAD))
    assert state_name(overridden(good, None, NOW), NOW) == "recovering"
    assert state_name(overridden(bad, None, NOW), NOW) == "open"
