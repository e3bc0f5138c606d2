"""How long jobs that cannot run here are put aside."""

import io
from datetime import timedelta

import pytest

from holdfast.core.jobs.job import Claim, EventKind
from holdfast.core.providers.holder import Holder
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.telemetry.logs import StructuredLogger
from holdfast.wiring.system import SystemClock


class SteadyClock(SystemClock):
    """A clock whose steady side moves when a test says so."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


def a_claim(name: str) -> Claim:
    return Claim("id", name, "default", "", "{}", 1, 1, 7, 0, 0, False, None)


def test_a_job_of_an_unknown_name_is_held_for_that_name_and_its_queue() -> None:
    unrunnable = Unrunnable("worker", SteadyClock(), StructuredLogger(stream=io.StringIO()))

    change = unrunnable.unknown(a_claim("new"))

    assert change.held_by == Holder(job="new", queue="default")
    assert (change.event, change.gives_back, change.token) == (EventKind.HELD, True, 7)


@pytest.mark.parametrize(
    ("later", "delay"),
    [(0, 30), (29, 30), (31, 31), (120, 120), (300, 300), (9_000, 300)],
)
def test_the_longer_a_name_cannot_be_decoded_the_longer_its_jobs_wait(later: float, delay: float) -> None:
    clock = SteadyClock()
    unrunnable = Unrunnable("worker", clock, StructuredLogger(stream=io.StringIO()))
    unrunnable.undecodable(a_claim("new"))
    clock.seconds += later

    change = unrunnable.undecodable(a_claim("new"))

    assert change.delay == timedelta(seconds=delay)
    assert (change.event, change.gives_back, change.token) == (EventKind.PARKED, True, 7)


def test_each_name_is_counted_separately() -> None:
    clock = SteadyClock()
    unrunnable = Unrunnable("worker", clock, StructuredLogger(stream=io.StringIO()))
    unrunnable.undecodable(a_claim("old"))
    clock.seconds += 200

    assert unrunnable.undecodable(a_claim("new")).delay == timedelta(seconds=30)
    assert unrunnable.undecodable(a_claim("old")).delay == timedelta(seconds=200)
