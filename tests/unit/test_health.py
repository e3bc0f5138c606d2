"""What a worker asks its store for those who look after it, and what it makes of the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.process.runner_health import CachedReading, outbox_gauges
from holdfast.cli.process.worker_health import (
    MOST_QUEUES,
    OTHER_QUEUES,
    ProviderReading,
    breaker_gauges,
    held_gauge,
    queue_gauges,
)
from holdfast.core.providers import breaker_state
from holdfast.core.providers.breaker_state import BreakerState, OpenCause, OpenPeriod
from holdfast.core.providers.holder import Holder
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.ports import Depth
from holdfast.ports.messages.outbox import OutboxStats


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


OPEN = BreakerState(open_period=OpenPeriod(OpenCause.FAILURES, since=10.0, until=40.0, failed=11, seen=20))


@pytest.mark.clause("OBS-2")
@pytest.mark.parametrize(
    ("breaker", "state"),
    [
        (BreakerState(), "closed"),
        (OPEN, "open"),
        (replace(OPEN, override=Override(OverrideKind.PAUSE, "ada", "", at=20.0)), "paused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_provider_is_in_one_state_and_in_no_other(breaker: BreakerState, state: str) -> None:
    readings = dict(breaker_gauges({"llm": ProviderReading(breaker, 30.0)})["provider_state"])

    assert readings == {("llm", each): float(each == state) for each in breaker_state.STATES}


@pytest.mark.parametrize(
    ("breaker", "seconds"),
    [
        (BreakerState(), 0.0),
        (OPEN, 20.0),
        (BreakerState(override=Override(OverrideKind.OPEN, "ada", "", at=25.0)), 5.0),
        (replace(OPEN, override=Override(OverrideKind.PAUSE, "ada", "", at=25.0)), 20.0),
        (replace(OPEN, override=Override(OverrideKind.OBSERVE, "ada", "", at=25.0)), 0.0),
    ],
    ids=["closed", "open", "forced open", "paused while it was open", "observed"],
)
def test_a_provider_is_open_for_as_long_as_calls_have_been_refused(
    breaker: BreakerState, seconds: float
) -> None:
    assert breaker_gauges({"llm": ProviderReading(breaker, 30.0)})["provider_shut_for_seconds"] == [
        (("llm",), seconds)
    ]


def test_the_failure_rate_is_of_the_window_or_of_the_calls_that_opened_it() -> None:
    calls = tuple(
        breaker_state.RecordedCall(0.0, failed, slow=False) for failed in (True, False, False, False)
    )
    breakers = {"fresh": BreakerState(), "closed": BreakerState(seen=calls), "open": OPEN}

    gauges = breaker_gauges({name: ProviderReading(breaker, 30.0) for name, breaker in breakers.items()})

    assert dict(gauges["provider_failure_rate"]) == {("fresh",): 0.0, ("closed",): 0.25, ("open",): 0.55}


def test_held_jobs_are_counted_for_their_provider_whichever_limit_it_is() -> None:
    held = {Holder("llm"): 3, Holder("llm", "customer-7"): 4, Holder("elsewhere"): 1}

    readings = held_gauge(held, ["llm", "speech"])["provider_held"]

    assert dict(readings) == {("elsewhere",): 1, ("llm",): 7, ("speech",): 0}


def test_the_outbox_is_measured_by_state_and_by_its_oldest_message() -> None:
    stats = OutboxStats(pending=7, held=5, failed=1, oldest=timedelta(seconds=3), blocked_routes=2)

    gauges = outbox_gauges(stats)

    assert dict(gauges["outbox_depth"]) == {("pending",): 2, ("held",): 5, ("failed",): 1}
    assert gauges["outbox_lag_seconds"] == [((), 3.0)]
    assert gauges["outbox_blocked_routes"] == [((), 2)]
    assert outbox_gauges(stats._replace(oldest=None))["outbox_lag_seconds"] == [((), 0.0)]


async def test_those_who_ask_at_the_same_time_share_one_answer() -> None:
    watch = Watch()
    question = Question(watch)
    recent = CachedReading(question, keep=1.0, clock=watch)

    answers = await asyncio.gather(*[recent.get() for _ in range(50)])

    assert answers == [1] * 50


async def test_an_answer_is_kept_for_its_time_and_then_asked_for_again() -> None:
    watch = Watch()
    recent = CachedReading(Question(watch), keep=1.0, clock=watch)

    first = await recent.get()
    watch.seconds += 0.9
    again = await recent.get()
    watch.seconds += 0.2
    later = await recent.get()

    assert (first, again, later) == (1, 1, 2)


async def test_what_takes_long_to_answer_is_asked_the_more_seldom() -> None:
    watch = Watch()
    recent = CachedReading(Question(watch, takes=2.0), keep=1.0, clock=watch)

    first = await recent.get()
    watch.seconds += 39.0
    again = await recent.get()
    watch.seconds += 2.0
    later = await recent.get()

    assert (first, again, later) == (1, 1, 2)


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    watch = Watch()
    recent = CachedReading(Question(watch), keep=1.0, clock=watch)
    cancelled, waiting = asyncio.create_task(recent.get()), asyncio.create_task(recent.get())
    await asyncio.sleep(0)

    cancelled.cancel()

    assert await waiting == 1
