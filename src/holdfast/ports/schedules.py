"""Recurring jobs: how far each schedule has come."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.jobs.job import Submission


class ScheduleStore(Protocol):
    """The operations of a store on schedules."""

    async def last_ticks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        """Return the store's time, and how far each schedule has come that has begun."""
        ...

    async def begin(self, names: Sequence[str]) -> None:
        """Start new schedules at the store's time; those that have begun are unchanged."""
        ...

    async def advance(self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]) -> bool:
        """Move a schedule from *old* to *new* and submit *batch* with it; return false if another worker has."""
        ...
