"""What an operator's override makes of a breaker."""

from dataclasses import replace

import pytest

from holdfast.core.providers.breaker_state import (
    BreakerState,
    overridden,
    state_name,
    with_probe,
)
from holdfast.core.providers.call_reports import (
    CallOutcome,
    CallReport,
    apply_reports,
)
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import CallPermission, call_permission
from holdfast.core.providers.ramp import Ramp
from holdfast.core.providers.recovery import release
from tests.unit.breakers import (
    BAD,
    BLOCKED,
    BREAKER,
    COOLDOWN,
    DENIED,
    EXHAUSTED,
    GOOD,
    NOW,
    OPEN,
    PAUSED_FOR_A_HINT,
    judged,
    kinds,
    told,
    under,
    with_trial,
)


@pytest.mark.parametrize("beneath", [BreakerState(), OPEN, BLOCKED, PAUSED_FOR_A_HINT])
@pytest.mark.parametrize(
    ("command", "expected", "state"),
    [
        (OverrideKind.OPEN, CallPermission.NONE, "forced open"),
        (OverrideKind.CLOSED, CallPermission.FREE, "forced closed"),
        (OverrideKind.OBSERVE, CallPermission.FREE, "observed"),
        (OverrideKind.PAUSE, CallPermission.NONE, "paused"),
    ],
)
def test_an_order_stands_whatever_the_breaker_says(
    beneath: BreakerState, command: OverrideKind, expected: CallPermission, state: str
) -> None:
    gate = under(command, beneath)

    assert call_permission(gate, BREAKER, NOW + 1e6) is expected
    assert state_name(gate, NOW) == state
    assert release(gate, BREAKER, NOW)[1] == (3 if expected is CallPermission.FREE else 0)


@pytest.mark.parametrize("command", [OverrideKind.CLOSED, OverrideKind.OBSERVE])
def test_an_order_that_lets_everybody_through_holds_nobody_when_it_is_lifted(command: OverrideKind) -> None:
    lifted = overridden(under(command), None, NOW + 1)

    assert call_permission(lifted, BREAKER, NOW + 1) is CallPermission.FREE
    assert state_name(lifted, NOW + 1) == "closed"


@pytest.mark.parametrize("command", [OverrideKind.OPEN, OverrideKind.PAUSE])
def test_an_order_that_let_nobody_through_is_lifted_step_by_step(command: OverrideKind) -> None:
    lifted = overridden(under(command), None, NOW + 1)

    assert lifted.ramp == Ramp(NOW + 1, 3)


def test_an_order_leaves_a_release_under_way_as_it_is() -> None:
    recovering = BreakerState(ramp=Ramp(NOW + 1, 24))

    assert under(OverrideKind.OBSERVE, recovering).ramp == recovering.ramp
    assert under(OverrideKind.PAUSE, recovering).ramp is None


def test_calls_under_way_say_nothing_about_what_follows_an_order() -> None:
    gate = under(OverrideKind.OBSERVE)

    assert apply_reports(gate, BREAKER, [CallReport(EXHAUSTED, gate.generation - 1)], NOW) == (gate, [])


def test_whoever_closes_it_says_that_the_provider_is_well() -> None:
    suspected = replace(told(BreakerState(), *[BAD] * 9, DENIED, DENIED), open_period=OPEN.open_period)

    gate = overridden(under(OverrideKind.CLOSED, suspected), None, NOW)

    assert (gate.open_period, gate.seen, gate.denials) == (None, (), 0)
    assert state_name(gate, NOW) == "recovering", "those who were held go out step by step"


def test_while_it_is_forced_closed_no_outcome_counts() -> None:
    gate = under(OverrideKind.CLOSED)

    assert told(gate, *[BAD] * 20, EXHAUSTED) == gate


def test_an_order_that_is_lifted_leaves_the_breaker_as_it_was() -> None:
    gate = overridden(under(OverrideKind.PAUSE, OPEN), None, NOW + 1)

    assert (gate.open_period, gate.ramp, gate.override) == (OPEN.open_period, None, None)
    assert gate.generation == OPEN.generation + 2


def test_under_observation_the_breaker_opens_and_closes_on_paper_while_every_call_is_made() -> None:
    gate, opened = apply_reports(under(OverrideKind.OBSERVE), BREAKER, [CallReport(BAD, 2)] * 10, NOW)
    before_the_cooldown = told(gate, GOOD, GOOD, GOOD, now=NOW + 1)
    closed = told(gate, GOOD, GOOD, GOOD, now=NOW + COOLDOWN)

    assert kinds(opened) == ["opened"]
    assert before_the_cooldown == gate
    assert (gate.open_period is None, closed.open_period is None) == (False, True)
    assert {call_permission(one, BREAKER, NOW) for one in (gate, closed)} == {CallPermission.FREE}


def test_an_order_stands_whatever_a_probe_finds_out() -> None:
    trying = with_trial(with_probe(under(OverrideKind.OPEN)))

    assert [state_name(judged(trying, "a 1", outcome)[0], NOW) for outcome in CallOutcome] == [
        "forced open"
    ] * 6
    good, bad = (judged(trying, "a 1", outcome)[0] for outcome in (GOOD, BAD))
    assert state_name(overridden(good, None, NOW), NOW) == "recovering"
    assert state_name(overridden(bad, None, NOW), NOW) == "open"
