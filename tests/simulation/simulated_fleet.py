"""The fleet of a simulated world: its broker loses, repeats, delays and forgets dispatches, and outlives all processes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.errors import BrokerUnavailable, StoreUnavailable
from holdfast.engine.fleets.fleet_runner import FleetRunner

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast import Holdfast
    from holdfast.engine.options import WorkerOptions
    from holdfast.ports.fleets import Dispatch
    from holdfast.testing.virtual_loop import VirtualLoop
    from tests.simulation.processes import Process

A_LOOK = 0.05
"""Seconds between two looks into an empty queue."""

LOST, TWICE, LATE, UNCONFIRMED, FLUSHED, AGAIN = "lost", "twice", "late", "unconfirmed", "flushed", "again"
FLEET_FAILURES = (LOST, TWICE, LATE, UNCONFIRMED, FLUSHED, AGAIN)


@dataclass(frozen=True)
class FleetShape:
    """How large a fleet is, and how reliable its broker."""

    processes: int = 1
    slots: int = 2
    resend: float = 5.0
    failing: float = 0.0

    @classmethod
    def drawn(cls, chance: random.Random) -> FleetShape:
        """Leave it to chance."""
        return cls(
            chance.choice((1, 2)),
            chance.choice((1, 2, 5)),
            chance.choice((2.0, 10.0)),
            chance.choice((0.0, 0.1, 0.4)),
        )


class SimulatedFleet:
    """The broker between those that dispatch and those that run jobs."""

    def __init__(
        self, shape: FleetShape, chance: random.Random, injected: Counter[str], loop: VirtualLoop
    ) -> None:
        self.shape = shape
        self.calm = False
        self._chance = chance
        self._injected = injected
        self._loop = loop
        self._queue: deque[str] = deque()
        self._script: list[str | None] = []

    def follows(self, *script: str | None) -> None:
        """Fail with these failures, one dispatch after another; `None` for one that arrives. After that all arrive."""
        self._script = list(script)
        self.calm = True

    async def send(self, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        """Take dispatches, and return those that are confirmed: some may be lost all the same."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        return [dispatch.job_id for dispatch in dispatches if self._takes(dispatch.job_id)]

    def _takes(self, job_id: str) -> bool:
        match self._failure():
            case None:
                self._queue.append(job_id)
            case "twice":
                self._queue.extend((job_id, job_id))
            case "late":
                delay = self._chance.uniform(1.0, 30.0)
                self._loop.call_later(delay, self._queue.append, job_id, context=Context())
            case "unconfirmed":
                self._queue.append(job_id)
                return False
            case "flushed":
                self._queue.clear()
        return True

    def _failure(self) -> str | None:
        if self._script:
            return self._script.pop(0)
        if self.calm or self._chance.random() >= self.shape.failing:
            return None
        failure = self._chance.choice((LOST, TWICE, LATE, UNCONFIRMED, FLUSHED))
        self._injected[f"fleet: {failure}"] += 1
        return failure

    async def receive(self) -> str:
        """Wait for a dispatch, and take it; it may be delivered again."""
        while not self._queue:
            await asyncio.sleep(A_LOOK)
        return self._queue.popleft()

    async def serve(self, runner: FleetRunner) -> None:
        """Take one dispatch after another, and have its job run; one whose outcome is unknown is delivered again."""
        while True:
            job_id = await self.receive()
            try:
                await runner.run(job_id)
            except StoreUnavailable:
                self.redeliver(job_id)

    def redeliver(self, job_id: str) -> None:
        """Deliver a dispatch again that was not acknowledged."""
        self._injected[f"fleet: {AGAIN}"] += 1
        self._queue.append(job_id)


class FleetClient:
    """The transport of the fleet in one process, and its sender: each call may be struck."""

    kind = "simulated"

    def __init__(self, fleet: SimulatedFleet, process: Process) -> None:
        self._fleet = fleet
        self._process = process
        self.slots = fleet.shape.slots * fleet.shape.processes
        self.resend = timedelta(seconds=fleet.shape.resend)

    def open(self) -> FleetClient:
        return self

    async def send(self, _: str, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        send = partial(self._fleet.send, dispatches)
        return await self._process.call("fleet.send", send, error=BrokerUnavailable)

    async def check(self) -> str:
        return self.kind

    async def close(self) -> None:
        """Do nothing."""


@asynccontextmanager
async def serving(
    fleet: SimulatedFleet,
    hold: Holdfast,
    process: Process,
    options: WorkerOptions,
    *,
    is_dead: Callable[[str], bool],
) -> AsyncIterator[FleetRunner]:
    """Run dispatched jobs in *process* while the block runs, as one of a Celery or arq worker does."""
    runner = FleetRunner(process.name, hold.runtime, options, is_dead=is_dead)
    await runner.start()
    slots = [asyncio.create_task(fleet.serve(runner), name="a slot") for _ in range(options.slots)]
    try:
        yield runner
    finally:
        for slot in slots:
            slot.cancel()
        await runner.shut_down()
        await asyncio.wait(slots)
