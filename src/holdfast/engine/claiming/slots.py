"""The slots of a worker, and the attempts that it holds."""

from collections.abc import Mapping

from holdfast.engine.claiming.quarantine import Quarantine
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.worker.settler import Settler

SHARES = 2
"""Batches in which the slots are filled: one runs while the next is claimed."""


class Slots:
    """Counts free slots. An attempt is held from its claim to its end, and its lease is extended meanwhile."""

    def __init__(self, size: int, quarantine: Quarantine, settler: Settler) -> None:
        self.size = size
        self._quarantine = quarantine
        self._settler = settler
        self._held: dict[str, Attempt] = {}
        self.running = 0
        """How many attempts are running."""

    @property
    def held(self) -> Mapping[str, Attempt]:
        """The attempts that are held, by the id of their job: a live view."""
        return self._held

    def free(self) -> int:
        """Return how many attempts may start; at most twice as many as there are slots may be unwritten."""
        taken = self.running + self._quarantine.waiting
        return min(self.size - taken, 2 * self.size - taken - self._settler.unsettled)

    def room(self) -> int:
        """Return how many jobs to claim now."""
        return min(self.free(), max(1, self.size // SHARES))

    def hold(self, attempt: Attempt) -> None:
        """Hold *attempt*. An older one at the same job is stopped: its lease expired, or it is past its deadline."""
        older = self._held.get(attempt.claim.id)
        if older is not None:
            older.interrupt(Interruption.REPLACED)
        self._held[attempt.claim.id] = attempt

    def drop(self, attempt: Attempt) -> None:
        """Hold *attempt* no longer."""
        claim = attempt.claim
        if claim.losses or claim.excused:
            self._quarantine.ended(attempt)
        if self._held.get(claim.id) is attempt:
            del self._held[claim.id]

    def started(self) -> None:
        """Note that a held attempt runs."""
        self.running += 1

    def ended(self, attempt: Attempt) -> None:
        """Note that a running attempt has ended."""
        self.running -= 1
        self.drop(attempt)
