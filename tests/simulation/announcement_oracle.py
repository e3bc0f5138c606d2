"""The announcement oracle: each end and each retry of a job that announces it is announced once, in the same commit.

It reads the announcements beside the history of the jobs. An announcement leaves its table in the commit that stores its
message in the outbox.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.message_jobs import ANNOUNCED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.simulation.account import NewEvent
    from tests.simulation.auditor import Row
    from tests.simulation.files import Tables

_ANNOUNCEMENTS = "SELECT job_id, kind, generation, attempt, again FROM holdfast_announcements"


class AnnouncementRow(NamedTuple):
    """An announcement that is not rendered yet."""

    job_id: str
    kind: str
    generation: int
    attempt: int
    again: int

    @property
    def key(self) -> str:
        """The key of its message."""
        parts = (self.job_id, self.generation, self.kind, self.attempt, self.again, 0)
        return ":".join(["announce", *map(str, parts)])


class AnnouncementOracle:
    """Watches announcements from the event to the outbox."""

    def __init__(self) -> None:
        self._rows: set[AnnouncementRow] = set()

    def complaints(
        self,
        tables: Tables,
        jobs: Mapping[str, Row],
        pairs: Iterable[tuple[Row | None, Row]],
        events: Mapping[str, Sequence[NewEvent]],
        *,
        keys: Iterable[str | None],
    ) -> Iterator[str]:
        """Check all that has changed: jobs before and after, without those restored; *keys* are those of the outbox."""
        before = self._rows
        self._rows = tables.read(_ANNOUNCEMENTS, lambda rows: {AnnouncementRow(*row) for row in rows})
        fresh = self._rows - before
        announced = Counter((row.job_id, row.kind) for row in fresh if not row.again)
        expected: Counter[tuple[str, str]] = Counter()
        for old, new in pairs:
            for kind in _happened(old, new, events.get(new.id, ())):
                expected[new.id, kind] += kind in ANNOUNCED.get(new.name, ())
        expected = +expected
        if announced != expected:
            yield f"{dict(announced)} is announced, and {dict(expected)} happened"
        if orphans := [row for row in self._rows if row.job_id not in jobs]:
            yield f"jobs are gone whose ends are still to be announced: {orphans}"
        stored = {key for key in keys if key is not None and key.startswith("announce:")}
        if gone := {row.key for row in before - self._rows} - stored:
            yield f"announcements are gone, and there is no message of them: {sorted(gone)}"
        if early := {row.key for row in self._rows} & stored:
            yield f"announcements are published, and are still to be: {sorted(early)}"

    def unsettled(self) -> Iterator[tuple[str, str]]:
        """Name the announcements that are not rendered yet."""
        for row in self._rows:
            yield row.key, f"not rendered: {row}"


def _happened(old: Row | None, new: Row, events: Sequence[NewEvent]) -> Iterator[str]:
    """Name what happened to a job that may be announced."""
    yield from ("retrying" for event in events if event.kind == "retry")
    accepted = old is not None and (old.status, new.status) == ("failed", "completed")
    if new.ended and (old is None or not old.ended or accepted):
        yield "timed_out" if new.timed_out and new.status == "failed" else new.status
