"""Quarantine: jobs suspected of crashing their workers run a few at a time, beside all others.

The row of one that runs records it. If its worker is lost, the store counts the loss against it, and not against the
jobs that ran beside it.
"""

from collections import deque
from datetime import timedelta
from typing import NamedTuple

from holdfast.core.jobs.crashes import quarantine_limit
from holdfast.core.jobs.job import Claim
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.runtime import Runtime

SLOTS_PER_QUARANTINED = 4
"""One slot in this many may be taken by quarantined jobs that wait, and as many by those that run."""

WAIT = timedelta(seconds=5)
"""How long a quarantined job waits in a worker. Then it is released, and another worker may claim it."""

LONGEST_WAIT = timedelta(minutes=5)
"""Longest delay before a released one is claimed again."""


class _Quarantined(NamedTuple):
    attempt: Attempt
    limit: int
    """How many quarantined jobs may run in this worker beside it, itself included."""
    since: float
    """When it was claimed, or started, on the monotonic clock."""


class Quarantine:
    """The quarantined jobs of a worker: those that wait, in order of arrival, and those that run."""

    def __init__(self, runtime: Runtime, *, slots: int, within: timedelta) -> None:
        self._store = runtime.store
        self._registry = runtime.registry
        self._store_retry = runtime.store_retry
        self._clock = runtime.clock
        self._slots = slots
        self._within = within
        self._waiting: deque[_Quarantined] = deque()
        self._running: dict[Attempt, _Quarantined] = {}

    @property
    def waiting(self) -> int:
        """How many wait to run."""
        return len(self._waiting)

    def takes(self, claim: Claim) -> bool:
        """Whether the job's function is to be called, and is suspected of crashing the process."""
        # One that is to be cancelled ends with its claim. Released to wait, it would be ready again at once.
        return claim.suspected and self._registry.runs(claim)

    def add(self, attempt: Attempt) -> None:
        """Queue *attempt*."""
        spec = self._registry.get(attempt.claim.name)
        budget = 1 if spec is None else spec.crash_budget
        most = quarantine_limit(attempt.claim, budget, self._slots)
        self._waiting.append(_Quarantined(attempt, most, self._clock.monotonic()))

    async def begin(self) -> list[Attempt]:
        """Return the attempts that may run now, recorded as spent in the store.

        Raises `StoreUnavailable` after retrying for as long as it may: then all of them still wait.
        """
        ready = self._take_ready()
        if not ready:
            return []
        leases = [(entry.attempt.claim.id, entry.attempt.claim.token) for entry in ready]
        try:
            held = await self._store_retry.call(lambda _: self._store.begin(leases), within=self._within)
        except BaseException:
            self._waiting.extendleft(reversed(ready))
            raise
        now = self._clock.monotonic()
        for entry, is_held in zip(ready, held, strict=True):
            if not is_held:
                entry.attempt.interrupt(Interruption.LOST)  # it ends without running, and writes nothing
            self._running[entry.attempt] = entry._replace(since=now)
        return [entry.attempt for entry in ready]

    def _take_ready(self) -> list[_Quarantined]:
        """Take those that may run beside the quarantined jobs that run already; none overtakes another."""
        ready: list[_Quarantined] = []
        most = min((entry.limit for entry in self._running.values()), default=self._slots)
        while self._waiting:
            most = min(most, self._waiting[0].limit)
            if len(self._running) + len(ready) >= most:
                break
            ready.append(self._waiting.popleft())
        return ready

    def ended(self, attempt: Attempt) -> None:
        """Note that an attempt is over."""
        self._running.pop(attempt, None)

    def take_surplus(self) -> list[tuple[Attempt, timedelta]]:
        """Remove those that have waited too long or are too many; return each with the delay for its release.

        The delay grows with the time that those before them have been running: each release costs two history events.
        """
        now, most = self._clock.monotonic(), max(1, self._slots // SLOTS_PER_QUARANTINED)
        kept = [entry for entry in self._waiting if now - entry.since < WAIT.total_seconds()][:most]
        if len(kept) == len(self._waiting):
            return []
        surplus = [entry.attempt for entry in self._waiting if entry not in kept]
        self._waiting = deque(kept)
        begun = min((entry.since for entry in self._running.values()), default=now)
        delay = min(max(timedelta(seconds=now - begun), WAIT), LONGEST_WAIT)
        return [(attempt, delay) for attempt in surplus]

    def take_waiting(self) -> list[Attempt]:
        """Remove and return all that wait: none of them has started."""
        waiting = [entry.attempt for entry in self._waiting]
        self._waiting.clear()
        return waiting
