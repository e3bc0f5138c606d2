"""The circuit breaker of a provider: which calls it lets through, and how outcomes change its state.

The state is one small value per provider, shared by all workers of a store. Nothing here reads a clock or
writes: each function takes the current state and the store's time, and returns the new state. The caller
writes it only if the stored state has not changed meanwhile, and decides again otherwise; so every
transition happens once, however many workers see its cause.

A breaker opens for one of three reasons: too many calls failed, the provider asked for a pause, or it
refuses every call until an operator acts. All three end alike: after a pause a few trial calls are let
through, and their outcomes decide. Half-open is not stored; it follows from the clock.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.durations import Duration, duration

LONGEST_PAUSE = 300.0
"""Seconds after which a provider that asked for a pause, or refuses every call, is tried again."""

SHORTEST_PAUSE = 1.0
"""Seconds without calls to a provider that asked for a pause without a duration."""

TRIAL_LEASE = 10.0
"""Seconds for which a trial keeps its slot, unless its worker extends the lease."""

DENIALS = 3
"""Refused credentials in a row after which the provider is blocked: one may be a job's own."""

FIRST_RELEASE = 3
RELEASE_EVERY = 2.0
"""How many held jobs are released when a breaker closes; each step after that releases twice as many."""

LARGEST_RELEASE = 100_000
"""The largest step, for a release that goes on because more jobs are held meanwhile."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a provider counts as broken.

    It opens when more than *threshold* of the last *window* calls failed, none of them older than *age*, and
    at least *minimum* are known. After *cooldown*, *trials* calls decide whether it closes. With *slow_after*,
    it opens as well when more than *slow_threshold* of those calls took longer than that. A provider that asks for
    a pause gets *max_wait* at most.
    """

    window: int = 20
    minimum: int = 10
    threshold: float = 0.5
    age: Duration = timedelta(minutes=2)
    cooldown: Duration = timedelta(seconds=30)
    trials: int = 3
    slow_after: Duration | None = None
    slow_threshold: float = 0.8
    max_wait: Duration = timedelta(seconds=LONGEST_PAUSE)

    def __post_init__(self) -> None:
        """Raise `ValueError` for settings that could never open, or never close."""
        if not 1 <= self.minimum <= self.window:
            raise ValueError(
                f"A breaker's minimum must be from 1 to its window of {self.window}, not {self.minimum}; set minimum= too"
            )
        for part in (self.threshold, self.slow_threshold):
            if not 0 <= part < 1:
                raise ValueError(
                    f"A breaker's threshold must be a part of the calls, from 0 to below 1, not {part}"
                )
        if self.trials < 1:
            raise ValueError(f"A breaker needs at least one trial to close again, not {self.trials}")
        for value in (self.age, self.cooldown, self.slow_after):
            if value is not None and duration(value) <= timedelta(0):
                raise ValueError("A breaker's age, cooldown and slow_after must be positive")
        if not timedelta(seconds=LONGEST_PAUSE) <= duration(self.max_wait) <= timedelta(days=365):
            raise ValueError(
                f"max_wait= raises the limit of 300 s, to at most 365 d; {self.max_wait!r} does not"
            )

    def is_slow(self, seconds: float) -> bool:
        """Whether a call of that duration counts as slow."""
        return self.slow_after is not None and seconds > duration(self.slow_after).total_seconds()


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
    """A call that shows whether the provider is back. Its slot is free again at *expires*, whatever its outcome."""

    id: str
    expires: float


class RecordedCall(NamedTuple):
    """A call of the window."""

    at: float
    failed: bool
    slow: bool


class Ramp(NamedTuple):
    """How many held jobs are released next, and when."""

    at: float
    size: int


class OverrideKind(StrEnum):
    """How an operator can override a breaker."""

    OPEN = "open"
    """No call; a backup takes over."""
    CLOSED = "closed"
    """Every call."""
    OBSERVE = "observe"
    """Every call; what the breaker would do is only recorded."""
    PAUSE = "pause"
    """No call, and no backup either: jobs wait."""


