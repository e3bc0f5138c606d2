"""Jobs that may be what took their workers down: few of them run at a time, beside all others.

The row of one that runs says so. If its worker is lost, the store holds it responsible, and not its neighbours.
"""

from collections import deque
from datetime import timedelta
from typing import NamedTuple

from holdfast.core.crashes import company
from holdfast.core.jobs import Claim
from holdfast.engine.attempt import Attempt, Interruption
from holdfast.engine.patience import Patience
from holdfast.engine.registry import Registry
from holdfast.ports import Clock, Store

FEW = 4
"""One slot in so many may be taken by suspects that wait, and as many by those that run."""

WAIT = timedelta(seconds=5)
"""How long a suspect waits in a worker. Then it goes back to its queue, where another worker may find it."""

LONGEST_WAIT = timedelta(minutes=5)
"""How long it waits there at most, before it is claimed again."""


class _Suspect(NamedTuple):
    attempt: Attempt
    company: int
    """How many suspects may run in this worker while it does, itself included."""
    since: float
    """When it was claimed, or begun, by this process's steady clock."""


class Suspects:
    """Suspects that wait for their turn, in the order in which they came, and those that run."""

    def __init__(
        self, store: Store, registry: Registry, patience: Patience, *, clock: Clock, slots: int
    ) -> None:
        self._store = store
        self._registry = registry
        self._patience = patience
        self._clock = clock
        self._slots = slots
        self._waiting: deque[_Suspect] = deque()
        self._running: dict[Attempt, _Suspect] = {}

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def among(self, claims: list[Claim]) -> list[Claim]:
        """Pick those out of *claims* whose code is to run, and may take the process down."""
        # One that is to be cancelled is ended by its claim. Put back to wait, it would be ready again at once.
        return [claim for claim in claims if claim.suspect and self._registry.runs(claim)]

    def add(self, attempt: Attempt) -> None:
        """Let *attempt* wait for its turn."""
        spec = self._registry.get(attempt.claim.name)
        budget = 1 if spec is None else spec.crash_budget
        most = company(attempt.claim, budget, self._slots)
        self._waiting.append(_Suspect(attempt, most, self._clock.monotonic()))

    async def begin(self, *, within: timedelta) -> list[Attempt]:
        """Give the suspects whose turn it is, their attempts spent. Raises `StoreUnavailable`."""
        ready = self._take_ready()
        if not ready:
            return []
        leases = [(suspect.attempt.claim.id, suspect.attempt.claim.token) for suspect in ready]
        try:
            held = await self._patience.insist(lambda _: self._store.begin(leases), within=within)
        except BaseException:
            self._waiting.extendleft(reversed(ready))
            raise
        now = self._clock.monotonic()
        for suspect, is_held in zip(ready, held, strict=True):
            if not is_held:
                suspect.attempt.interrupt(
                    Interruption.LOST
                )  # it then ends without running, and writes nothing
            self._running[suspect.attempt] = suspect._replace(since=now)
        return [suspect.attempt for suspect in ready]

    def _take_ready(self) -> list[_Suspect]:
        """Take those that may run beside the suspects that run already; none overtakes another."""
        ready: list[_Suspect] = []
        most = min((suspect.company for suspect in self._running.values()), default=self._slots)
        while self._waiting:
            most = min(most, self._waiting[0].company)
            if len(self._running) + len(ready) >= most:
                break
            ready.append(self._waiting.popleft())
        return ready

    def ended(self, attempt: Attempt) -> None:
        """Note that an attempt is over."""
        self._running.pop(attempt, None)

    def take_surplus(self) -> list[tuple[Attempt, timedelta]]:
        """Give up those that have waited long enough, or are too many, and say for how long each is to go back.

        The longer the suspects before them have been running, the longer: each time costs two lines of history.
        """
        now, most = self._clock.monotonic(), max(1, self._slots // FEW)
        kept = [suspect for suspect in self._waiting if now - suspect.since < WAIT.total_seconds()][:most]
        if len(kept) == len(self._waiting):
            return []
        surplus = [suspect.attempt for suspect in self._waiting if suspect not in kept]
        self._waiting = deque(kept)
        begun = min((suspect.since for suspect in self._running.values()), default=now)
        delay = min(max(timedelta(seconds=now - begun), WAIT), LONGEST_WAIT)
        return [(attempt, delay) for attempt in surplus]

    def dismiss(self) -> list[Attempt]:
        """Give up all that wait: they have not begun."""
        waiting = [suspect.attempt for suspect in self._waiting]
        self._waiting.clear()
        return waiting
