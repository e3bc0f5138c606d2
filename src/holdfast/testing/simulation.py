"""Virtual time for tests of applications that use Holdfast.

Within a simulation the user's own `Holdfast` works on a temporary database, with the real engine and a real
worker, on an event loop whose time passes only when every task waits.
"""

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.job import Job
from holdfast.testing.captured_messages import PublishedMessage
from holdfast.testing.delegation import delegated_to
from holdfast.testing.processes import PROCESS, Process
from holdfast.testing.simulated_world import SimulatedWorld
from holdfast.testing.virtual_loop import Stuck

T = TypeVar("T")

CANCEL_SECONDS = 60.0
"""Virtual seconds for tasks to end after the test, when they are cancelled."""


class Simulation:
    """The time, the database and the worker of one test.

    A worker always runs. If it is killed, another one replaces it.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    @property
    def now(self) -> datetime:
        """The virtual time, in UTC."""
        return self._world.clock.now()

    @property
    def published(self) -> list[PublishedMessage]:
        """The messages that were published, in order. None of them is sent."""
        return self._world.captured.published

    async def advance(self, length: Duration) -> None:
        """Let *length* pass. Everything that is due by then has happened when this returns.

        With a length of 0 no time passes, and everything happens that is due now.
        """
        await asyncio.sleep(duration(length).total_seconds())
        await self._world.loop.settled()

    async def kill_worker(self) -> None:
        """Kill the worker as `kill -9` does, and start another one.

        Its jobs are reclaimed when their leases have expired. Called in a job, this kills the worker of
        that job, at this line; called in the test, it kills every worker.
        """
        for process in self._target_processes():
            process.die()
        await asyncio.sleep(0)  # a killed process does not continue after this line

    async def pause_worker(self) -> None:
        """Pause the worker, like a suspended machine: time goes on, and leases expire."""
        for process in self._target_processes():
            process.stop()
        self._world.wake_maintenance()
        await asyncio.sleep(0)

    async def resume_worker(self) -> None:
        """Resume a paused worker where it was paused."""
        for supervisor in self._world.supervisors:
            supervisor.process.resume()

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this simulation, and return its result.

        Raises `Stuck` if it waits for something that will never happen.
        """
        loop, broken = self._world.loop, self._world.broken
        main = loop.create_task(test, name="holdfast simulated test")
        broken.add_done_callback(lambda _: main.cancel())
        try:
            return loop.run_until_complete(main)
        except asyncio.CancelledError:
            if broken.done():
                broken.result()
            raise
        except Stuck as stuck:
            raise Stuck("\n".join([str(stuck), *self._describe_wait(main)])) from None

    def _target_processes(self) -> list[Process]:
        here = PROCESS.get()
        return [supervisor.process for supervisor in self._world.supervisors] if here is None else [here]

    def _describe_wait(self, main: "asyncio.Task[Any]") -> Iterator[str]:
        """Describe where the test waits, and for which jobs it may be waiting."""
        for frame in main.get_stack(limit=1):
            yield f"The test waits in {Path(frame.f_code.co_filename).name}, line {frame.f_lineno}."
        for job in self._world.loop.run_until_complete(self._unfinished()):
            if job.leased_by is not None:
                yield f"Job {job.name!r} is running; perhaps it waits for something that never comes, without a timeout."
            else:
                yield f"Job {job.name!r} is in the queue {job.queue!r}; perhaps no worker takes from it."

    async def _unfinished(self) -> list[Job]:
        return [job for job in await self._world.original.find() if not job.status.ended]


@contextmanager
def simulation(
    hold: Holdfast,
    *,
    seed: int = 0,
    start: datetime | None = None,
    slots: int | None = None,
    queues: Sequence[str] | None = None,
    lease: Duration | None = None,
) -> Iterator[Simulation]:
    """Simulate *hold* while the block runs: `with simulation(hold) as sim: sim.run(coroutine)`.

    *seed* determines all randomness. *start* is the virtual time at the beginning, by default the
    current time. *slots*, *queues* and *lease* are those of the worker, which serves the queues of all
    jobs of *hold* by default. Raises `ConfigError` inside a running event loop, and while *hold* is in
    another simulation.
    """
    _refuse_a_running_loop()
    if start is not None and start.tzinfo is None:
        raise ConfigError("start must have a time zone; use an aware datetime")
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        world = SimulatedWorld(hold, folder, seed=seed, start=start or datetime.now(UTC))
        named = {spec.queue for spec in hold.runtime.registry} | {"default"}
        try:
            with delegated_to(hold, world.twin_here):
                try:
                    first = world.supervise(slots=slots, queues=queues or sorted(named), lease=lease)
                    world.loop.run_until_complete(first.worker())
                    yield Simulation(world)
                finally:
                    _cancel_tasks(world)
        finally:
            world.close()


def simulated(
    hold: Holdfast,
    *,
    seed: int = 0,
    start: datetime | None = None,
    slots: int | None = None,
    queues: Sequence[str] | None = None,
    lease: Duration | None = None,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Turn an async test into a plain one that runs in a simulation of *hold*.

    An argument named `sim` gets the `Simulation`; all others are left to pytest's fixtures, or to
    the caller of the test. The options are those of `simulation`.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        if not inspect.iscoroutinefunction(test):
            raise ConfigError(f"{test.__name__} is no `async def`; only such a test can be simulated")
        signature = inspect.signature(test)

        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            with simulation(hold, seed=seed, start=start, slots=slots, queues=queues, lease=lease) as sim:
                given = {"sim": sim} if "sim" in signature.parameters else {}
                sim.run(test(*args, **kwargs, **given))

        others = [parameter for name, parameter in signature.parameters.items() if name != "sim"]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # what pytest reads
        return run

    return decorate


def _refuse_a_running_loop() -> None:
    if asyncio._get_running_loop() is not None:
        raise ConfigError(
            "a simulation brings its own event loop, so it cannot begin inside another one; "
            "make the test `async def` under @simulated(hold), with no other async plugin"
        )


def _cancel_tasks(world: SimulatedWorld) -> None:
    """Cancel all tasks, as `asyncio.run` does, also those of killed processes. Their results are ignored."""
    for process in world.loop.processes:
        process.release()
    for _ in range(2):  # a cancelled task may start others to clean up
        left = asyncio.all_tasks(world.loop)
        for task in left:
            task.cancel()
        if left:
            world.loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SECONDS))
    world.loop.run_until_complete(world.loop.shutdown_asyncgens())
