"""How a worker counts the stop requests that reach it."""

from __future__ import annotations

import io
import signal
from typing import Any, cast

from holdfast.cli.process.worker_process import StopRequests
from holdfast.telemetry.logs import StructuredLogger


class Stoppable:
    """Stands for a worker; counts how often it was asked to stop."""

    kind = "worker"
    name = "host:1:a"
    running = 0
    stopped = False

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


def stop_requests_of(worker: Stoppable, log: io.StringIO | None = None) -> StopRequests:
    return StopRequests(cast("Any", worker), StructuredLogger(level="INFO", stream=log or io.StringIO()))


def test_every_signal_is_a_stop_request() -> None:
    worker = Stoppable()
    stop_requests = stop_requests_of(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("signal", signal.SIGINT)

    assert worker.stops == 2


def test_the_same_stop_request_by_two_routes_is_one() -> None:
    worker = Stoppable()
    stop_requests = stop_requests_of(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)

    assert worker.stops == 1


def test_the_second_stop_request_is_the_second_by_whichever_route_it_comes_first() -> None:
    worker = Stoppable()
    stop_requests = stop_requests_of(worker)

    stop_requests.receive("signal", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)
    stop_requests.receive("parent", signal.SIGTERM)
    stop_requests.receive("signal", signal.SIGTERM)

    assert worker.stops == 2


def test_a_worker_that_has_stopped_is_not_said_to_be_stopping() -> None:
    worker, log = Stoppable(), io.StringIO()
    stop_requests = stop_requests_of(worker, log)

    stop_requests.receive("signal", signal.SIGTERM)
    worker.stopped = True
    stop_requests.receive("signal", signal.SIGTERM)

    assert log.getvalue().count("worker stopping") == 1
    assert worker.stops == 2
