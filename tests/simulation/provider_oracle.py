"""A lookout over the providers of a world: it sees their rows after every commit, and every call as it begins.

No worker knows as much. A gate is judged by its row alone, and by the calls that were really made: what the
engine took for a trial, or believed to have counted, is not asked for.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.provided_jobs import AGE, BACKUPS, PLACES, RATES, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.simulation.auditor import Commit, Row
    from tests.simulation.provided_jobs import Providing

REPORT = 0.05 + 0.01
"""Seconds for which a worker may believe in a gate that has changed."""

A_SECOND = 1.0 - 1e-3
QUIET = 4.0
"""Seconds without trouble after which a worker is up to date: a slow call takes up to three."""

SLOT_LEASE = 10.0
FORGOTTEN = SLOT_LEASE + 2.0
"""Seconds after which a trial's slot is free again, if nobody makes its call."""

MUTE = 10
"""Trials in a row that may say nothing: a few are stopped, or sent to a service that does not understand them."""

STEP = 2.0
FIRST_STEP = 3
"""How many held jobs go out when a gate opens; twice as many follow every so many seconds."""

KEPT = 3_600.0
"""Seconds after which the limit of a key that is not used is forgotten, at the very latest."""

_FREE = ("closed", "observe")


class Gate(NamedTuple):
    """What a provider's row says about its gate."""

    generation: int = 1
    cause: str | None = None
    passed: int = 0
    """Trials that have succeeded since it was shut."""
    order: str | None = None
    ramps: bool = False
    seen: Sequence[tuple[float, bool]] = ()
    """The calls of its window: when they ended, and whether they failed."""
    trials: Sequence[tuple[str, float]] = ()
    """The slots of its trials, and when they expire."""
    failed: int = 0
    """How many calls of the window had failed when it was shut."""

    @classmethod
    def read(cls, state: str) -> Gate:
        """Read a row."""
        told = json.loads(state)["gate"]
        cause, _, _, passed, failed, _ = told["shut"] or [None, 0.0, 0.0, 0, 0, 0]
        return cls(
            told["generation"],
            cause,
            passed,
            told["order"][0] if told["order"] else None,
            told["ramp"] is not None,
            [(at, failed) for at, failed, _ in told["seen"]],
            [(slot, expires) for slot, expires in told["trials"]],
            failed,
        )

    @property
    def lets_through(self) -> bool:
        """Whether calls are made that are no trials."""
        return self.order in _FREE or (self.order is None and self.cause is None)

    @property
    def wants_backup(self) -> bool:
        """Whether a backup is to be called instead."""
        if self.order is not None:
            return self.order == "open"
        return self.cause in ("failures", "blocked")


class Ended(StrEnum):
    """How a call ended, as its caller saw it."""

    WELL = "well"
    BAD = "bad"
    """As a service does that is away."""
    REFUSED = "refused"
    """By a service that asks for patience, or wants nothing of this caller any more."""
    NOTHING = "nothing"
    """In a way that says nothing about the service."""


class Caller(NamedTuple):
    """Who makes a call: a worker, for a job under a lease; *row* is the job's, if the lease is still its own."""

    worker: str
    job_id: str
    token: int
    row: Row | None


@dataclass
class Call:
    """A call to the service behind a provider."""

    provider: str
    caller: Caller
    began: float
    generation: int
    trial: bool
    """Whether it was made though the gate was shut, and had been for a while."""
    free: bool
    """Whether the gate let everybody through, and had done so for a while."""
    ended_at: float | None = None
    ended: Ended | None = None

    @property
    def worker(self) -> str:
        """Who makes it."""
        return self.caller.worker

    @property
    def failed(self) -> bool:
        """Whether it did not end well."""
        return self.ended not in (None, Ended.WELL)

    @property
    def may_count(self) -> bool:
        """Whether it may count as a failure: it was one, or its answer came too late."""
        too_late = self.ended_at is not None and self.ended_at - self.began >= TIMEOUT
        return self.failed or too_late


@dataclass
class Watched:
    """A provider, since its gate last changed its mind."""

    gate: Gate = field(default_factory=Gate)
    since: float = float("-inf")
    """When it was last shut, opened or ordered about."""
    counts_from: int = 1
    """The generation from which on calls may be in the window."""
    passed_before: int = 0
    """Trials that had succeeded before that, and count."""
    mute: int = 0
    """Trials in a row that have said nothing."""
    in_line_since: float = float("inf")
    """Since when whoever comes new stands in line behind those who were held."""
    ramps_from: float = 0.0
    """When held jobs began to go out, by the database's clock."""
    out: int = 0
    """How many went out since."""
    wanted_backup_at: float = float("-inf")
    """When it last ceased to be so that a backup was to be called."""
    calls: list[Call] = field(default_factory=list)
    under_way: list[Call] = field(default_factory=list)


