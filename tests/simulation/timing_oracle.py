"""What has its time: parked jobs wake, deadlines pass, ticks come and pauses take effect, soon and not twice.

Soon is promised while there is a worker without a fault: one that is paused or has lost its store is late
by as long as that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.simulation.auditor import Commit, Row

SECOND = 1_000_000
SOON = 2 * SECOND
"""Within this time whatever is due has been seen to."""

SETTLED = 4 * SECOND
"""How long ago a worker's last fault has to be for it to be over: a slow call takes up to three seconds."""

TICK = "tick"
EVERY = 11 * SECOND
"""How often the recurring job of the simulated worlds is due."""


class Notices(NamedTuple):
    """What is written down beside the jobs: ends that no waiting job has been notified of, queues paused since when, last_ticks of schedules."""

    unnotified: set[str]
    paused: Mapping[str, int]
    last_ticks: Mapping[str, int]


class TimingOracle:
    """Checks each commit against the clock."""

    def __init__(self) -> None:
        self._unnotified: dict[str, int] = {}
        self._paused: Mapping[str, int] = {}
        self._last_ticks: Mapping[str, int] = {}
        self.attentive: Callable[[int], bool] = lambda since: False
        """Whether some worker has run without a fault since some moment."""
        self.knows: Callable[[str, int], bool] = lambda worker, since: False
        """Whether this worker has."""

    def complaints(
        self, changes: Sequence[tuple[Row | None, Row]], notices: Notices, commit: Commit
    ) -> Iterator[str]:
        """Name what came too late, or came twice."""
        for old, new in changes:
            if old is not None:
                yield from self._wake(old, new, commit)
                yield from self._pause(old, new, commit)
            yield from self._deadline(new, commit)
        yield from self._ends(notices.unnotified, commit)
        ticks = sum(old is None and new.name == TICK for old, new in changes)
        yield from self._ticks(notices.last_ticks, ticks, commit)
        self._paused, self._last_ticks = notices.paused, notices.last_ticks

    def _late(self, due: int, commit: Commit) -> bool:
        return commit.at - due > SOON and self.attentive(due - SETTLED)

    def _wake(self, old: Row, new: Row, commit: Commit) -> Iterator[str]:
        due = old.retry_after
        if due is not None and new.retry_after is None and not new.ended and self._late(due, commit):
            yield f"job {new.id} was made ready {(commit.at - due) / SECOND:.1f} s after its time"

    def _deadline(self, new: Row, commit: Commit) -> Iterator[str]:
        if new.timed_out_at == commit.at and new.deadline is not None and self._late(new.deadline, commit):
            yield f"job {new.id} timed out {(commit.at - new.deadline) / SECOND:.1f} s after its deadline"

    def _ends(self, unnotified: set[str], commit: Commit) -> Iterator[str]:
        """The jobs that wait for an end are notified of it soon."""
        for job_id, since in self._unnotified.items():
            if self._late(since, commit):
                yield f"the jobs that wait for job {job_id} were not notified of its end for {(commit.at - since) / SECOND:.1f} s"
        self._unnotified = {job_id: self._unnotified.get(job_id, commit.at) for job_id in unnotified}

    def _pause(self, old: Row, new: Row, commit: Commit) -> Iterator[str]:
        """No worker that can know of a pause claims from the paused queue."""
        since = self._paused.get(new.queue)
        claimed = old.status == "queued" and new.status == "processing"
        if since is None or not claimed or commit.at - since <= 2 * SETTLED:
            return
        if self.knows(commit.worker, commit.at - 2 * SETTLED):
            yield f"job {new.id} was claimed from a queue that has been paused for {(commit.at - since) / SECOND:.1f} s"

    def _ticks(self, last_ticks: Mapping[str, int], submitted: int, commit: Commit) -> Iterator[str]:
        """As many jobs are submitted as there are ticks for the schedule to pass, in the same commit."""
        before, after = self._last_ticks.get(TICK), last_ticks.get(TICK)
        passed = 0 if before is None or after is None else after // EVERY - before // EVERY
        if passed != submitted:
            yield f"{submitted} jobs were submitted for {passed} ticks"
        if passed and before is not None:
            due = (before // EVERY + 1) * EVERY
            if self._late(due, commit):
                yield f"a tick came {(commit.at - due) / SECOND:.1f} s after its time"
