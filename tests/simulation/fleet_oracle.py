"""The fleet oracle: it sees after every commit which dispatches are outstanding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.simulation.auditor import Commit, Row
    from tests.simulation.files import Tables
    from tests.simulation.simulated_fleet import FleetShape

_DISPATCHES = "SELECT job_id, sent_at, number FROM holdfast_dispatches"

PER_SLOT = 2
"""Dispatches that a fleet may have for each of its slots."""


class FleetOracle:
    """Checks that a fleet has no more dispatches than it may: the rest of a queue can still be paused and reordered."""

    def __init__(self) -> None:
        self.shape: FleetShape | None = None
        self.clock_was_set_back: Callable[[], bool] = lambda: False
        """Whether times may be later than the present: what was lost then counts as outstanding again."""

    def complaints(self, tables: Tables, jobs: Mapping[str, Row], commit: Commit) -> Iterator[str]:
        """Name what is wrong with the dispatches."""
        if self.shape is None or self.clock_was_set_back():
            return
        sent = tables.read(_DISPATCHES, lambda rows: {row[0]: row[1:] for row in rows})
        outstanding = [
            job_id
            for job_id, (sent_at, number) in sent.items()
            if job_id in jobs
            and jobs[job_id].ready
            and commit.at - sent_at < self.shape.resend * 1e6 * 2 ** min(number - 1, 3)
        ]
        most = PER_SLOT * self.shape.slots * self.shape.processes
        if len(outstanding) > most:
            yield f"{len(outstanding)} dispatches are outstanding, of {most}: {sorted(outstanding)}"
