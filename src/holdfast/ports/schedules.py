"""Recurring jobs: how far each schedule has come."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.jobs.job import Submission


class ScheduleStore(Protocol):
    """The part of a store that is about schedules."""

    async def marks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        """Return the store's time, and how far each schedule has come that has begun."""
        ...

    async def begin(self, names: Sequence[str]) -> None:
        """Have schedules that are new count from now on; the others go on as they are."""
        ...

    async def advance(self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]) -> bool:
        """Move a schedule from *old* to *new* and store *batch* with it; false if another worker did."""
        ...
