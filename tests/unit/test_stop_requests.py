"""What a worker makes of the orders to stop that reach it."""

from __future__ import annotations

import io
import signal
from typing import Any, cast

from holdfast.cli.process.worker_process import StopRequests
from holdfast.telemetry.logs import StructuredLogger


class Stoppable:
    """Stands for a worker; counts how often it was told to stop."""

    name = "host:1:a"
    running = 0
    stopped = False

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


def orders_for(worker: Stoppable, heard: io.StringIO | None = None) -> StopRequests:
    return StopRequests(cast("Any", worker), StructuredLogger(level="INFO", stream=heard or io.StringIO()))


def test_every_signal_is_an_order() -> None:
    worker = Stoppable()
    stop_requests = orders_for(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("signal", signal.SIGINT)

    assert worker.stops == 2


def test_the_same_order_by_two_ways_is_one() -> None:
    worker = Stoppable()
    stop_requests = orders_for(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)

    assert worker.stops == 1


def test_the_second_order_is_the_second_by_whichever_way_it_comes_first() -> None:
    worker = Stoppable()
    stop_requests = orders_for(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)
    stop_requests.receive("signal", signal.SIGTERM)

    assert worker.stops == 2


def test_a_worker_that_has_stopped_is_not_said_to_be_stopping() -> None:
    worker, heard = Stoppable(), io.StringIO()
    stop_requests = orders_for(worker, heard)

    stop_requests.receive("signal", signal.SIGTERM)
    worker.stopped = True
    stop_requests.receive("signal", signal.SIGTERM)

    assert heard.getvalue().count("worker stopping") == 1
    assert worker.stops == 2