class Override(NamedTuple):
    """An operator's override of a breaker."""

    kind: OverrideKind
    actor: str
    reason: str
    at: float


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


class CallPermission(StrEnum):
    """Whether a call may be made."""

    FREE = "free"
    TRIAL = "trial"
    """As a trial: `take_trial` has to succeed first."""
    NONE = "none"


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


def call_permission(
    state: BreakerState, breaker: Breaker, now: float, *, released: bool = False
) -> CallPermission:
    """Return whether a call may be made now. *released* jobs were held and have been released for it."""
    if not lets_through(state):
        return CallPermission.TRIAL if _trials_allowed(state, breaker, now) else CallPermission.NONE
    # While held jobs are released step by step, new jobs queue behind them.
    return (
        CallPermission.FREE
        if state.ramp is None or released or _allows_all_calls(state)
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


def _allows_all_calls(state: BreakerState) -> bool:
    """Whether an override lets every call through."""
    return state.override is not None and state.override.kind in (OverrideKind.CLOSED, OverrideKind.OBSERVE)


def _trials_allowed(state: BreakerState, breaker: Breaker, now: float) -> int:
    """Return how many trials may begin: all free slots once half-open, before that those an operator requested."""
    room = _trial_slots_left(state, breaker, now)
    its_time = state.override is None and state.open_period is not None and state.open_period.is_over(now)
    return room if its_time else min(state.probes, room)


def _successes_needed(state: BreakerState, breaker: Breaker) -> int:
    """Return how many trials have to succeed before the breaker closes."""
    failures = state.open_period is not None and state.open_period.cause is OpenCause.FAILURES
    return breaker.trials if failures else 1


def _trial_slots_left(state: BreakerState, breaker: Breaker, now: float) -> int:
    """Return how many more trials may be in flight."""
    passed = 0 if state.open_period is None else state.open_period.passed
    return max(0, _successes_needed(state, breaker) - passed - len(live_trials(state, now)))


def live_trials(state: BreakerState, now: float) -> tuple[Trial, ...]:
    """Return the trials whose lease has not expired."""
    # A lease that seems longer than any is one from before the clock was set back. Its worker extends it if the call
    # is still in flight; otherwise it would block the slot for as long as the clock was set back.
    return tuple(trial for trial in state.trials if now < trial.expires <= now + TRIAL_LEASE)


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
        if open_period.passed >= _successes_needed(state, breaker)
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


def release(
    state: BreakerState, breaker: Breaker, now: float, *, elsewhere: bool = False
) -> tuple[BreakerState, int]:
    """Return how many held jobs to release now, if any are held, and the state after that step.

    They can go *elsewhere* if a backup takes the calls that this breaker refuses.

    While it is open, only as many are released as may be trials. Once it is closed, the steps grow. Each step comes
    a while after the one before *was taken*: steps that all workers missed are not taken at once.
    """
    ramp = state.ramp or Ramp(now, FIRST_RELEASE)  # held just as the release before was over
    if now < ramp.at <= now + RELEASE_EVERY:  # a later time means that the clock was set back
        return state, 0
    if not (elsewhere or lets_through(state)):
        size = _trials_allowed(state, breaker, now)
        return (replace(state, ramp=Ramp(now + RELEASE_EVERY, FIRST_RELEASE)), size) if size else (state, 0)
    next_size = min(ramp.size * 2, LARGEST_RELEASE)
    return replace(state, ramp=Ramp(now + RELEASE_EVERY, next_size)), ramp.size


def all_released(state: BreakerState) -> BreakerState:
    """End the release: no job is held any more, and new jobs are let through."""
    return replace(state, ramp=None)


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
    return _allows_all_calls(state) or (state.override is None and state.open_period is None)


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
