"""When calls to a provider are let through: its gate, and what outcomes make of it.

A gate is one small value per provider, shared by all workers of a store. Nothing here reads a clock or
writes: each function takes the gate as it is and the store's time, and returns the gate as it ought to be.
Whoever calls it writes the new one only if nobody else has changed the old one meanwhile, and decides again
otherwise; so every transition happens once, however many workers see its cause.

A gate is shut for one of three reasons: too many calls failed, the provider asked to be left alone, or it
refuses everybody until a person does something. All three end the same way: after a while a few trial calls
are let through, and what becomes of them decides. That the time for trials has come is not stored; it
follows from the clock. People call a breaker *open* while its gate is *shut*, and *closed* while it is *clear*.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.durations import Length, duration

LONGEST_PAUSE = 300.0
"""Seconds after which a provider that asked for silence, or refuses everybody, is tried again."""

SHORTEST_PAUSE = 1.0
"""Seconds that a provider is left alone which asked for it without saying how long."""

TRIAL_LEASE = 10.0
"""Seconds for which a trial keeps its slot, unless its worker extends the lease."""

DENIALS = 3
"""Refused credentials in a row after which the provider is blocked: one may be a job's own."""

FIRST_RELEASE = 3
RELEASE_EVERY = 2.0
"""How many held jobs go out when a gate is clear again; twice as many follow each time after that."""

LARGEST_RELEASE = 100_000
"""Where that ends, for a release that goes on because others are held meanwhile: a store counts only so far."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a provider counts as broken.

    It opens when more than *threshold* of the last *window* calls failed, none of them older than *age*, and
    at least *minimum* are known. After *cooldown*, *trials* calls decide whether it closes. With *slow_after*,
    it opens as well when more than *slow_threshold* of those calls took longer than that. A provider that asks for
    patience is left alone for *max_wait* at most.
    """

    window: int = 20
    minimum: int = 10
    threshold: float = 0.5
    age: Length = timedelta(minutes=2)
    cooldown: Length = timedelta(seconds=30)
    trials: int = 3
    slow_after: Length | None = None
    slow_threshold: float = 0.8
    max_wait: Length = timedelta(seconds=LONGEST_PAUSE)

    def __post_init__(self) -> None:
        """Refuse what could never open, or never close."""
        if not 1 <= self.minimum <= self.window:
            raise ValueError(
                f"A breaker's minimum lies between 1 and its window of {self.window}, not at {self.minimum}; give minimum= too"
            )
        for part in (self.threshold, self.slow_threshold):
            if not 0 <= part < 1:
                raise ValueError(
                    f"A breaker's threshold is a part of the calls, from 0 to below 1, not {part}"
                )
        if self.trials < 1:
            raise ValueError(f"A breaker needs at least one trial to close again, not {self.trials}")
        for length in (self.age, self.cooldown, self.slow_after):
            if length is not None and duration(length) <= timedelta(0):
                raise ValueError("A breaker's age, cooldown and slow_after are longer than nothing")
        if not timedelta(seconds=LONGEST_PAUSE) <= duration(self.max_wait) <= timedelta(days=365):
            raise ValueError(
                f"max_wait= raises the limit of 300 s, to at most 365 d; {self.max_wait!r} does not"
            )

    def is_slow(self, seconds: float) -> bool:
        """Whether a call that took so long counts as slow."""
        return self.slow_after is not None and seconds > duration(self.slow_after).total_seconds()


class Outcome(StrEnum):
    """What a call says about its provider."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"
    """It says nothing: the caller's own mistake, or a call that was given up."""
    LIMITED = "limited"
    DENIED = "denied"
    """The credentials were refused, or the address is wrong: as it looks, for everybody."""
    EXHAUSTED = "exhausted"
    """The quota or the money is spent: no call will succeed before a person does something."""


class Report(NamedTuple):
    """How one call ended. *generation* is that of the gate that let it through; a trial names its slot."""

    outcome: Outcome
    generation: int
    slow: bool = False
    wait: float | None = None
    trial: str | None = None


class Cause(StrEnum):
    """Why a gate is shut."""

    FAILURES = "failures"
    LIMITED = "limited"
    BLOCKED = "blocked"


