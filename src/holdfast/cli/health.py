"""What a worker tells those who look after it: whether it lives, whether it works, and its figures."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from holdfast.core.breakers import STATES as PROVIDER_STATES
from holdfast.core.breakers import Gate, failure_rate, shut_for, state_of
from holdfast.core.errors import HoldfastError
from holdfast.core.letters import LetterState
from holdfast.core.providers import awaited_name, provider_of
from holdfast.core.redaction import printable
from holdfast.engine.parts import Parts
from holdfast.engine.worker import Worker
from holdfast.ports import Clock, Depth
from holdfast.stores.versions import ensure_fit
from holdfast.telemetry.probes import Answer, Route, told

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Gauges, Page

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds in which the store has to answer."""
STATES = ("ready", "scheduled", "waiting", "held", "processing")
MOST_QUEUES = 100
OTHER_QUEUES = "(others)"
REST = 20
"""How many times as long as it took to answer the same question is not asked again."""


async def live() -> Answer:
    """Say that the event loop turns: if it did not, nobody would hear this."""
    return told(HTTPStatus.OK, live=True)


async def no_metrics() -> Answer:
    """Say what is missing."""
    return told(
        HTTPStatus.NOT_IMPLEMENTED,
        error="prometheus-client is not installed; install it with: pip install 'holdfast[metrics]'",
    )


class WorkerHealth:
    """How one worker fares."""

    def __init__(self, parts: Parts, worker: Worker) -> None:
        self._parts = parts
        self._worker = worker
        self._trouble = Recent(self._store_trouble, keep=1.0, clock=parts.clock)
        self._depths = Recent(self._read_depths, keep=5.0, clock=parts.clock)
        self._held = Recent(self._read_held, keep=5.0, clock=parts.clock)
        self._letters = Recent(self._read_letters, keep=5.0, clock=parts.clock)

    def routes(self) -> dict[str, Route]:
        """Give the paths, and what is answered there."""
        try:
            from holdfast.telemetry.prometheus import Page  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return {"/live": live, "/ready": self.ready, "/metrics": no_metrics}
        page = Page(self._parts.metrics, providers=self._parts.registry.providers)
        return {"/live": live, "/ready": self.ready, "/metrics": partial(self._metrics, page)}

    async def ready(self) -> Answer:
        """Say whether the worker takes jobs, and if not, why."""
        why = await self._why_not()
        if why is None:
            return told(HTTPStatus.OK, ready=True, worker=self._worker.name)
        return told(HTTPStatus.SERVICE_UNAVAILABLE, ready=False, why=printable(why), worker=self._worker.name)

    async def _why_not(self) -> str | None:
        if self._worker.stopping:
            return "the worker is stopping"
        if not self._worker.ready.is_set():
            return "the worker has not asked for jobs yet"
        return await self._trouble.get()

    async def _store_trouble(self) -> str | None:
        """Say what keeps the store from answering, or this code from using it."""
        try:
            async with asyncio.timeout(PATIENCE):
                ensure_fit(await self._parts.store.schema_state())
        except TimeoutError:
            return f"the store did not answer within {PATIENCE:g} s"
        except HoldfastError as error:
            return str(error)
        return None

    async def _metrics(self, page: "Page") -> Answer:
        from holdfast.telemetry.prometheus import CONTENT_TYPE  # noqa: PLC0415 - an extra

        return Answer(HTTPStatus.OK, page.text(await self._gauges()), CONTENT_TYPE)

    async def _gauges(self) -> "Gauges":
        worker = self._worker
        gauges: Gauges = {
            "worker_slots": [((), worker.options.slots)],
            "worker_running": [((), worker.running)],
            "worker_unsettled": [((), worker.unsettled)],
            **gate_gauges({line.name: Seen(line.state.gate, line.now) for line in worker.permits.lines}),
        }
        depths, held, letters = await asyncio.gather(
            self._depths.get(), self._held.get(), self._letters.get()
        )
        if depths is not None:
            gauges = {**gauges, **queue_gauges(depths, tuple(worker.options.queues))}
        if held is not None:
            gauges = {**gauges, **held_gauge(held, self._parts.registry.providers)}
        if letters is not None:
            gauges = {**gauges, **letters_gauge(letters)}
        return gauges

    async def _read_depths(self) -> list[Depth] | None:
        return await _unless_away(self._parts.store.depths())

    async def _read_held(self) -> dict[str, int] | None:
        return await _unless_away(self._parts.store.held())

    async def _read_letters(self) -> dict[tuple[str, str], int] | None:
        return await _unless_away(self._parts.store.letter_counts())


async def _unless_away(reading: Awaitable[T]) -> T | None:
    """Read from the store; one that is away takes its own figures along, and no others."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await reading
    except (TimeoutError, HoldfastError):
        return None


class Seen(NamedTuple):
    """A provider's gate as a worker knows it, and the store's time."""

    gate: Gate
    now: float


def gate_gauges(gates: Mapping[str, Seen]) -> "Gauges":
    """Write down how providers stand."""
    return {
        "provider_state": [
            ((name, state), float(state == state_of(*seen)))
            for name, seen in gates.items()
            for state in PROVIDER_STATES
        ],
        "provider_failure_rate": [((name,), failure_rate(seen.gate)) for name, seen in gates.items()],
        "provider_shut_for_seconds": [((name,), shut_for(*seen)) for name, seen in gates.items()],
    }


def held_gauge(held: Mapping[str, int], declared: Iterable[str]) -> "Gauges":
    """Count the jobs that providers hold, for their gate or a limit; a declared one that holds none counts 0."""
    jobs = Counter(dict.fromkeys(declared, 0))
    for holder, count in held.items():
        if awaited_name(holder) is None:
            jobs[provider_of(holder)] += count
    return {"provider_held": [((name,), count) for name, count in sorted(jobs.items())]}


def letters_gauge(counts: Mapping[tuple[str, str], int]) -> "Gauges":
    """Count dead letters by their state, whatever the jobs are named; a state without any is not forgotten."""
    letters = Counter(dict.fromkeys(LetterState, 0))
    for (_, state), count in counts.items():
        letters[LetterState(state)] += count
    return {"dead_letters": [((state.value,), count) for state, count in letters.items()]}


def queue_gauges(depths: Iterable[Depth], served: Iterable[str]) -> "Gauges":
    """Write down how deep queues are; an empty one is zero deep, and not forgotten.

    Whoever submits invents names of queues, and each name is a series for ever in somebody's Prometheus:
    beyond those that are served only so many have their own, and the others are counted together.
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


class Recent(Generic[T]):
    """Asks once for all who want to know at the same time, and remembers the answer for a while.

    However often and by however many a worker is probed, its store hears little of it; and what takes the
    store long, it is asked the more seldom.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], *, keep: float, clock: Clock) -> None:
        self._ask = ask
        self._keep = keep
        self._clock = clock
        self._asked: asyncio.Task[T] | None = None
        self._fresh_until = 0.0

    async def get(self) -> T:
        """Give the answer: the one from before, the one under way, or a new one."""
        asked = self._asked
        if asked is None or (asked.done() and self._clock.monotonic() > self._fresh_until):
            asked = self._asked = asyncio.create_task(self._answer(), name="holdfast probe's question")
        # A client that leaves does not take the answer from the others.
        return await asyncio.shield(asked)

    async def _answer(self) -> T:
        began = self._clock.monotonic()
        try:
            return await self._ask()
        finally:
            ended = self._clock.monotonic()
            self._fresh_until = ended + max(self._keep, REST * (ended - began))
