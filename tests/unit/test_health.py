"""What a worker asks its store for those who look after it, and what it makes of the answer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.health import MOST_QUEUES, OTHER_QUEUES, Recent, queue_gauges
from holdfast.ports import Depth


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


class Question:
    """Counts how often it is asked, and takes some time to answer."""

    def __init__(self, watch: Watch, *, takes: float = 0.0) -> None:
        self.asked = 0
        self._watch = watch
        self._takes = takes

    async def __call__(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        self._watch.seconds += self._takes
        return self.asked


def deep(queue: str, jobs: int, *, state: str = "ready", oldest: float = 1.0) -> Depth:
    return Depth(queue, state, jobs, timedelta(seconds=oldest))


def test_an_empty_queue_that_is_served_is_zero_deep() -> None:
    gauges = queue_gauges([], ["default"])

    assert (("default", "ready"), 0) in gauges["queue_depth"]
    assert gauges["queue_oldest_ready_seconds"] == [(("default",), 0.0)]


@pytest.mark.clause("OBS-2")
def test_queues_by_the_thousand_do_not_become_series_by_the_thousand() -> None:
    depths = [deep(f"tenant-{number:04}", 2, oldest=number) for number in range(5_000)]

    gauges = queue_gauges([*depths, deep("mine", 7)], ["mine"])

    names = {queue for (queue, _), _ in gauges["queue_depth"]}
    assert len(names) == MOST_QUEUES + 2
    assert sum(jobs for _, jobs in gauges["queue_depth"]) == 10_007
    assert ((OTHER_QUEUES,), 4_999.0) in gauges["queue_oldest_ready_seconds"]
    assert (("mine", "ready"), 7) in gauges["queue_depth"]


async def test_those_who_ask_at_the_same_time_share_one_answer() -> None:
    watch = Watch()
    question = Question(watch)
    recent = Recent(question, keep=1.0, clock=watch)

    answers = await asyncio.gather(*[recent.get() for _ in range(50)])

    assert answers == [1] * 50


async def test_an_answer_is_kept_for_its_time_and_then_asked_for_again() -> None:
    watch = Watch()
    recent = Recent(Question(watch), keep=1.0, clock=watch)

    first = await recent.get()
    watch.seconds += 0.9
    again = await recent.get()
    watch.seconds += 0.2
    later = await recent.get()

    assert (first, again, later) == (1, 1, 2)


async def test_what_takes_long_to_answer_is_asked_the_more_seldom() -> None:
    watch = Watch()
    recent = Recent(Question(watch, takes=2.0), keep=1.0, clock=watch)

    first = await recent.get()
    watch.seconds += 39.0
    again = await recent.get()
    watch.seconds += 2.0
    later = await recent.get()

    assert (first, again, later) == (1, 1, 2)


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    watch = Watch()
    recent = Recent(Question(watch), keep=1.0, clock=watch)
    impatient, patient = asyncio.create_task(recent.get()), asyncio.create_task(recent.get())
    await asyncio.sleep(0)

    impatient.cancel()

    assert await patient == 1
