"""Whether a breaker lets a call through: freely, as a trial, or not at all."""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import (
    BreakerState,
    OpenCause,
    Trial,
    allows_all_calls,
    lets_through,
)

TRIAL_LEASE = 10.0
"""Seconds for which a trial keeps its slot, unless its worker extends the lease."""


class CallPermission(StrEnum):
    """Whether a call may be made."""

    FREE = "free"
    TRIAL = "trial"
    """As a trial: `take_trial` has to succeed first."""
    NONE = "none"


def call_permission(
    state: BreakerState, breaker: Breaker, now: float, *, released: bool = False
) -> CallPermission:
    """Return whether a call may be made now. *released* jobs were held and have been released for it."""
    if not lets_through(state):
        return CallPermission.TRIAL if trials_allowed(state, breaker, now) else CallPermission.NONE
    # While held jobs are released step by step, new jobs queue behind them.
    return (
        CallPermission.FREE
        if state.ramp is None or released or allows_all_calls(state)
        else CallPermission.NONE
    )


def take_trial(state: BreakerState, breaker: Breaker, now: float, *, slot: str) -> BreakerState | None:
    """Take a trial's slot; `None` if there is none. Repeated with the same *slot*, it takes no second one."""
    under_way = live_trials(state, now)
    if any(trial.id == slot for trial in under_way):
        return state
    if call_permission(state, breaker, now) is not CallPermission.TRIAL:
        return None
    return replace(
        state, trials=(*under_way, Trial(slot, now + TRIAL_LEASE)), probes=max(0, state.probes - 1)
    )


def extend_trials(state: BreakerState, slots: Collection[str], now: float) -> BreakerState:
    """Extend the leases of trials in flight before they expire. An expired one is lost: its call is too old."""
    return replace(
        state,
        trials=tuple(
            trial._replace(expires=now + TRIAL_LEASE)
            if trial.id in slots and _is_due_for_extension(trial, now)
            else trial
            for trial in state.trials
        ),
    )


def _is_due_for_extension(trial: Trial, now: float) -> bool:
    """Whether half of the lease is over, or the clock was set back under it."""
    left = trial.expires - now
    return 0 < left < TRIAL_LEASE / 2 or left > TRIAL_LEASE


def trials_allowed(state: BreakerState, breaker: Breaker, now: float) -> int:
    """Return how many trials may begin: all free slots once half-open, before that those an operator requested."""
    passed = 0 if state.open_period is None else state.open_period.passed
    room = max(0, successes_needed(state, breaker) - passed - len(live_trials(state, now)))
    its_time = state.override is None and state.open_period is not None and state.open_period.is_over(now)
    return room if its_time else min(state.probes, room)


def successes_needed(state: BreakerState, breaker: Breaker) -> int:
    """Return how many trials have to succeed before the breaker closes."""
    failures = state.open_period is not None and state.open_period.cause is OpenCause.FAILURES
    return breaker.trials if failures else 1


def live_trials(state: BreakerState, now: float) -> tuple[Trial, ...]:
    """Return the trials whose lease has not expired."""
    # A lease that seems longer than any is one from before the clock was set back. Its worker extends it if the call
    # is still in flight; otherwise it would block the slot for as long as the clock was set back.
    return tuple(trial for trial in state.trials if now < trial.expires <= now + TRIAL_LEASE)
