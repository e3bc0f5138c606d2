"""Virtual time for the tests of those who use Holdfast.

Within a simulation the user's own `Holdfast` works on a database that is gone afterwards, with the
real engine and a real worker, on an event loop whose time passes only when everybody waits.
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

from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.job import Job
from holdfast.face import Holdfast
from holdfast.testing.lending import lent
from holdfast.testing.processes import PROCESS, Process
from holdfast.testing.sim_world import SimulatedWorld
from holdfast.testing.virtual_loop import Stuck

T = TypeVar("T")

FAREWELL = 60.0
"""Virtual seconds that tasks have to end in, once the test is over and they are cancelled."""


class Simulation:
    """A world of its own for one test: its time, its database and its worker.

    A worker runs all the time. If it is killed, another one takes its place.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    @property
    def now(self) -> datetime:
        """The virtual time, in UTC."""
        return self._world.clock.now()

    async def advance(self, length: Duration) -> None:
        """Let *length* pass. Everything that is due by then has happened when this returns.

        With a length of 0, no time passes, and all happens that can happen now.
        """
        await asyncio.sleep(duration(length).total_seconds())
        await self._world.loop.settled()

    async def kill_worker(self) -> None:
        """Let the worker die where it stands, without a word, and another one take its place.

        Its jobs are taken over when their leases have run out. Called in a job, it is the worker of
        that job that dies, at this line; called in the test, every worker does.
        """
        for process in self._meant():
            process.die()
        await asyncio.sleep(0)  # whoever is dead does not come back from here

    async def pause_worker(self) -> None:
        """Let the worker stand still, like a machine that sleeps: time goes on, and leases run out."""
        for process in self._meant():
            process.stop()
        self._world.sweep()
        await asyncio.sleep(0)

    async def resume_worker(self) -> None:
        """Let a paused worker go on, as if nothing had been."""
        for supervisor in self._world.supervisors:
            supervisor.process.go_on()

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this simulation, and give what it returns.

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
            raise Stuck("\n".join([str(stuck), *self._left(main)])) from None

    def _meant(self) -> list[Process]:
        here = PROCESS.get()
        return [supervisor.process for supervisor in self._world.supervisors] if here is None else [here]

    def _left(self, main: "asyncio.Task[Any]") -> Iterator[str]:
        """Tell where the test waits, and for which jobs it may be waiting."""
        for frame in main.get_stack(limit=1):
            yield f"The test waits in {Path(frame.f_code.co_filename).name}, line {frame.f_lineno}."
        for job in self._world.loop.run_until_complete(self._unfinished()):
            yield _told(job)

    async def _unfinished(self) -> list[Job]:
        return [job for job in await self._world.original.find() if not job.status.ended]


def _told(job: Job) -> str:
    if job.leased_by is not None:
        return f"Job {job.name!r} is running; perhaps it waits for something that never comes, without a timeout."
    return f"Job {job.name!r} is in the queue {job.queue!r}; perhaps no worker takes from it."


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

    *seed* decides about all that is left to chance. *start* is the virtual time at the beginning,
    the present if none is given. *slots*, *queues* and *lease* are those of the worker, which takes
    from every queue that a job of *hold* names. Raises `ConfigError` inside a running event loop, and
    while *hold* is in another simulation.
    """
    _refuse_a_running_loop()
    if start is not None and start.tzinfo is None:
        raise ConfigError("start must have a time zone; use an aware datetime")
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        world = SimulatedWorld(hold, folder, seed=seed, start=start or datetime.now(UTC))
        named = {spec.queue for spec in hold.runtime.registry} | {"default"}
        try:
            with lent(hold, world.twin_here):
                try:
                    first = world.supervise(slots=slots, queues=queues or sorted(named), lease=lease)
                    world.loop.run_until_complete(first.worker())
                    yield Simulation(world)
                finally:
                    _say_farewell(world)
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
    whoever calls the test. The options are those of `simulation`.
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


def _say_farewell(world: SimulatedWorld) -> None:
    """Cancel what is left, as `asyncio.run` does: the living and the dead. Nobody hears what becomes of it."""
    for process in world.loop.processes:
        process.release()
    for _ in range(2):  # what is cancelled may start something to tidy up
        left = asyncio.all_tasks(world.loop)
        for task in left:
            task.cancel()
        if left:
            world.loop.run_until_complete(asyncio.wait(left, timeout=FAREWELL))
    world.loop.run_until_complete(world.loop.shutdown_asyncgens())
