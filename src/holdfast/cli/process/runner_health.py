"""The health of a process that runs a worker or a relay: liveness, readiness and metrics."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import printable
from holdfast.engine.runtime import Runtime
from holdfast.ports import Clock
from holdfast.ports.messages.outbox import OutboxStats
from holdfast.stores.schema_version import ensure_fit
from holdfast.telemetry.health_server import HealthResponse, Route, json_response

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Gauges, MetricsPage

T = TypeVar("T")

STORE_TIMEOUT = 2.0
"""Timeout of a read from the store, in seconds."""
REST_FACTOR = 20
"""A reading is cached for this many times its duration, or longer."""


class Runner(Protocol):
    """What a process runs until it is stopped: a worker, or a relay."""

    kind: str
    """Its kind in log lines and in the answer whether it is ready."""
    name: str
    stopped: bool
    ready: asyncio.Event

    @property
    def running(self) -> int:
        """How much it has in flight."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether it takes nothing more."""
        ...

    def stop(self) -> None:
        """Finish what is in flight; a second call ends the grace time at once."""
        ...

    async def run(self) -> None:
        """Run until `stop`."""
        ...


async def live() -> HealthResponse:
    """Respond that the process is live: a blocked event loop does not respond."""
    return json_response(HTTPStatus.OK, live=True)


async def no_metrics() -> HealthResponse:
    """Respond that an extra is not installed."""
    return json_response(
        HTTPStatus.NOT_IMPLEMENTED,
        error="prometheus-client is not installed; install it with: pip install 'holdfast[metrics]'",
    )


class RunnerHealth(ABC):
    """The health of what one process runs. *waits_for* says what it has not done before it is ready."""

    waits_for: str

    def __init__(self, runtime: Runtime, runner: Runner) -> None:
        self._runtime = runtime
        self._runner = runner
        self._store_problem = CachedReading(self._read_store_problem, keep=1.0, clock=runtime.clock)
        self._outbox = CachedReading(
            lambda: read_or_none(runtime.store.outbox.stats()), keep=5.0, clock=runtime.clock
        )

    @abstractmethod
    async def _gauges(self) -> "Gauges":
        """Return the gauges of the page."""

    def routes(self) -> dict[str, Route]:
        """Return the routes by path."""
        try:
            from holdfast.telemetry.prometheus import MetricsPage  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return {"/live": live, "/ready": self.ready, "/metrics": no_metrics}
        page = MetricsPage(self._runtime.metrics, providers=self._runtime.registry.providers)
        return {"/live": live, "/ready": self.ready, "/metrics": partial(self._metrics, page)}

    async def ready(self) -> HealthResponse:
        """Respond whether it works, and if not, why."""
        named = {self._runner.kind: self._runner.name}
        why = await self._reason_not_ready()
        if why is None:
            return json_response(HTTPStatus.OK, ready=True, **named)
        return json_response(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why=printable(why), **named)

    async def _reason_not_ready(self) -> str | None:
        if self._runner.stopping:
            return f"the {self._runner.kind} is stopping"
        if not self._runner.ready.is_set():
            return f"the {self._runner.kind} has not {self.waits_for} yet"
        return await self._store_problem.get()

    async def _read_store_problem(self) -> str | None:
        """Return why the store cannot be used, or `None`."""
        try:
            async with asyncio.timeout(STORE_TIMEOUT):
                ensure_fit(await self._runtime.store.schema_state())
        except TimeoutError:
            return f"the store did not answer within {STORE_TIMEOUT:g} s"
        except HoldfastError as error:
            return str(error)
        return None

    async def _metrics(self, page: "MetricsPage") -> HealthResponse:
        from holdfast.telemetry.prometheus import CONTENT_TYPE  # noqa: PLC0415 - an extra

        return HealthResponse(HTTPStatus.OK, page.text(await self._gauges()), CONTENT_TYPE)

    async def _outbox_gauges(self) -> "Gauges":
        """Return the gauges of the outbox, if the application publishes messages and the store answers."""
        stats = await self._outbox.get() if self._runtime.registry.brokers else None
        return {} if stats is None else outbox_gauges(stats)


def outbox_gauges(stats: OutboxStats) -> "Gauges":
    """Return how many messages wait, how long the oldest does, and how many routes are blocked."""
    waited = 0.0 if stats.oldest is None else stats.oldest.total_seconds()
    return {
        "outbox_depth": [
            (("pending",), stats.pending - stats.held),
            (("held",), stats.held),
            (("failed",), stats.failed),
        ],
        "outbox_lag_seconds": [((), waited)],
        "outbox_blocked_routes": [((), stats.blocked_routes)],
    }


async def read_or_none(reading: Awaitable[T]) -> T | None:
    """Read from the store; `None` if it is unavailable, so that only its own metrics are missing."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            return await reading
    except (TimeoutError, HoldfastError):
        return None


class CachedReading(Generic[T]):
    """Shares one read among concurrent callers, and caches its result.

    However often a worker is probed, the load on its store is bounded: the longer a read takes,
    the longer its result is cached.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], *, keep: float, clock: Clock) -> None:
        self._read = read
        self._keep = keep
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._fresh_until = 0.0

    async def get(self) -> T:
        """Return the cached result, that of the read in flight, or a new one."""
        task = self._task
        if task is None or (task.done() and self._clock.monotonic() > self._fresh_until):
            task = self._task = asyncio.create_task(self._read_timed(), name="holdfast health reading")
        # A client that disconnects does not cancel the read for the others.
        return await asyncio.shield(task)

    async def _read_timed(self) -> T:
        began = self._clock.monotonic()
        try:
            return await self._read()
        finally:
            ended = self._clock.monotonic()
            self._fresh_until = ended + max(self._keep, REST_FACTOR * (ended - began))
