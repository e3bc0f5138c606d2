"""The schedule service: list recurring jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.operations.store_access import OperatorService, in_sync

if TYPE_CHECKING:
    import builtins


class ScheduleStatus(NamedTuple):
    """A declared schedule with its last and its next tick."""

    name: str
    job: str
    when: str
    last: datetime | None
    next: datetime


class ScheduleService(OperatorService):
    """Lists the recurring jobs that are declared here, for operators. Reached as `hold.schedules`."""

    async def list(self) -> "builtins.list[ScheduleStatus]":
        """Return the declared schedules by name, with their ticks by the store's clock; no schedule is started."""
        await self._access.open()
        names = [each.schedule.name for each in self._runtime.registry.recurring]
        now, last_ticks = await self._store.schedules.last_ticks(names)
        return self._statuses(now, last_ticks)

    def before_first_run(self, now: datetime) -> "builtins.list[ScheduleStatus]":
        """Return the declared schedules as they are at *now* before any tick; the store is not used."""
        return self._statuses(now, {})

    def _statuses(self, now: datetime, last: Mapping[str, datetime]) -> "builtins.list[ScheduleStatus]":
        recurring = sorted(self._runtime.registry.recurring, key=lambda each: each.schedule.name)
        return [
            ScheduleStatus(
                each.schedule.name,
                each.job.name,
                each.schedule.description,
                last.get(each.schedule.name),
                next(each.schedule.ticks(now)),
            )
            for each in recurring
        ]

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