class ProviderOracle:
    """Watches all providers of a world."""

    def __init__(self, report: Callable[[str], None], *, time: Callable[[], float]) -> None:
        self._report = report
        self._time = time
        self._versions: dict[str, int] = {}
        self._orphans: dict[tuple[str, str], float] = {}
        self._keys: Mapping[tuple[str, str], int] = {}
        self._watched: defaultdict[str, Watched] = defaultdict(Watched)
        self.providing: Providing | None = None
        self.untroubled: Callable[[str, float], bool] = lambda worker, since: False
        """Whether a worker has been up and about, and nothing has befallen it, since some moment."""

    @property
    def calls(self) -> list[Call]:
        """Every call that was made."""
        return [call for watched in self._watched.values() for call in watched.calls]

    def begins(self, provider: str, caller: Caller, key: str | None = None) -> Call:
        """See a call begin, for *key* if its provider has limits by key."""
        watched, now = self._watched[provider], self._time()
        gate = watched.gate
        settled = now - watched.since > REPORT
        trial, free = settled and not gate.lets_through, settled and gate.lets_through
        call = Call(provider, caller, now, gate.generation, trial, free)
        watched.calls.append(call)
        watched.under_way.append(call)
        for complaint in (*self._call_complaints(call, watched), *self._key_complaints(call, key)):
            self._report(f"{complaint}: job {caller.job_id} called {provider}, which is {gate}")
        return call

    def ends(self, call: Call, ended: Ended) -> None:
        """See a call end."""
        watched = self._watched[call.provider]
        call.ended_at, call.ended = self._time(), ended
        watched.under_way.remove(call)
        if call.trial and call.generation == watched.gate.generation:
            watched.mute = watched.mute + 1 if ended is Ended.NOTHING else 0
            if watched.mute > MUTE:
                self._report(f"{watched.mute} trials of {call.provider} in a row have said nothing")

    def _call_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        if not self.untroubled(call.worker, call.began - QUIET):
            return  # whoever was away may believe what is no longer true
        if call.trial:
            yield from self._trial_complaints(call, watched)
        if call.began - watched.in_line_since > REPORT:
            yield from _line_complaints(call)
        yield from self._rate_complaints(call, watched)
        yield from self._place_complaints(call, watched)
        yield from self._backup_complaints(call)

    def _trial_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        """A shut gate is passed by trials alone, each with a slot that its worker has; and by few at a time."""
        gate = watched.gate
        trials = [
            other
            for other in watched.under_way
            if other.trial and other.generation == gate.generation and self._is_fresh(other, 0.0)
        ]
        own = sum(other.worker == call.worker for other in trials)
        slots = sum(slot.startswith(f"{call.worker} ") for slot, _ in gate.trials)
        if own > slots:
            yield f"{own} calls passed a shut gate with {slots} slots"
        if len(trials) > self._needed(gate):
            yield f"{len(trials)} trials are under way"

    def _is_fresh(self, call: Call, quiet: float) -> bool:
        """Whether nothing has befallen a call's worker since it began, or some seconds before."""
        return self.untroubled(call.worker, call.began - quiet)

    def _needed(self, gate: Gate) -> int:
        assert self.providing is not None
        return self.providing.trials if gate.cause == "failures" else 1

    def _key_complaints(self, call: Call, key: str | None) -> Iterator[str]:
        """Who calls for a key has got that out of the key's own limit, and it is written there."""
        if key is None or (call.provider, key) in self._keys:
            return
        if self.untroubled(call.worker, call.began - QUIET):
            yield f"a call for {key!r} was given out of no limit of its own"

    def _rate_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        rate = RATES.get(call.provider)
        if rate is None:
            return
        lately = takewhile(lambda other: other.began > call.began - A_SECOND, reversed(watched.calls))
        count = sum(self._is_fresh(other, QUIET) for other in lately)
        if count > rate:
            yield f"{count} calls were made within a second, of {rate}"

    def _place_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        places = PLACES.get(call.provider)
        if places is None:
            return
        count = sum(self._is_fresh(other, QUIET) for other in watched.under_way)
        if count > places:
            yield f"{count} calls are under way at a time, of {places}"

    def _backup_complaints(self, call: Call) -> Iterator[str]:
        """A backup is called while its primary is away, or after that has failed the same attempt."""
        for primary in [name for name, backup in BACKUPS.items() if backup == call.provider]:
            watched = self._watched[primary]
            lease = call.caller[:3]
            tried = any(other.caller[:3] == lease and other.failed for other in watched.calls)
            wanted = watched.gate.wants_backup or call.began - watched.wanted_backup_at <= REPORT
            if not tried and not wanted:
                yield f"a backup was called, though {primary} is {watched.gate}"

    def look(
        self, rows: Mapping[str, tuple[int, str]], changes: Sequence[tuple[Row | None, Row]], commit: Commit
    ) -> Iterator[str]:
        """Check what a commit has made of the providers, and of the jobs that they hold."""
        for name, (version, state) in rows.items():
            if version != self._versions.get(name):
                self._versions[name] = version
                watched, gate = self._watched[name], Gate.read(state)
                for complaint in self._step_complaints(watched, gate):
                    yield f"{complaint}: {name} {watched.gate} -> {gate} by {commit.worker}"
                self._turn(watched, gate, commit)
            yield from self._slot_complaints(name, commit)
        yield from self._release_complaints(changes, commit)

    def look_at_keys(self, keys: Mapping[tuple[str, str], int], commit: Commit) -> Iterator[str]:
        """Check that what is written for a key is forgotten one day; a clock that is set back may delay that."""
        if keys is self._keys:
            return
        for (name, key), expires in keys.items():
            if expires != self._keys.get((name, key)) and expires - commit.at > KEPT * 1e6:
                yield f"the limit of {key!r} for {name} is kept for {(expires - commit.at) / 1e6:.0f} s"
        self._keys = keys

    def _turn(self, watched: Watched, gate: Gate, commit: Commit) -> None:
        """Remember how a gate stands now."""
        old, now = watched.gate, self._time()
        if old.wants_backup:
            watched.wanted_backup_at = now
        if gate.generation != old.generation:
            watched.since, watched.passed_before, watched.mute = now, gate.passed, 0
            if not gate.seen:  # who only gives orders takes nothing out of the window
                watched.counts_from = gate.generation
        # An order that changes nothing about which calls go through leaves a ramp as it is.
        goes_on = old.ramps and gate.ramps and old.lets_through and gate.lets_through
        if (gate.generation != old.generation and not goes_on) or (old.ramps and not gate.ramps):
            watched.ramps_from, watched.out = commit.at / 1e6, 0
        stands_in_line = gate.lets_through and gate.ramps and gate.order not in _FREE
        if not stands_in_line:
            watched.in_line_since = float("inf")
        elif watched.in_line_since == float("inf"):
            watched.in_line_since = now
        watched.gate = gate

    def _step_complaints(self, watched: Watched, gate: Gate) -> Iterator[str]:
        old = watched.gate
        if gate.generation < old.generation:
            yield "a gate's generation fell"
        shut = gate.generation == old.generation + 1 and old.cause is None and gate.cause == "failures"
        counted = gate.failed if shut else sum(failed for _, failed in gate.seen)
        failed = sum(call.may_count for call in watched.calls if call.generation >= watched.counts_from)
        if counted > failed:
            yield f"{counted} failures are counted, and {failed} calls failed"
        if gate.seen and any(gate.seen[-1][0] - at > AGE for at, _ in gate.seen):
            yield "calls are counted that are too old"
        if old.order is None and gate.order is None and old.cause is not None and gate.cause is None:
            yield from self._opening_complaints(watched)

    def _opening_complaints(self, watched: Watched) -> Iterator[str]:
        """A gate opens when trials have succeeded, and those are not so old that others took their place."""
        good = sum(
            call.ended is Ended.WELL
            and call.ended_at is not None
            and call.ended_at - call.began < SLOT_LEASE
            and call.generation == watched.gate.generation
            for call in watched.calls
        )
        if good + watched.passed_before < self._needed(watched.gate):
            yield f"a gate opened after {good} trials"

    def _slot_complaints(self, name: str, commit: Commit) -> Iterator[str]:
        """A slot that no call has is free again after a while."""
        watched, now = self._watched[name], self._time()
        slots = Counter(
            slot.rpartition(" ")[0]
            for slot, expires in watched.gate.trials
            if 0
            < expires - commit.at / 1e6
            <= SLOT_LEASE  # a longer lease is from before the clock was set back
        )
        busy = Counter(call.worker for call in watched.under_way)
        for worker, count in slots.items():
            if count <= busy[worker]:
                self._orphans.pop((name, worker), None)
                continue
            since = self._orphans.setdefault((name, worker), now)
            if now - since > FORGOTTEN and self.untroubled(worker, since):
                yield f"{worker} keeps {count} slots of {name} for {busy[worker]} calls"
        for place in [place for place in self._orphans if place[0] == name and place[1] not in slots]:
            del self._orphans[place]

    def _release_complaints(self, changes: Sequence[tuple[Row | None, Row]], commit: Commit) -> Iterator[str]:
        """Held jobs go out in steps; and to a shut gate, no more than can be trials."""
        out = Counter(
            new.let_out_by for old, new in changes if old is not None and old.held_by and new.let_out_by
        )
        for name, count in out.items():
            watched = self._watched.get(name or "")
            if watched is None or not self.untroubled(commit.worker, self._time() - QUIET):
                continue  # it was held for a limit; or whoever slept lets those out now who were to go before
            if not watched.gate.lets_through:
                elsewhere = name in BACKUPS and watched.gate.wants_backup
                if count > self._needed(watched.gate) and not elsewhere:
                    yield f"{count} held jobs were let out towards {name}, which is {watched.gate}"
                continue
            watched.out += count
            steps = int(max(0.0, commit.at / 1e6 - watched.ramps_from) / STEP) + 1
            most = FIRST_STEP * (2**steps - 1)
            if watched.out > most:
                yield f"{watched.out} held jobs of {name} were let out in {steps} steps, of {most}"


def _line_complaints(call: Call) -> Iterator[str]:
    row = call.caller.row
    if row is not None and (row.let_out_by or "").partition("\n")[0] != call.provider:
        yield "a job that was not held called before those who were"