class Shut(NamedTuple):
    """Why a gate is shut, since when calls are turned away, and until when no trial is made."""

    cause: Cause
    since: float
    until: float
    passed: int = 0
    """Trials that succeeded since it was last shut."""
    failed: int = 0
    seen: int = 0
    """How many of how many calls had failed then."""

    def is_over(self, now: float) -> bool:
        """Whether trials may be made. A time before it was shut is told by a clock that went back: they may, then."""
        return now >= self.until or now < self.since


class Trial(NamedTuple):
    """A call that is to show whether the provider is back. Its slot is free again at *expires*, whatever became of it."""

    id: str
    expires: float


class Seen(NamedTuple):
    """A call of the window."""

    at: float
    failed: bool
    slow: bool


class Ramp(NamedTuple):
    """How many held jobs go out next, and when."""

    at: float
    size: int


class Command(StrEnum):
    """What an operator can lay down about a provider, whatever its calls say."""

    OPEN = "open"
    """No call; a backup takes over."""
    CLOSED = "closed"
    """Every call."""
    OBSERVE = "observe"
    """Every call; what the breaker would do is only told."""
    PAUSE = "pause"
    """No call, and no backup either: jobs wait."""


class Order(NamedTuple):
    """An operator's command."""

    command: Command
    actor: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Gate:
    """What all workers know about one provider. *generation* counts its transitions."""

    generation: int = 1
    seen: tuple[Seen, ...] = ()
    shut: Shut | None = None
    trials: tuple[Trial, ...] = ()
    denials: int = 0
    ramp: Ramp | None = None
    order: Order | None = None
    probes: int = 0
    """Trials that an operator asked for ahead of time."""

    @property
    def is_clear(self) -> bool:
        """Whether every call goes through: nobody ordered otherwise, and nobody has to wait for others."""
        return self.shut is None and self.order is None and self.ramp is None


class Way(StrEnum):
    """Whether a call may be made."""

    FREE = "free"
    TRIAL = "trial"
    """As a trial: `take_trial` has to succeed first."""
    NONE = "none"


class Change(NamedTuple):
    """Something that happened to a gate, for the log, the figures and whoever watches."""

    kind: str
    """`opened`, `closed`, or `tried` for a trial that has ended."""
    cause: Cause | None
    length: float = 0.0
    """Seconds for which no call is made, if it is shut now; for which none was made, if it is clear again."""
    failed: int = 0
    seen: int = 0
    outcome: Outcome | None = None
    """How the trial ended."""
    again: bool = False
    """Whether it only stays open, for the same reason: nobody has to be called for that."""


def way(gate: Gate, breaker: Breaker, now: float, *, released: bool = False) -> Way:
    """Say whether a call may be made now. *released* jobs were held and have been let out for it."""
    if not lets_through(gate):
        return Way.TRIAL if _tries(gate, breaker, now) else Way.NONE
    # While held jobs go out step by step, whoever comes new stands in line behind them.
    return Way.FREE if gate.ramp is None or released or _is_free(gate) else Way.NONE


def take_trial(gate: Gate, breaker: Breaker, now: float, *, slot: str) -> Gate | None:
    """Take a trial's slot, or tell that there is none. Asked again under the same name, it is the same slot."""
    under_way = alive(gate, now)
    if any(trial.id == slot for trial in under_way):
        return gate
    if way(gate, breaker, now) is not Way.TRIAL:
        return None
    return replace(gate, trials=(*under_way, Trial(slot, now + TRIAL_LEASE)), probes=max(0, gate.probes - 1))


def keep_trials(gate: Gate, slots: Collection[str], now: float) -> Gate:
    """Extend the leases of trials that are under way, in good time. One that ran out is lost: its call is too old to judge by."""
    return replace(
        gate,
        trials=tuple(
            trial._replace(expires=now + TRIAL_LEASE)
            if trial.id in slots and _is_due_for_extension(trial, now)
            else trial
            for trial in gate.trials
        ),
    )


def _is_due_for_extension(trial: Trial, now: float) -> bool:
    """Whether half of the lease is over, or the clock was set back under it."""
    left = trial.expires - now
    return 0 < left < TRIAL_LEASE / 2 or left > TRIAL_LEASE


def next_move(gate: Gate, now: float) -> float | None:
    """Tell in how many seconds held jobs can be let out, as far as that is known."""
    step = now if gate.ramp is None else max(gate.ramp.at, now)
    if lets_through(gate):
        return None if gate.ramp is None else step - now
    if gate.probes:
        return step - now
    if gate.order is not None or gate.shut is None:
        return None
    return step - now if gate.shut.is_over(now) else max(step, gate.shut.until) - now


