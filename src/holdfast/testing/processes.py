"""Simulated processes: all of them live in one thread, and each can be stopped for a while or for good.

Which process a callback belongs to is told by its context. What belongs to a stopped process is kept
back until it goes on. A process that is dead is stopped until the simulation is over: nothing of it
runs meanwhile, no `finally` and no last word; then its tasks are cancelled like all that are left.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any

from holdfast.engine.execution.context import CURRENT
from holdfast.testing.virtual_loop import IO_GRACE, Stuck, VirtualLoop

PROCESS: "ContextVar[Process | None]" = ContextVar("holdfast_process", default=None)
"""The process that the running code belongs to; `None` is the test itself."""

ROUNDS = 300
"""Timers of workers that run one after another, with nothing else left to happen, before that is called stuck."""

TICKS = 100
"""Ticks of recurring jobs, with nothing else that waits for a time, before that is called stuck."""

KNOWN_THREADS = ("asyncio", "ThreadPoolExecutor", "AnyIO")
"""What threads are called that only idle, if nothing is counted as under way in them."""


class Process:
    """Something that runs, stops and goes on. While it has nothing to do, its housekeeping rests."""

    def __init__(self, loop: "ProcessLoop", die: Callable[[], None]) -> None:
        self.die = die
        """How it is killed; whoever keeps it running decides what follows."""
        self._loop = loop
        self._context = Context()
        self._context.run(PROCESS.set, self)
        self._stopped = False
        self._resting = False
        self._kept: list[asyncio.Handle] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self.threads: set[asyncio.Future[Any]] = set()
        """What its threads have not answered yet."""

    def start(self, main: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run *main*, and all that it starts, as this process."""
        self._main = self._loop.create_task(main, name="holdfast simulated process", context=self._context)
        return self._main  # held here, too: nobody collects the tasks of the dead before the end

    def stop(self) -> None:
        """Stand still. Time goes on, also without the answers of this process's threads."""
        self._stopped = True
        for answer in self.threads:
            self._loop.waits_no_more(answer)

    def go_on(self) -> None:
        """Go on where everything stood still."""
        for answer in self.threads:
            self._loop.waits_for(answer)
        self.release()

    def release(self) -> None:
        """Let what stood still run, and nobody wait for its threads."""
        self._stopped = False
        self._readmit()

    def rest(self) -> None:
        """Let housekeeping rest until woken: a year of it would be millions of looks at nothing."""
        self._resting = True

    def wake(self) -> None:
        """Do the housekeeping again, and what was left of it at once."""
        self._resting = False
        self._readmit()

    def expect(self, seconds: float | None) -> None:
        """Wake in *seconds*, and forget what was expected before."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = (
            None if seconds is None else self._loop.call_later(seconds, self.wake, context=Context())
        )

    def expect_tick(self, seconds: float | None) -> None:
        """Wake in *seconds* to submit a recurring job, and forget when the next one was expected before."""
        if self._tick is not None:
            self._tick.cancel()
        self._tick = (
            None if seconds is None else self._loop.call_later(seconds, self._wake_to_tick, context=Context())
        )

    def _wake_to_tick(self) -> None:
        self._tick = None
        self._loop.count_tick()
        self.wake()

    def admits(self, handle: asyncio.Handle) -> bool:
        """Say whether *handle* may run now; else keep it for later."""
        rests = self._resting and isinstance(handle, asyncio.TimerHandle) and _is_housekeeping(handle)
        if self._stopped or rests:
            self._kept.append(handle)
            return False
        return True

    def _readmit(self) -> None:
        kept, self._kept = self._kept, []
        self._loop.readmit(kept)


class ProcessLoop(VirtualLoop):
    """A loop in virtual time that several processes share."""

    def __init__(self) -> None:
        super().__init__(admits=self._admitted)
        self.processes: list[Process] = []
        self._rounds = 0
        self._ticks = 0
        self._knows_anyio = False
        self._anyio_limiter: Any = None
        self._earlier = set(threading.enumerate())

    def new_process(self, die: Callable[[], None]) -> Process:
        """Make a process that has not begun yet."""
        self.processes.append(Process(self, die))
        return self.processes[-1]

    def waits_for(self, answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        process = PROCESS.get()
        if process is not None:
            process.threads.add(answer)
            answer.add_done_callback(process.threads.discard, context=Context())
        return super().waits_for(answer)

    def count_tick(self) -> None:
        """Count the ticks of schedules that pass while nothing else waits for a time: neither the test nor a job."""
        timers = (timer for timer in self._scheduled if not timer.cancelled())
        others = (timer for timer in timers if not _is_housekeeping(timer) and not _wakes_to_tick(timer))
        self._ticks = 0 if any(others) else self._ticks + 1

    def _admitted(self, handle: asyncio.Handle) -> bool:
        if self._ticks > TICKS:
            self._ticks = 0
            raise Stuck(f"nothing is left to happen but recurring jobs, which have run {TICKS:,} times")
        if not _is_housekeeping(handle):
            self._rounds = 0
        elif isinstance(handle, asyncio.TimerHandle):
            self._rounds += 1
            if self._rounds > ROUNDS and self._nothing_will_happen():
                self._rounds = 0
                raise Stuck("nothing is left to happen: the workers keep house, and every job waits")
        process = _process_of(handle)
        return process is None or process.admits(handle)

    def _nothing_will_happen(self) -> bool:
        left = [*self._scheduled, *self._ready]
        return all(handle.cancelled() or _is_housekeeping(handle) for handle in left)

    def _waits_outside(self) -> bool:
        if super()._waits_outside() or self._anyio_is_at_work():
            return True
        return bool(self._company()) and not self._heard_nothing(IO_GRACE)

    def _company(self) -> set[threading.Thread]:
        """Give the threads that were started meanwhile, by somebody unknown: a database driver, say."""
        others = self._other_threads() - self._earlier
        return {thread for thread in others if not thread.name.startswith(KNOWN_THREADS)}

    def _other_threads(self) -> set[threading.Thread]:
        return {thread for thread in super()._other_threads() if not thread.name.startswith("holdfast")}

    def _anyio_is_at_work(self) -> bool:
        """Whether anyio has threads at work: FastAPI, for one, calls plain functions there."""
        if not self._knows_anyio and "anyio.to_thread" in sys.modules:
            self._knows_anyio = True
            self.create_task(self._meet_anyio(), context=Context())
            return True
        return self._anyio_limiter is not None and self._anyio_limiter.borrowed_tokens > 0

    async def _meet_anyio(self) -> None:
        """Get what counts anyio's threads; it is only given to those who ask in a task."""
        self._anyio_limiter = sys.modules["anyio.to_thread"].current_default_thread_limiter()


def _process_of(handle: asyncio.Handle) -> Process | None:
    return handle._context.get(PROCESS)  # type: ignore[attr-defined, no-any-return]  # a handle knows its context, but hides it


def _is_housekeeping(handle: asyncio.Handle) -> bool:
    """Tell what a worker does for itself from what a job or the test does."""
    context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS) is not None and context.get(CURRENT) is None


def _wakes_to_tick(timer: asyncio.TimerHandle) -> bool:
    return getattr(timer._callback, "__func__", None) is Process._wake_to_tick  # type: ignore[attr-defined]  # hidden
