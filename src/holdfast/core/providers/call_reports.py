"""Reports of calls, and how they change the state of a breaker: the circuit breaker of a provider.

The state is one small value per provider, shared by all workers of a store. Nothing here reads a clock or
writes: each function takes the current state and the store's time, and returns the new state. The caller
writes it only if the stored state has not changed meanwhile, and decides again otherwise; so every
transition happens once, however many workers see its cause.

A breaker opens for one of three reasons: too many calls failed, the provider asked for a pause, or it
refuses every call until an operator acts. All three end alike: after a pause a few trial calls are let
through, and their outcomes decide. Half-open is not stored; it follows from the clock.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.durations import duration
from holdfast.core.providers.breaker import LONGEST_PAUSE, Breaker
from holdfast.core.providers.breaker_state import (
    FIRST_RELEASE,
    BreakerState,
    OpenCause,
    OpenPeriod,
    Ramp,
    RecordedCall,
    failures,
)
from holdfast.core.providers.override import OverrideKind
from holdfast.core.providers.permission import live_trials, successes_needed

SHORTEST_PAUSE = 1.0
"""Seconds without calls to a provider that asked for a pause without a duration."""

DENIALS = 3
"""Refused credentials in a row after which the provider is blocked: one may be a job's own."""


class CallOutcome(StrEnum):
    """What a call says about its provider."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"
    """It says nothing: the caller's own mistake, or a call that was abandoned."""
    LIMITED = "limited"
    DENIED = "denied"
    """The credentials were refused, or the address is wrong: probably for every call."""
    EXHAUSTED = "exhausted"
    """The quota or the credit is spent: no call will succeed before an operator acts."""


class CallReport(NamedTuple):
    """How one call ended. *generation* is that of the state that let it through; a trial names its slot."""

    outcome: CallOutcome
    generation: int
    slow: bool = False
    wait: float | None = None
    trial: str | None = None


class BreakerChange(NamedTuple):
    """A transition of a breaker, for logs, metrics and events."""

    kind: str
    """`opened`, `closed`, or `tried` for a trial that has ended."""
    cause: OpenCause | None
    seconds: float = 0.0
    """Seconds for which the breaker stays open, if it has opened; for which it was open, if it has closed."""
    failed: int = 0
    seen: int = 0
    outcome: CallOutcome | None = None
    """How the trial ended."""
    again: bool = False
    """Whether it stays open for the same cause, which needs no alert."""


def apply_reports(
    state: BreakerState, breaker: Breaker, reports: Iterable[CallReport], now: float
) -> tuple[BreakerState, list[BreakerChange]]:
    """Apply reports of calls, in order; return the new state and its transitions.

    A report of an earlier generation is dropped: a call that was let through before says nothing about now.
    """
    changes: list[BreakerChange] = []
    for report in reports:
        if report.generation != state.generation:
            continue
        before = state
        state = _apply_report(state, breaker, report, now)
        changes += _changes(before, state, report, now)
    return state, changes


def needs_no_write(before: BreakerState, after: BreakerState, breaker: Breaker, now: float) -> bool:
    """Whether the change is not worth a write: the window was full of successful calls, and still is."""
    if len(before.seen) < breaker.window or before != replace(after, seen=before.seen):
        return False
    young = now - duration(breaker.age).total_seconds() / 2
    return before.seen[0].at > young and not any(
        call.failed or call.slow for call in (*before.seen, *after.seen)
    )


def event_details(change: BreakerChange) -> dict[str, Any]:
    """Return a transition as the fields of log events and stored events."""
    details = {
        "cause": change.cause,
        "seconds": round(change.seconds, 3) if change.kind != "tried" else None,
        "failed": change.failed or None,
        "calls": change.seen or None,
        "outcome": change.outcome,
        "again": change.again or None,
    }
    return {name: getattr(value, "value", value) for name, value in details.items() if value is not None}


def _apply_report(state: BreakerState, breaker: Breaker, report: CallReport, now: float) -> BreakerState:
    if report.trial is not None:
        return _apply_trial_report(state, breaker, report, now)
    if state.override is not None and state.override.kind is not OverrideKind.OBSERVE:
        return state
    if state.open_period is None:
        return _apply_call_outcome(state, breaker, report, now)
    # It is only observed, so calls go on: those after the cooldown stand for the trials it would have made.
    return _apply_trial_outcome(state, breaker, report, now) if state.open_period.is_over(now) else state


def _apply_call_outcome(
    state: BreakerState, breaker: Breaker, report: CallReport, now: float
) -> BreakerState:
    """Apply the outcome of a call that a closed breaker let through."""
    match report.outcome:
        case CallOutcome.IGNORED:
            return state
        case CallOutcome.LIMITED | CallOutcome.EXHAUSTED:
            return _open(state, breaker, report, now)
        case CallOutcome.DENIED:
            state = replace(state, denials=state.denials + 1)
            return _open(state, breaker, report, now) if state.denials >= DENIALS else state
        case _:
            state = _record_call(state, breaker, report, now)
            return _open(state, breaker, report, now) if exceeds_threshold(state.seen, breaker) else state


