"""A fleet in memory: dispatches arrive in a list, and the test, or runners of it, act on them."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.errors import BrokerUnavailable
from holdfast.engine.fleets.fleet_runner import FleetRunner
from holdfast.engine.options import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast import Holdfast
    from holdfast.ports.fleets import Dispatch

LEASE = timedelta(seconds=30)


class MemoryFleet:
    """A transport whose dispatches stay in the process, and its sender."""

    kind = "memory"

    def __init__(self, *, slots: int = 2, resend: timedelta = timedelta(seconds=30)) -> None:
        self.slots = slots
        self.resend = resend
        self.dispatches: deque[str] = deque()
        """The jobs that are to be run, in the order in which they were dispatched."""
        self.sent: list[str] = []
        self.unavailable = False
        self.refused: frozenset[str] = frozenset()
        """Jobs whose dispatches the broker does not confirm."""
        self.tries = 0

    def open(self) -> MemoryFleet:
        return self

    async def send(self, queue: str, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        self.tries += 1
        if self.unavailable:
            raise BrokerUnavailable("the broker of the fleet is away")
        sent = [dispatch.job_id for dispatch in dispatches if dispatch.job_id not in self.refused]
        self.sent += sent
        self.dispatches.extend(sent)
        return sent

    async def check(self) -> str:
        return "memory"

    async def close(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def runner(
        self, hold: Holdfast, *, name: str = "fleet:1", dead: Sequence[str] = (), lease: timedelta = LEASE
    ) -> AsyncIterator[FleetRunner]:
        """Start a runner that runs what a test passes to it."""
        options = WorkerOptions(slots=self.slots, lease=lease, poll=0.05, grace=0.5)
        runner = FleetRunner(name, hold.runtime, options, is_dead=lambda worker: worker in dead)
        await runner.start()
        try:
            yield runner
        finally:
            await runner.shut_down()

    @asynccontextmanager
    async def running(self, hold: Holdfast) -> AsyncIterator[FleetRunner]:
        """Run dispatches as they arrive, as many at a time as there are slots."""

        async def serve(runner: FleetRunner) -> None:
            while True:
                if self.dispatches:
                    await runner.run(self.dispatches.popleft())
                else:
                    await asyncio.sleep(0.005)

        async with self.runner(hold) as runner:
            tasks = [asyncio.create_task(serve(runner)) for _ in range(self.slots)]
            try:
                yield runner
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
