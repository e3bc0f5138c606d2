"""The health of one worker: liveness, readiness and metrics."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.errors import HoldfastError
from holdfast.core.providers.breaker_state import STATES as PROVIDER_STATES
from holdfast.core.providers.breaker_state import BreakerState, failure_rate, open_seconds, state_name
from holdfast.core.providers.holder import Holder
from holdfast.core.redaction import printable
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.worker import Worker
from holdfast.ports import Clock, Depth
from holdfast.stores.schema_version import ensure_fit
from holdfast.telemetry.health_server import HealthResponse, Route, json_response

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Gauges, MetricsPage

T = TypeVar("T")

STORE_TIMEOUT = 2.0
"""Timeout of a read from the store, in seconds."""
STATES = ("ready", "scheduled", "waiting", "held", "processing")
MOST_QUEUES = 100
OTHER_QUEUES = "(others)"
REST_FACTOR = 20
"""A reading is cached for this many times its duration, or longer."""


async def live() -> HealthResponse:
    """Respond that the process is live: a blocked event loop does not respond."""
    return json_response(HTTPStatus.OK, live=True)


async def no_metrics() -> HealthResponse:
    """Respond that an extra is not installed."""
    return json_response(
        HTTPStatus.NOT_IMPLEMENTED,
        error="prometheus-client is not installed; install it with: pip install 'holdfast[metrics]'",
    )


class WorkerHealth:
    """The health of one worker."""

    def __init__(self, runtime: Runtime, worker: Worker) -> None:
        self._runtime = runtime
        self._worker = worker
        self._store_problem = CachedReading(self._read_store_problem, keep=1.0, clock=runtime.clock)
        self._depths = CachedReading(
            lambda: _read_or_none(runtime.store.queues.depths()), keep=5.0, clock=runtime.clock
        )
        self._held = CachedReading(
            lambda: _read_or_none(runtime.store.providers.count_held()), keep=5.0, clock=runtime.clock
        )
        self._letters = CachedReading(
            lambda: _read_or_none(runtime.store.dead_letters.counts()), keep=5.0, clock=runtime.clock
        )

    def routes(self) -> dict[str, Route]:
        """Return the routes by path."""
        try:
            from holdfast.telemetry.prometheus import MetricsPage  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return {"/live": live, "/ready": self.ready, "/metrics": no_metrics}
        page = MetricsPage(self._runtime.metrics, providers=self._runtime.registry.providers)
        return {"/live": live, "/ready": self.ready, "/metrics": partial(self._metrics, page)}

    async def ready(self) -> HealthResponse:
        """Respond whether the worker claims jobs, and if not, why."""
        why = await self._reason_not_ready()
        if why is None:
            return json_response(HTTPStatus.OK, ready=True, worker=self._worker.name)
        return json_response(
            HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why=printable(why), worker=self._worker.name
        )

    async def _reason_not_ready(self) -> str | None:
        if self._worker.stopping:
            return "the worker is stopping"
        if not self._worker.ready.is_set():
            return "the worker has not asked for jobs yet"
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

    async def _gauges(self) -> "Gauges":
        worker = self._worker
        gauges: Gauges = {
            "worker_slots": [((), worker.options.slots)],
            "worker_running": [((), worker.running)],
            "worker_unsettled": [((), worker.unsettled)],
            **breaker_gauges(
                {line.name: ProviderReading(line.state.breaker, line.now) for line in worker.admission.links}
            ),
        }
        depths, held, letters = await asyncio.gather(
            self._depths.get(), self._held.get(), self._letters.get()
        )
        if depths is not None:
            gauges = {**gauges, **queue_gauges(depths, tuple(worker.options.queues))}
        if held is not None:
            gauges = {**gauges, **held_gauge(held, self._runtime.registry.providers)}
        if letters is not None:
            gauges = {**gauges, **letters_gauge(letters)}
        return gauges


async def _read_or_none(reading: Awaitable[T]) -> T | None:
    """Read from the store; `None` if it is unavailable, so that only its own metrics are missing."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            return await reading
    except (TimeoutError, HoldfastError):
        return None


class ProviderReading(NamedTuple):
    """The breaker of a provider as a worker knows it, and the time of the store."""

    breaker: BreakerState
    now: float


def breaker_gauges(readings: Mapping[str, ProviderReading]) -> "Gauges":
    """Return the gauges of breakers."""
    return {
        "provider_state": [
            ((name, state), float(state == state_name(*reading)))
            for name, reading in readings.items()
            for state in PROVIDER_STATES
        ],
        "provider_failure_rate": [
            ((name,), failure_rate(reading.breaker)) for name, reading in readings.items()
        ],
        "provider_shut_for_seconds": [
            ((name,), open_seconds(*reading)) for name, reading in readings.items()
        ],
    }


def held_gauge(held: Mapping[Holder, int], declared: Iterable[str]) -> "Gauges":
    """Count the jobs that providers hold, for their breaker or a limit; a declared provider without any counts 0."""
    jobs = Counter(dict.fromkeys(declared, 0))
    for holder, count in held.items():
        if holder.provider is not None:
            jobs[holder.provider] += count
    return {"provider_held": [((name,), count) for name, count in sorted(jobs.items())]}


def letters_gauge(counts: Mapping[tuple[str, str], int]) -> "Gauges":
    """Count dead letters by their state, over all job names; a state without any counts 0."""
    letters = Counter(dict.fromkeys(LetterState, 0))
    for (_, state), count in counts.items():
        letters[LetterState(state)] += count
    return {"dead_letters": [((state.value,), count) for state, count in letters.items()]}


def queue_gauges(depths: Iterable[Depth], served: Iterable[str]) -> "Gauges":
    """Return the depth of queues; an empty queue has the value 0.

    Submitters choose the names of queues, and each name is a series in Prometheus:
    beyond the served queues a limited number have their own, and the others are counted together.
    """
    known = list(depths)
    named = {*served, *sorted({depth.queue for depth in known}.difference(served))[:MOST_QUEUES]}
    ages = dict.fromkeys(sorted(named), 0.0)
    jobs = Counter({(queue, state): 0 for queue in ages for state in STATES})
    for depth in known:
        queue = depth.queue if depth.queue in named else OTHER_QUEUES
        jobs[queue, depth.state] += depth.jobs
        if depth.state == "ready":
            ages[queue] = max(ages.get(queue, 0.0), depth.oldest.total_seconds())
    return {
        "queue_depth": list(jobs.items()),
        "queue_oldest_ready_seconds": [((queue,), age) for queue, age in ages.items()],
    }


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