def _is_free(gate: Gate) -> bool:
    """Whether an operator lets every call through."""
    return gate.order is not None and gate.order.command in (Command.CLOSED, Command.OBSERVE)


def _tries(gate: Gate, breaker: Breaker, now: float) -> int:
    """How many trials may begin: all there is room for when their time has come, before that those an operator asked for."""
    room = _room(gate, breaker, now)
    its_time = gate.order is None and gate.shut is not None and gate.shut.is_over(now)
    return room if its_time else min(gate.probes, room)


def _needed(gate: Gate, breaker: Breaker) -> int:
    """How many trials have to succeed before a gate is clear."""
    failures = gate.shut is not None and gate.shut.cause is Cause.FAILURES
    return breaker.trials if failures else 1


def _room(gate: Gate, breaker: Breaker, now: float) -> int:
    """How many more trials may be under way."""
    passed = 0 if gate.shut is None else gate.shut.passed
    return max(0, _needed(gate, breaker) - passed - len(alive(gate, now)))


def alive(gate: Gate, now: float) -> tuple[Trial, ...]:
    """The trials that still have their slots."""
    # A lease that seems longer than any is one from before the clock was set back. Its worker extends it if the call
    # is still under way; otherwise it would block the slot for as long as the clock was set back.
    return tuple(trial for trial in gate.trials if now < trial.expires <= now + TRIAL_LEASE)


def heard(gate: Gate, breaker: Breaker, reports: Iterable[Report], now: float) -> tuple[Gate, list[Change]]:
    """Take in how calls ended, in order, and tell what changed.

    A report of an earlier generation is dropped: a call that was let through before says nothing about now.
    """
    changes: list[Change] = []
    for report in reports:
        if report.generation != gate.generation:
            continue
        before = gate
        gate = _after(gate, breaker, report, now)
        changes += _told(before, gate, report, now)
    return gate, changes


def is_as_calm(before: Gate, after: Gate, breaker: Breaker, now: float) -> bool:
    """Whether nothing has happened that is worth a write: the window was full of good calls, and still is."""
    if len(before.seen) < breaker.window or before != replace(after, seen=before.seen):
        return False
    young = now - duration(breaker.age).total_seconds() / 2
    return before.seen[0].at > young and not any(
        call.failed or call.slow for call in (*before.seen, *after.seen)
    )


def news_of(change: Change) -> dict[str, Any]:
    """Tell a change in the words of log lines and events."""
    told = {
        "cause": change.cause,
        "seconds": round(change.length, 3) if change.kind != "tried" else None,
        "failed": change.failed or None,
        "calls": change.seen or None,
        "outcome": change.outcome,
        "again": change.again or None,
    }
    return {name: getattr(value, "value", value) for name, value in told.items() if value is not None}


