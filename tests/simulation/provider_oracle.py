"""The provider oracle: it sees the rows of all providers after every commit, and every call as it begins.

No worker knows as much. A breaker is judged by its row alone, and by the calls that were really made: what the
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
"""Seconds for which a worker may act on a breaker's state that has changed."""

A_SECOND = 1.0 - 1e-3
QUIET = 4.0
"""Seconds without a fault after which a worker is up to date: a slow call takes up to three."""

SLOT_LEASE = 10.0
FORGOTTEN = SLOT_LEASE + 2.0
"""Seconds after which a trial's slot is free again, if no worker makes its call."""

MUTE = 10
"""Trials in a row that may say nothing: a few are stopped, or sent to a service that does not understand them."""

STEP = 2.0
FIRST_STEP = 3
"""How many held jobs are released when a breaker closes; twice as many follow every `STEP` seconds."""

KEPT = 3_600.0
"""Seconds after which the limit of a key that is not used is forgotten, at the very latest."""

_FREE = ("closed", "observe")


class BreakerRow(NamedTuple):
    """What a provider's row says about its breaker."""

    generation: int = 1
    cause: str | None = None
    passed: int = 0
    """Trials that have succeeded since it opened."""
    override: str | None = None
    ramps: bool = False
    seen: Sequence[tuple[float, bool]] = ()
    """The calls of its window: when they ended, and whether they failed."""
    trials: Sequence[tuple[str, float]] = ()
    """The slots of its trials, and when they expire."""
    failed: int = 0
    """How many calls of the window had failed when it opened."""

    @classmethod
    def read(cls, state: str) -> BreakerRow:
        """Read a row."""
        stored = json.loads(state)["gate"]
        cause, _, _, passed, failed, _ = stored["shut"] or [None, 0.0, 0.0, 0, 0, 0]
        return cls(
            stored["generation"],
            cause,
            passed,
            stored["order"][0] if stored["order"] else None,
            stored["ramp"] is not None,
            [(at, failed) for at, failed, _ in stored["seen"]],
            [(slot, expires) for slot, expires in stored["trials"]],
            failed,
        )

    @property
    def allows_calls(self) -> bool:
        """Whether calls are made that are no trials."""
        return self.override in _FREE or (self.override is None and self.cause is None)

    @property
    def calls_backup(self) -> bool:
        """Whether a backup is to be called instead."""
        if self.override is not None:
            return self.override == "open"
        return self.cause in ("failures", "blocked")


