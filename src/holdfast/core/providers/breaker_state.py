"""The state of a breaker, which all workers share: open, closed or recovering, and what an operator has set.

Half-open is not stored; it follows from the clock.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.providers.override import Override, OverrideKind

FIRST_RELEASE = 3
"""How many held jobs are released when a breaker closes; each step after that releases twice as many."""


class OpenCause(StrEnum):
    """Why a breaker is open."""

    FAILURES = "failures"
    LIMITED = "limited"
    BLOCKED = "blocked"


class OpenPeriod(NamedTuple):
    """Why a breaker is open, since when calls are refused, and until when no trial is made."""

    cause: OpenCause
    since: float
    until: float
    passed: int = 0
    """Trials that succeeded since it last opened."""
    failed: int = 0
    seen: int = 0
    """How many of the *seen* calls had failed then."""

    def is_over(self, now: float) -> bool:
        """Whether trials may be made: also at a time before *since*, which means that the clock was set back."""
        return now >= self.until or now < self.since


class Trial(NamedTuple):
    """A call that shows whether the provider is back. Its slot is free again at *expires*, with or without an outcome."""

    id: str
    expires: float


class Ramp(NamedTuple):
    """How many held jobs are released next, and when."""

    at: float
    size: int


class RecordedCall(NamedTuple):
    """A call of the window."""

    at: float
    failed: bool
    slow: bool


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The state of a breaker, shared by all workers. *generation* counts its transitions."""

    generation: int = 1
    seen: tuple[RecordedCall, ...] = ()
    open_period: OpenPeriod | None = None
    trials: tuple[Trial, ...] = ()
    denials: int = 0
    ramp: Ramp | None = None
    override: Override | None = None
    probes: int = 0
    """Trials that an operator asked for ahead of time."""

    @property
    def is_closed(self) -> bool:
        """Whether every call goes through: no override, and no held jobs that are released first."""
        return self.open_period is None and self.override is None and self.ramp is None


def allows_all_calls(state: BreakerState) -> bool:
    """Whether an override lets every call through."""
    return state.override is not None and state.override.kind in (OverrideKind.CLOSED, OverrideKind.OBSERVE)


def overridden(state: BreakerState, override: Override | None, now: float) -> BreakerState:
    """Set an operator's override, or clear it; outcomes of calls in flight are dropped.

    Forcing it closed states that the provider is healthy: the recorded failures are dropped.
    """
    let_through_before = lets_through(state)
    state = replace(state, generation=state.generation + 1, override=override, trials=(), probes=0)
    if override is not None and override.kind is OverrideKind.CLOSED:
        state = replace(state, open_period=None, seen=(), denials=0)
    if not lets_through(state):
        return replace(state, ramp=None)
    return state if let_through_before else replace(state, ramp=Ramp(now, FIRST_RELEASE))


def lets_through(state: BreakerState) -> bool:
    """Whether calls go through that are not trials."""
    return allows_all_calls(state) or (state.override is None and state.open_period is None)


def with_probe(state: BreakerState) -> BreakerState:
    """Request one trial ahead of time. If calls go through anyway, nothing changes."""
    return state if lets_through(state) else replace(state, probes=state.probes + 1)


def state_name(state: BreakerState, now: float) -> str:
    """Name the state of a breaker, for display and metrics.

    >>> state_name(BreakerState(), 0.0)
    'closed'
    """
    if state.override is not None:
        return _OVERRIDE_STATES[state.override.kind]
    if state.open_period is None:
        return "closed" if state.ramp is None else "recovering"
    if state.open_period.cause is OpenCause.FAILURES:
        return "half-open" if state.open_period.is_over(now) else "open"
    return state.open_period.cause.value


_OVERRIDE_STATES = {
    OverrideKind.OPEN: "forced open",
    OverrideKind.CLOSED: "forced closed",
    OverrideKind.OBSERVE: "observed",
    OverrideKind.PAUSE: "paused",
}

STATES = ("closed", "recovering", "open", "half-open", "limited", "blocked", *_OVERRIDE_STATES.values())
"""Every state that a breaker can be in."""


def failures(state: BreakerState) -> tuple[int, int]:
    """Return the number of failed calls and of all calls: in the window, or when the breaker opened."""
    if state.open_period is not None:
        return state.open_period.failed, state.open_period.seen
    return sum(call.failed for call in state.seen), len(state.seen)


def failure_rate(state: BreakerState) -> float:
    """Return the failed part of those calls, from 0 to 1."""
    failed, calls = failures(state)
    return failed / calls if calls else 0.0


def open_seconds(state: BreakerState, now: float) -> float:
    """Return for how many seconds calls have been refused, by the breaker or by an override."""
    if lets_through(state):
        return 0.0
    opened_at = now if state.open_period is None else state.open_period.since
    overridden_at = now if state.override is None else state.override.at
    return now - min(opened_at, overridden_at)


def calls_for_backup(state: BreakerState) -> bool:
    """Whether a backup takes the calls that this breaker refuses: not while the provider only asks for a pause."""
    if state.override is not None:
        return state.override.kind is OverrideKind.OPEN
    return state.open_period is not None and state.open_period.cause is not OpenCause.LIMITED
