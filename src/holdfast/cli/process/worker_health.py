"""The health of one worker: liveness, readiness and metrics."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.process.runner_health import CachedReading, RunnerHealth, read_or_none
from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.providers.breaker_state import STATES as PROVIDER_STATES
from holdfast.core.providers.breaker_state import BreakerState, failure_rate, open_seconds, state_name
from holdfast.core.providers.holder import Holder
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.worker import Worker
from holdfast.ports import Depth

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Gauges

STATES = ("ready", "scheduled", "waiting", "held", "processing")
MOST_QUEUES = 100
OTHER_QUEUES = "(others)"


class WorkerHealth(RunnerHealth):
    """The health of one worker."""

    waits_for = "asked for jobs"

    def __init__(self, runtime: Runtime, worker: Worker) -> None:
        super().__init__(runtime, worker)
        self._worker = worker
        self._depths = CachedReading(
            lambda: read_or_none(runtime.store.queues.depths()), keep=5.0, clock=runtime.clock
        )
        self._held = CachedReading(
            lambda: read_or_none(runtime.store.providers.count_held()), keep=5.0, clock=runtime.clock
        )
        self._letters = CachedReading(
            lambda: read_or_none(runtime.store.dead_letters.counts()), keep=5.0, clock=runtime.clock
        )

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
        return {**gauges, **await self._outbox_gauges()}


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