class Ended(StrEnum):
    """How a call ended, as its caller saw it."""

    WELL = "well"
    BAD = "bad"
    """As a service does that is away."""
    REFUSED = "refused"
    """By a service that asks its callers to wait, or denies this caller."""
    NOTHING = "nothing"
    """With a failure that says nothing about the service."""
    STOPPED = "stopped"
    """By its caller, before it was answered."""


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
    """Whether it was made though the breaker was open, and had been for a while."""
    free: bool
    """Whether the breaker allowed all calls, and had done so for a while."""
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
    """A provider, since its breaker last changed its state."""

    breaker: BreakerRow = field(default_factory=BreakerRow)
    since: float = float("-inf")
    """When it was last opened, closed or overridden."""
    counts_from: int = 1
    """The generation from which on calls may be in the window."""
    passed_before: int = 0
    """Trials that had succeeded before that, and count."""
    mute: int = 0
    """Trials in a row that have said nothing."""
    queued_since: float = float("inf")
    """Since when new jobs queue behind those that were held."""
    ramps_from: float = 0.0
    """When held jobs began to be released, by the database's clock."""
    out: int = 0
    """How many were released since."""
    called_backup_until: float = float("-inf")
    """When calls last ceased to go to the backup."""
    calls: list[Call] = field(default_factory=list)
    in_flight: list[Call] = field(default_factory=list)


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
        """Whether a worker has run without a fault since some moment."""

    @property
    def calls(self) -> list[Call]:
        """Every call that was made."""
        return [call for watched in self._watched.values() for call in watched.calls]

    def begins(self, provider: str, caller: Caller, key: str | None = None) -> Call:
        """See a call begin, for *key* if its provider has limits by key."""
        watched, now = self._watched[provider], self._time()
        breaker = watched.breaker
        settled = now - watched.since > REPORT
        trial, free = settled and not breaker.allows_calls, settled and breaker.allows_calls
        call = Call(provider, caller, now, breaker.generation, trial, free)
        watched.calls.append(call)
        watched.in_flight.append(call)
        for complaint in (*self._call_complaints(call, watched), *self._key_complaints(call, key)):
            self._report(f"{complaint}: job {caller.job_id} called {provider}, which is {breaker}")
        return call

    def ends(self, call: Call, ended: Ended) -> None:
        """See a call end."""
        watched = self._watched[call.provider]
        call.ended_at, call.ended = self._time(), ended
        watched.in_flight.remove(call)
        if call.trial and call.generation == watched.breaker.generation:
            watched.mute = watched.mute + 1 if ended in (Ended.NOTHING, Ended.STOPPED) else 0
            if watched.mute > MUTE:
                self._report(f"{watched.mute} trials of {call.provider} in a row have said nothing")

    def _call_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        if not self.untroubled(call.worker, call.began - QUIET):
            return  # a worker that was away may act on what is no longer true
        if call.trial:
            yield from self._trial_complaints(call, watched)
        if call.began - watched.queued_since > REPORT:
            yield from _queueing_complaints(call)
        yield from self._rate_complaints(call, watched)
        yield from self._place_complaints(call, watched)
        yield from self._backup_complaints(call)

    def _trial_complaints(self, call: Call, watched: Watched) -> Iterator[str]:
        """An open breaker allows trials alone, each with a slot that its worker has; and few at a time."""
        breaker = watched.breaker
        trials = [
            other
            for other in watched.in_flight
            if other.trial and other.generation == breaker.generation and self._is_fresh(other, 0.0)
        ]
        own = sum(other.worker == call.worker for other in trials)
        slots = sum(slot.startswith(f"{call.worker} ") for slot, _ in breaker.trials)
        if own > slots:
            yield f"{own} calls were made through an open breaker with {slots} slots"
        if len(trials) > self._needed(breaker):
            yield f"{len(trials)} trials are in flight"

    def _is_fresh(self, call: Call, quiet: float) -> bool:
        """Whether a call's worker has met no fault since it began, or some seconds before."""
        return self.untroubled(call.worker, call.began - quiet)

    def _needed(self, breaker: BreakerRow) -> int:
        assert self.providing is not None
        return self.providing.trials if breaker.cause == "failures" else 1

    def _key_complaints(self, call: Call, key: str | None) -> Iterator[str]:
        """A call for a key has a permit from the key's own limit, and that is stored."""
        if key is None or (call.provider, key) in self._keys:
            return
        if self.untroubled(call.worker, call.began - QUIET):
            yield f"a call for {key!r} has no permit from a limit of its own"

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
        count = sum(self._is_fresh(other, QUIET) for other in watched.in_flight)
        if count > places:
            yield f"{count} calls are in flight at a time, of {places}"

    def _backup_complaints(self, call: Call) -> Iterator[str]:
        """A backup is called while its primary is away, or after that has failed the same attempt."""
        for primary in [name for name, backup in BACKUPS.items() if backup == call.provider]:
            watched = self._watched[primary]
            lease = call.caller[:3]
            tried = any(other.caller[:3] == lease and other.failed for other in watched.calls)
            expected = watched.breaker.calls_backup or call.began - watched.called_backup_until <= REPORT
            if not tried and not expected:
                yield f"a backup was called, though {primary} is {watched.breaker}"

    def look(
        self, rows: Mapping[str, tuple[int, str]], changes: Sequence[tuple[Row | None, Row]], commit: Commit
    ) -> Iterator[str]:
        """Check what a commit has made of the providers, and of the jobs that they hold."""
        for name, (version, state) in rows.items():
            if version != self._versions.get(name):
                self._versions[name] = version
                watched, breaker = self._watched[name], BreakerRow.read(state)
                for complaint in self._step_complaints(watched, breaker):
                    yield f"{complaint}: {name} {watched.breaker} -> {breaker} by {commit.worker}"
                self._turn(watched, breaker, commit)
            yield from self._slot_complaints(name, commit)
        yield from self._release_complaints(changes, commit)
        yield from self._hold_complaints(changes, commit)

    def look_at_keys(self, keys: Mapping[tuple[str, str], int], commit: Commit) -> Iterator[str]:
        """Check that what is written for a key is forgotten one day; a clock that is set back may delay that."""
        if keys is self._keys:
            return
        for (name, key), expires in keys.items():
            if expires != self._keys.get((name, key)) and expires - commit.at > KEPT * 1e6:
                yield f"the limit of {key!r} for {name} is kept for {(expires - commit.at) / 1e6:.0f} s"
        self._keys = keys

    def _turn(self, watched: Watched, breaker: BreakerRow, commit: Commit) -> None:
        """Remember the new state of a breaker."""
        old, now = watched.breaker, self._time()
        if old.calls_backup:
            watched.called_backup_until = now
        if breaker.generation != old.generation:
            watched.since, watched.passed_before, watched.mute = now, breaker.passed, 0
            if not breaker.seen:  # setting an override takes nothing out of the window
                watched.counts_from = breaker.generation
        # An override that does not change which calls are allowed leaves a ramp as it is.
        goes_on = old.ramps and breaker.ramps and old.allows_calls and breaker.allows_calls
        if (breaker.generation != old.generation and not goes_on) or (old.ramps and not breaker.ramps):
            watched.ramps_from, watched.out = commit.at / 1e6, 0
        queues = breaker.allows_calls and breaker.ramps and breaker.override not in _FREE
        if not queues:
            watched.queued_since = float("inf")
        elif watched.queued_since == float("inf"):
            watched.queued_since = now
        watched.breaker = breaker

    def _step_complaints(self, watched: Watched, breaker: BreakerRow) -> Iterator[str]:
        old = watched.breaker
        if breaker.generation < old.generation:
            yield "a breaker's generation fell"
        opened = (
            breaker.generation == old.generation + 1 and old.cause is None and breaker.cause == "failures"
        )
        counted = breaker.failed if opened else sum(failed for _, failed in breaker.seen)
        failed = sum(call.may_count for call in watched.calls if call.generation >= watched.counts_from)
        if counted > failed:
            yield f"{counted} failures are counted, and {failed} calls failed"
        if breaker.seen and any(breaker.seen[-1][0] - at > AGE for at, _ in breaker.seen):
            yield "calls are counted that are too old"
        if (
            old.override is None
            and breaker.override is None
            and old.cause is not None
            and breaker.cause is None
        ):
            yield from self._closing_complaints(watched)

    def _closing_complaints(self, watched: Watched) -> Iterator[str]:
        """A breaker closes when trials have succeeded, and those are not so old that others took their place."""
        good = sum(
            call.ended is Ended.WELL
            and call.ended_at is not None
            and call.ended_at - call.began < SLOT_LEASE
            and call.generation == watched.breaker.generation
            for call in watched.calls
        )
        if good + watched.passed_before < self._needed(watched.breaker):
            yield f"a breaker closed after {good} trials"

    def _slot_complaints(self, name: str, commit: Commit) -> Iterator[str]:
        """A slot that no call has is free again after a while."""
        watched, now = self._watched[name], self._time()
        slots = Counter(
            slot.rpartition(" ")[0]
            for slot, expires in watched.breaker.trials
            if 0
            < expires - commit.at / 1e6
            <= SLOT_LEASE  # a longer lease is from before the clock was set back
        )
        busy = Counter(call.worker for call in watched.in_flight)
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
        """Held jobs are released in steps; and towards an open breaker, no more than can be trials."""
        out = Counter(
            new.let_out_by for old, new in changes if old is not None and old.held_by and new.let_out_by
        )
        for name, count in out.items():
            watched = self._watched.get(name or "")
            if watched is None or not self.untroubled(commit.worker, self._time() - QUIET):
                continue  # it was held for a limit; or a worker that slept releases now those that were due before
            if not watched.breaker.allows_calls:
                elsewhere = name in BACKUPS and watched.breaker.calls_backup
                if count > self._needed(watched.breaker) and not elsewhere:
                    yield f"{count} held jobs were released towards {name}, which is {watched.breaker}"
                continue
            watched.out += count
            steps = int(max(0.0, commit.at / 1e6 - watched.ramps_from) / STEP) + 1
            most = FIRST_STEP * (2**steps - 1)
            if watched.out > most:
                yield f"{watched.out} held jobs of {name} were released in {steps} steps, of {most}"

    def _hold_complaints(self, changes: Sequence[tuple[Row | None, Row]], commit: Commit) -> Iterator[str]:
        """A job that is refused at one call lets its other calls end: a trial that is stopped says nothing.

        One that is held because a trial of its own has failed need not: the breaker has opened again by then.
        """
        for old, new in changes:
            if old is None or old.held_by or not new.held_by or old.status != "processing":
                continue
            lease = (old.worker, old.id, old.token)
            calls = [call for call in self.calls if call.caller[:3] == lease]
            unfinished = [call for call in calls if call.ended in (None, Ended.STOPPED)]
            if any(call.failed and call not in unfinished for call in calls):
                continue
            for call in unfinished:
                if self._is_fresh(call, QUIET):
                    yield f"job {old.id} is held by {new.held_by}, and its call to {call.provider} was stopped"


def _queueing_complaints(call: Call) -> Iterator[str]:
    row = call.caller.row
    if row is not None and (row.let_out_by or "").partition("\n")[0] != call.provider:
        yield "a job that was not held called before those that were"
