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
from holdfast.core.providers.call_reports import (
    BreakerChange,
    CallOutcome,
    CallReport,
    apply_reports,
)
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


PAUSED_FOR_A_HINT = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.LIMITED, NOW, NOW + 8))


BLOCKED = BreakerState(generation=2, open_period=OpenPeriod(OpenCause.BLOCKED, NOW, NOW + LONGEST_PAUSE))


def an_order(command: OverrideKind) -> Override:
    return Override(command, "alice", "maintenance", NOW)


def under(command: OverrideKind, gate: BreakerState | None = None) -> BreakerState:
    return overridden(gate or BreakerState(), an_order(command), NOW)


def told(
    gate: BreakerState,
    *outcomes: CallOutcome,
    now: float = NOW,
    breaker: Breaker = BREAKER,
    wait: float | None = None,
) -> BreakerState:
    """The gate after calls that it let through ended so, whatever became of it meanwhile."""
    for outcome in outcomes:
        gate, _ = apply_reports(gate, breaker, [CallReport(outcome, gate.generation, wait=wait)], now)
    return gate


def with_trial(
    gate: BreakerState, slot: str = "a 1", now: float = NOW, breaker: Breaker = BREAKER
) -> BreakerState:
    taken = take_trial(gate, breaker, now, slot=slot)
    assert taken is not None
    return taken


def judged(
    gate: BreakerState, slot: str, outcome: CallOutcome, now: float = NOW, breaker: Breaker = BREAKER
) -> tuple[BreakerState, list[BreakerChange]]:
    return apply_reports(gate, breaker, [CallReport(outcome, gate.generation, trial=slot)], now)


def kinds(changes: Iterable[BreakerChange]) -> list[str]:
    return [change.kind for change in changes]


def calls(good: int, bad: int, slow: int = 0) -> list[RecordedCall]:
    return [RecordedCall(NOW, number < bad, number < slow) for number in range(good + bad)]