def _record_call(state: BreakerState, breaker: Breaker, report: CallReport, now: float) -> BreakerState:
    """Add a call to the window. Only one that succeeded shows that the credentials are good."""
    failed = report.outcome is CallOutcome.FAILURE
    young = now - duration(breaker.age).total_seconds()
    calls = (*state.seen, RecordedCall(now, failed, report.slow))[-breaker.window :]
    seen = tuple(call for call in calls if call.at > young)
    return replace(state, seen=seen, denials=state.denials if failed else 0)


def _apply_trial_report(
    state: BreakerState, breaker: Breaker, report: CallReport, now: float
) -> BreakerState:
    """Apply the report of a trial, unless its slot has expired."""
    if all(trial.id != report.trial for trial in live_trials(state, now)):
        return state
    state = replace(state, trials=tuple(trial for trial in state.trials if trial.id != report.trial))
    return _apply_trial_outcome(state, breaker, report, now)


def _apply_trial_outcome(
    state: BreakerState, breaker: Breaker, report: CallReport, now: float
) -> BreakerState:
    """Decide by a trial: enough successes close the breaker, any other outcome that is not ignored opens it again."""
    match report.outcome:
        case CallOutcome.IGNORED:
            return state
        case CallOutcome.SUCCESS:
            return _record_success(state, breaker, now)
        case _:
            return _open(state, breaker, report, now)


def _record_success(state: BreakerState, breaker: Breaker, now: float) -> BreakerState:
    if state.open_period is None:
        return state  # a probe of a provider that an operator keeps open: the override stays
    # A successful probe, ahead of time, shows that the other trials need not wait either.
    open_period = state.open_period._replace(
        until=min(state.open_period.until, now), passed=state.open_period.passed + 1
    )
    return (
        _closed(state, now)
        if open_period.passed >= successes_needed(state, breaker)
        else replace(state, open_period=open_period)
    )


def exceeds_threshold(seen: Sequence[RecordedCall], breaker: Breaker) -> bool:
    """Return whether too many calls failed, or were slow.

    >>> calls = [RecordedCall(0.0, failed, False) for failed in [True] * 11 + [False] * 9]
    >>> exceeds_threshold(calls, Breaker()), exceeds_threshold(calls[1:] + calls[-1:], Breaker())
    (True, False)
    """
    if len(seen) < breaker.minimum:
        return False
    failed, slow = sum(call.failed for call in seen), sum(call.slow for call in seen)
    return failed > breaker.threshold * len(seen) or (
        breaker.slow_after is not None and slow > breaker.slow_threshold * len(seen)
    )


def _open(state: BreakerState, breaker: Breaker, report: CallReport, now: float) -> BreakerState:
    cause = _open_cause(state, report)
    since = now if state.open_period is None else state.open_period.since
    failed, seen = failures(state)
    limited = cause is OpenCause.LIMITED  # that says nothing about its health
    return replace(
        state,
        generation=state.generation + 1,
        seen=state.seen if limited else (),
        open_period=OpenPeriod(
            cause, since, now + _open_duration(cause, breaker, report), failed=failed, seen=seen
        ),
        trials=(),
        denials=state.denials if limited else 0,
        ramp=None,
    )


def _open_cause(state: BreakerState, report: CallReport) -> OpenCause:
    """Return why the breaker opens. A provider that asks for a pause during a trial is still not back."""
    match report.outcome:
        case CallOutcome.LIMITED:
            return OpenCause.LIMITED if state.open_period is None else state.open_period.cause
        case CallOutcome.DENIED | CallOutcome.EXHAUSTED:
            return OpenCause.BLOCKED
        case _:
            return OpenCause.FAILURES


def _open_duration(cause: OpenCause, breaker: Breaker, report: CallReport) -> float:
    """Return the seconds until trials are made: what the provider asks for, but at least what the cause requires."""
    asked = report.wait if report.wait is not None and not math.isnan(report.wait) else 0.0
    match cause:
        case OpenCause.LIMITED:
            least = SHORTEST_PAUSE
        case OpenCause.BLOCKED:
            least = LONGEST_PAUSE
        case _:
            least = duration(breaker.cooldown).total_seconds()
    return max(least, min(asked, duration(breaker.max_wait).total_seconds()))


def _closed(state: BreakerState, now: float) -> BreakerState:
    limited = state.open_period is not None and state.open_period.cause is OpenCause.LIMITED
    return replace(
        state,
        generation=state.generation + 1,
        seen=state.seen if limited else (),
        open_period=None,
        trials=(),
        ramp=Ramp(now, FIRST_RELEASE),
        probes=0,
    )


def _changes(
    before: BreakerState, after: BreakerState, report: CallReport, now: float
) -> list[BreakerChange]:
    changes: list[BreakerChange] = []
    if len(after.trials) < len(before.trials):
        cause = None if before.open_period is None else before.open_period.cause
        changes.append(BreakerChange("tried", cause, outcome=report.outcome))
    if after.open_period is not None and after.generation != before.generation:
        cause, _, until, _, failed, seen = after.open_period
        again = before.open_period is not None and before.open_period.cause is cause
        if before.open_period is not None:
            failed = seen = 0  # they have been reported: now it was a trial
        changes.append(BreakerChange("opened", cause, until - now, failed, seen, again=again))
    if before.open_period is not None and after.open_period is None:
        changes.append(BreakerChange("closed", before.open_period.cause, now - before.open_period.since))
    return changes
