"""Breakers in each state, and reports of calls for them."""

from collections.abc import Iterable
from dataclasses import replace

from holdfast.core.providers.breaker import LONGEST_PAUSE, Breaker
from holdfast.core.providers.breaker_state import (
    BreakerState,
    OpenCause,
    OpenPeriod,
    RecordedCall,
    overridden,
)
from holdfast.core.providers.call_reports import BreakerChange, CallOutcome, CallReport, apply_reports
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.permission import take_trial

NOW = 1_000.0


LEASE = 10.0


COOLDOWN = 30.0


BREAKER = Breaker()


GOOD, BAD, IGNORED = CallOutcome.SUCCESS, CallOutcome.FAILURE, CallOutcome.IGNORED


LIMITED, DENIED, EXHAUSTED = CallOutcome.LIMITED, CallOutcome.DENIED, CallOutcome.EXHAUSTED


OPEN = BreakerState(
    generation=2, open_period=OpenPeriod(OpenCause.FAILURES, NOW, NOW + COOLDOWN, failed=11, seen=20)
)


HALF_OPEN = replace(OPEN, open_period=OpenPeriod(OpenCause.FAILURES, NOW - COOLDOWN, NOW, failed=11, seen=20))


ASKED_TO_PAUSE = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.LIMITED, NOW, NOW + 8))


BLOCKED = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.BLOCKED, NOW, NOW + LONGEST_PAUSE))


def an_override(kind: OverrideKind) -> Override:
    return Override(kind, "alice", "maintenance", NOW)


def under(kind: OverrideKind, state: BreakerState | None = None) -> BreakerState:
    return overridden(state or BreakerState(), an_override(kind), NOW)


def after_calls(
    state: BreakerState,
    *outcomes: CallOutcome,
    now: float = NOW,
    breaker: Breaker = BREAKER,
    wait: float | None = None,
) -> BreakerState:
    """Return the state after calls that it let through ended so, whatever it became meanwhile."""
    for outcome in outcomes:
        state, _ = apply_reports(state, breaker, [CallReport(outcome, state.generation, wait=wait)], now)
    return state


def with_trial(
    state: BreakerState, slot: str = "a 1", now: float = NOW, breaker: Breaker = BREAKER
) -> BreakerState:
    taken = take_trial(state, breaker, now, slot=slot)
    assert taken is not None
    return taken


def after_trial(
    state: BreakerState, slot: str, outcome: CallOutcome, now: float = NOW, breaker: Breaker = BREAKER
) -> tuple[BreakerState, list[BreakerChange]]:
    return apply_reports(state, breaker, [CallReport(outcome, state.generation, trial=slot)], now)


def kinds(changes: Iterable[BreakerChange]) -> list[str]:
    return [change.kind for change in changes]


def calls(good: int, bad: int, slow: int = 0) -> list[RecordedCall]:
    return [RecordedCall(NOW, number < bad, number < slow) for number in range(good + bad)]
