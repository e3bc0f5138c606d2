"""When the scheduler looks again: at the next tick, whatever the last one took."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from holdfast import Holdfast
from holdfast.engine.worker.scheduler import LONGEST_REST, Scheduler
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.ports import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class SlowStore:
    """A store, and its part about schedules, in which a schedule has come to a minute before noon, and whose writes take their time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.schedules = self

    async def last_ticks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        return NOON, dict.fromkeys(names, NOON - timedelta(minutes=1))

    async def advance(self, *_: Any) -> bool:
        await asyncio.sleep(self._seconds)
        return True


def pause_after(*, seconds: float, every: str) -> float:
    """Have a tick submitted by a store that takes some seconds, and return how long the scheduler rests then."""
    hold = Holdfast("sqlite:///never-made.db")

    @hold.every(every)
    @hold.job("tidy")
    async def tidy() -> None: ...

    store = cast("Store", SlowStore(seconds))
    scheduler = Scheduler(replace(hold.runtime, store=store, metrics=MetricRegistry()))
    loop = VirtualLoop(random.Random(0))
    try:
        return loop.run_until_complete(scheduler.run_once())
    finally:
        loop.close()


def test_a_slow_write_makes_no_later_tick_late() -> None:
    assert pause_after(seconds=3.5, every="4s") == 0.5


def test_a_write_that_took_longer_than_a_tick_is_followed_by_the_next_at_once() -> None:
    assert pause_after(seconds=25, every="20s") == 0


def test_a_tick_that_is_far_away_is_looked_for_now_and_then() -> None:
    assert pause_after(seconds=0, every="1h") == LONGEST_REST
