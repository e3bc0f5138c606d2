"""The scheduler: it submits recurring jobs, once for each tick, by the first worker that sees the tick."""

import asyncio
import math
from datetime import datetime

from holdfast.core.jobs.job import Submission
from holdfast.engine.registry import Recurring
from holdfast.engine.service import Service

LONGEST_REST = 1.0
"""Longest rest in seconds, however far the next tick is: the store's clock may be set forward."""


class Scheduler(Service):
    """Submits the recurring jobs that this process declares when their next tick is due."""

    name = "scheduler"

    async def run_once(self) -> float:
        """Submit what is due; return the seconds until the next tick, by the store's clock."""
        recurring = {each.schedule.name: each for each in self._runtime.registry.recurring}
        if not recurring:
            return LONGEST_REST
        steady = asyncio.get_running_loop().time
        asked_at, upcoming = steady(), math.inf
        now, last_ticks = await self._last_ticks(sorted(recurring))
        for name, last_tick in last_ticks.items():
            next_tick = await self._submit(recurring[name], last_tick, now)
            upcoming = min(upcoming, (next_tick - now).total_seconds())
        # A slow answer makes no later tick late; a run that comes too early does no harm.
        return min(max(upcoming - (steady() - asked_at), 0.0), LONGEST_REST)

    async def _last_ticks(self, names: list[str]) -> tuple[datetime, dict[str, datetime]]:
        now, last_ticks = await self._store.schedules.last_ticks(names)
        if len(last_ticks) == len(names):
            return now, last_ticks
        await self._store.schedules.begin(names)
        return await self._store.schedules.last_ticks(names)

    async def _submit(self, recurring: Recurring, last_tick: datetime, now: datetime) -> datetime:
        due = recurring.schedule.due(last_tick, now)
        if due.last_tick != last_tick:
            batch = [self._submission(recurring) for _ in due.ticks]
            if await self._store.schedules.advance(recurring.schedule.name, last_tick, due.last_tick, batch):
                self._runtime.metrics.count("jobs_created", len(batch))
                self._logger.info("schedule submitted", schedule=recurring.schedule.name, jobs=len(batch))
        return due.upcoming

    def _submission(self, recurring: Recurring) -> Submission:
        spec = recurring.job
        return Submission(
            self._runtime.ids.job_id(),
            spec.name,
            spec.queue,
            "",
            recurring.args,
            spec.priority,
            deadline=spec.deadline,
            announces=spec.announces,
        )