def _after(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    if report.trial is not None:
        return _judged(gate, breaker, report, now)
    if gate.order is not None and gate.order.command is not Command.OBSERVE:
        return gate
    if gate.shut is None:
        return _counted(gate, breaker, report, now)
    # It is only observed, so calls go on: those after the cooldown stand for the trials it would have made.
    return _tried(gate, breaker, report, now) if gate.shut.is_over(now) else gate


def _counted(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    """Take in a call that was let through a clear gate."""
    match report.outcome:
        case Outcome.IGNORED:
            return gate
        case Outcome.LIMITED | Outcome.EXHAUSTED:
            return _shut(gate, breaker, report, now)
        case Outcome.DENIED:
            gate = replace(gate, denials=gate.denials + 1)
            return _shut(gate, breaker, report, now) if gate.denials >= DENIALS else gate
        case _:
            gate = _with_call(gate, breaker, report, now)
            return _shut(gate, breaker, report, now) if broken(gate.seen, breaker) else gate


def _with_call(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    """Put a call into the window. Only one that succeeded shows that the credentials are good."""
    failed = report.outcome is Outcome.FAILURE
    young = now - duration(breaker.age).total_seconds()
    calls = (*gate.seen, Seen(now, failed, report.slow))[-breaker.window :]
    seen = tuple(call for call in calls if call.at > young)
    return replace(gate, seen=seen, denials=gate.denials if failed else 0)


def _judged(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    """Take in a trial; one whose slot has expired had its time."""
    if all(trial.id != report.trial for trial in alive(gate, now)):
        return gate
    gate = replace(gate, trials=tuple(trial for trial in gate.trials if trial.id != report.trial))
    return _tried(gate, breaker, report, now)


def _tried(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    """Decide by a trial: enough successes clear the gate, anything else that says something shuts it again."""
    match report.outcome:
        case Outcome.IGNORED:
            return gate
        case Outcome.SUCCESS:
            return _passed(gate, breaker, now)
        case _:
            return _shut(gate, breaker, report, now)


def _passed(gate: Gate, breaker: Breaker, now: float) -> Gate:
    if gate.shut is None:
        return gate  # a probe of a provider that an operator keeps shut: the order stands
    # One that was asked for ahead of time has shown that the others need not wait either.
    shut = gate.shut._replace(until=min(gate.shut.until, now), passed=gate.shut.passed + 1)
    return _cleared(gate, now) if shut.passed >= _needed(gate, breaker) else replace(gate, shut=shut)


def broken(seen: Sequence[Seen], breaker: Breaker) -> bool:
    """Say whether so many calls failed, or were slow, that no more should be made.

    >>> calls = [Seen(0.0, failed, False) for failed in [True] * 11 + [False] * 9]
    >>> broken(calls, Breaker()), broken(calls[1:] + calls[-1:], Breaker())
    (True, False)
    """
    if len(seen) < breaker.minimum:
        return False
    failed, slow = sum(call.failed for call in seen), sum(call.slow for call in seen)
    return failed > breaker.threshold * len(seen) or (
        breaker.slow_after is not None and slow > breaker.slow_threshold * len(seen)
    )


def _shut(gate: Gate, breaker: Breaker, report: Report, now: float) -> Gate:
    cause = _cause(gate, report)
    since = now if gate.shut is None else gate.shut.since
    failed, seen = failures(gate)
    limited = cause is Cause.LIMITED  # that is no news about its health, and takes none away
    return replace(
        gate,
        generation=gate.generation + 1,
        seen=gate.seen if limited else (),
        shut=Shut(cause, since, now + _pause(cause, breaker, report), failed=failed, seen=seen),
        trials=(),
        denials=gate.denials if limited else 0,
        ramp=None,
    )


def _cause(gate: Gate, report: Report) -> Cause:
    """Why the gate is shut now. A provider that asks for patience while it is tried is still not back."""
    match report.outcome:
        case Outcome.LIMITED:
            return Cause.LIMITED if gate.shut is None else gate.shut.cause
        case Outcome.DENIED | Outcome.EXHAUSTED:
            return Cause.BLOCKED
        case _:
            return Cause.FAILURES


def _pause(cause: Cause, breaker: Breaker, report: Report) -> float:
    """Seconds until trials are made: as long as the provider asks for, and as its state wants."""
    asked = report.wait if report.wait is not None and not math.isnan(report.wait) else 0.0
    match cause:
        case Cause.LIMITED:
            least = SHORTEST_PAUSE
        case Cause.BLOCKED:
            least = LONGEST_PAUSE
        case _:
            least = duration(breaker.cooldown).total_seconds()
    return max(least, min(asked, duration(breaker.max_wait).total_seconds()))


def _cleared(gate: Gate, now: float) -> Gate:
    limited = gate.shut is not None and gate.shut.cause is Cause.LIMITED
    return replace(
        gate,
        generation=gate.generation + 1,
        seen=gate.seen if limited else (),
        shut=None,
        trials=(),
        ramp=Ramp(now, FIRST_RELEASE),
        probes=0,
    )


def _told(before: Gate, after: Gate, report: Report, now: float) -> list[Change]:
    changes: list[Change] = []
    if len(after.trials) < len(before.trials):
        cause = None if before.shut is None else before.shut.cause
        changes.append(Change("tried", cause, outcome=report.outcome))
    if after.shut is not None and after.generation != before.generation:
        cause, _, until, _, failed, seen = after.shut
        again = before.shut is not None and before.shut.cause is cause
        if before.shut is not None:
            failed = seen = 0  # they have been told: now it was a trial
        changes.append(Change("opened", cause, until - now, failed, seen, again=again))
    if before.shut is not None and after.shut is None:
        changes.append(Change("closed", before.shut.cause, now - before.shut.since))
    return changes


def release(gate: Gate, breaker: Breaker, now: float, *, elsewhere: bool = False) -> tuple[Gate, int]:
    """Tell how many held jobs to let out now, if any are held; the gate notes that they are out.

    They can go *elsewhere* if a backup takes the calls that this gate turns away.

    Towards a shut gate only as many go as may be trials. Once it is clear they go in growing steps. Either way each
    step comes a while after the one before *was taken*: workers that all slept through three do not make up for it.
    """
    ramp = gate.ramp or Ramp(now, FIRST_RELEASE)  # held just as the release before was over
    if now < ramp.at <= now + RELEASE_EVERY:  # further off it was only by a clock that went back
        return gate, 0
    if not (elsewhere or lets_through(gate)):
        size = _tries(gate, breaker, now)
        return (replace(gate, ramp=Ramp(now + RELEASE_EVERY, FIRST_RELEASE)), size) if size else (gate, 0)
    larger = min(ramp.size * 2, LARGEST_RELEASE)
    return replace(gate, ramp=Ramp(now + RELEASE_EVERY, larger)), ramp.size


def all_released(gate: Gate) -> Gate:
    """Note that nobody is held any more: from now on everybody is let through."""
    return replace(gate, ramp=None)


def ordered(gate: Gate, order: Order | None, now: float) -> Gate:
    """Lay down an operator's command, or lift it; calls that are under way say nothing about what follows.

    Whoever closes it says that the provider is well: what the breaker held against it is forgotten.
    """
    let_through = lets_through(gate)
    gate = replace(gate, generation=gate.generation + 1, order=order, trials=(), probes=0)
    if order is not None and order.command is Command.CLOSED:
        gate = replace(gate, shut=None, seen=(), denials=0)
    if not lets_through(gate):
        return replace(gate, ramp=None)
    return gate if let_through else replace(gate, ramp=Ramp(now, FIRST_RELEASE))


def lets_through(gate: Gate) -> bool:
    """Whether calls go through that are no trials."""
    return _is_free(gate) or (gate.order is None and gate.shut is None)


def probed(gate: Gate) -> Gate:
    """Have one job go through as a trial, ahead of time. Where calls go through anyway, there is nothing to try."""
    return gate if lets_through(gate) else replace(gate, probes=gate.probes + 1)


def state_of(gate: Gate, now: float) -> str:
    """Name the state of a gate, for people and figures.

    >>> state_of(Gate(), 0.0)
    'closed'
    """
    if gate.order is not None:
        return _ORDERED[gate.order.command]
    if gate.shut is None:
        return "closed" if gate.ramp is None else "recovering"
    if gate.shut.cause is Cause.FAILURES:
        return "half-open" if gate.shut.is_over(now) else "open"
    return gate.shut.cause.value


_ORDERED = {
    Command.OPEN: "forced open",
    Command.CLOSED: "forced closed",
    Command.OBSERVE: "observed",
    Command.PAUSE: "paused",
}

STATES = ("closed", "recovering", "open", "half-open", "limited", "blocked", *_ORDERED.values())
"""Every state that a gate can be in."""


def failures(gate: Gate) -> tuple[int, int]:
    """Tell how many of how many calls failed: of those in the window, or of those that have shut the gate."""
    if gate.shut is not None:
        return gate.shut.failed, gate.shut.seen
    return sum(call.failed for call in gate.seen), len(gate.seen)


def failure_rate(gate: Gate) -> float:
    """Tell which part of those calls failed."""
    failed, calls = failures(gate)
    return failed / calls if calls else 0.0


def shut_for(gate: Gate, now: float) -> float:
    """Tell for how many seconds calls have been turned away, by the breaker or by an operator."""
    if lets_through(gate):
        return 0.0
    by_breaker = now if gate.shut is None else gate.shut.since
    by_order = now if gate.order is None else gate.order.at
    return now - min(by_breaker, by_order)


def calls_for_backup(gate: Gate) -> bool:
    """Whether a backup is to take the calls that this gate turns away: not while it only asks for patience."""
    if gate.order is not None:
        return gate.order.command is Command.OPEN
    return gate.shut is not None and gate.shut.cause is not Cause.LIMITED
