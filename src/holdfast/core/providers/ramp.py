"""The ramp: the growing steps in which held jobs are released, by the state of the breaker."""

from dataclasses import replace

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import FIRST_RELEASE, BreakerState, Ramp, lets_through
from holdfast.core.providers.permission import trials_allowed

RELEASE_EVERY = 2.0
"""Seconds from one step to the next."""

LARGEST_RELEASE = 100_000
"""The largest step, for a release that goes on because more jobs are held meanwhile."""


def seconds_to_next_release(state: BreakerState, now: float) -> float | None:
    """Return the seconds until held jobs can be released; `None` if unknown."""
    step = now if state.ramp is None else max(state.ramp.at, now)
    if lets_through(state):
        return None if state.ramp is None else step - now
    if state.probes:
        return step - now
    if state.override is not None or state.open_period is None:
        return None
    return step - now if state.open_period.is_over(now) else max(step, state.open_period.until) - now


def release(
    state: BreakerState, breaker: Breaker, now: float, *, to_backup: bool = False
) -> tuple[BreakerState, int]:
    """Return how many held jobs to release now, if any are held, and the state after that step.

    *to_backup*: a backup takes the calls that this breaker refuses.

    While it is open, only as many are released as may be trials. Once it is closed, the steps grow. Each step comes
    a while after the one before *was taken*: steps that all workers missed are not taken at once.
    """
    ramp = state.ramp or Ramp(now, FIRST_RELEASE)  # held just as the release before was over
    if now < ramp.at <= now + RELEASE_EVERY:  # a later time means that the clock was set back
        return state, 0
    if not (to_backup or lets_through(state)):
        size = trials_allowed(state, breaker, now)
        return (replace(state, ramp=Ramp(now + RELEASE_EVERY, FIRST_RELEASE)), size) if size else (state, 0)
    next_size = min(ramp.size * 2, LARGEST_RELEASE)
    return replace(state, ramp=Ramp(now + RELEASE_EVERY, next_size)), ramp.size


def all_released(state: BreakerState) -> BreakerState:
    """End the release: no job is held any more, and new jobs are let through."""
    return replace(state, ramp=None)
