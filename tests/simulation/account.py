"""An account of attempts: what each job has spent, kept beside the engine's own count.

A claim spends one; that of a suspected job spends none before it begins, and gives back what another job's crash has cost. A stage that ends makes what is spent one, the present claim: none pays for another.
What was not the job's fault is given back. A lease that is lost gives nothing back: the crash was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.auditor import Row

LOST = "lease lost"
"""The reason in the event of a job that was reclaimed."""


class NewEvent(NamedTuple):
    """An event that a commit wrote."""

    kind: str
    reason: str | None

    @property
    def gives_back(self) -> bool:
        """Whether it records a job that was released untouched."""
        return self.kind in ("parked", "held") or (self.kind == "queued" and self.reason != LOST)


class Account:
    """Remembers what each job had spent when its lease began."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def complaints(self, old: Row, new: Row, *, stage_ended: bool, events: list[NewEvent]) -> Iterator[str]:
        """Check the count after one change of a row. Several at once are not checked, and trusted."""
        several = new.token > old.token + 1 or (new.timed_out and events)
        if not old.ended and not several:
            fair = self._fair(old, new, stage_ended=stage_ended, events=events)
            if new.attempt not in fair:
                yield f"{new.attempt} attempts are spent, where {sorted(fair)} would be fair"
        if new.status == "processing" and new.token != old.token:
            self._before[new.id] = new.attempt - (new.suspicion != 1)

    def _fair(self, old: Row, new: Row, *, stage_ended: bool, events: list[NewEvent]) -> set[int]:
        if old.status == "queued":
            if new.status != "processing":
                return {old.attempt}
            suspected, unspent = bool(old.losses or old.excused), old.attempt - (old.excused == 1)
            # A suspected job may have been begun in the same commit.
            return {unspent, unspent + 1} if suspected else {unspent + 1}
        spent = 1 if stage_ended else self._before.get(old.id, 0) + 1
        if new.status == "queued" and events and events[-1].gives_back:
            return {spent - 1}
        # While a suspected job waits for its turn, its attempt is not spent.
        return {spent, spent - 1} if old.suspicion == 1 and not stage_ended else {spent}
