"""Simulated processes: all of them run in one thread, and each can be paused or killed.

The context of a callback says to which process it belongs. Callbacks of a stopped process are kept until it
resumes. A killed process is stopped until the end of the simulation: none of its code runs meanwhile, not even a
`finally`; then its tasks are cancelled with all others.
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
"""Consecutive timers of workers, with nothing else pending, before the simulation counts as stuck."""

TICKS = 100
"""Ticks of recurring jobs, with no other timer pending, before the simulation counts as stuck."""

KNOWN_THREADS = ("asyncio", "ThreadPoolExecutor", "AnyIO")
"""Name prefixes of pool threads: they are idle unless their pool reports work."""


class Process:
    """A simulated process that can be stopped and resumed. While it has nothing to do, its housekeeping rests."""

    def __init__(self, loop: "ProcessLoop", die: Callable[[], None]) -> None:
        self.die = die
        """Kills the process; its supervisor provides it."""
        self._loop = loop
        self._context = Context()
        self._context.run(PROCESS.set, self)
        self._stopped = False
        self._resting = False
        self._kept: list[asyncio.Handle] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self.threads: set[asyncio.Future[Any]] = set()
        """The calls in its threads that have not ended."""

    def start(self, main: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run *main*, and all that it starts, as this process."""
        self._main = self._loop.create_task(main, name="holdfast simulated process", context=self._context)
        return self._main  # referenced here, too: the tasks of a killed process must not be garbage-collected

    def stop(self) -> None:
        """Stop running. Time continues, without waiting for the threads of this process."""
        self._stopped = True
        for answer in self.threads:
            self._loop.waits_no_more(answer)

    def resume(self) -> None:
        """Continue where the process was stopped."""
        for answer in self.threads:
            self._loop.waits_for(answer)
        self.release()

    def release(self) -> None:
        """Run the callbacks that were kept, without waiting for its threads."""
        self._stopped = False
        self._readmit()

    def rest(self) -> None:
        """Suspend housekeeping until woken: a year of it would be millions of polls without work."""
        self._resting = True

    def wake(self) -> None:
        """Resume housekeeping, and run its kept timers now."""
        self._resting = False
        self._readmit()

    def expect(self, seconds: float | None) -> None:
        """Wake in *seconds*, instead of at the time that was expected before."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = (
            None if seconds is None else self._loop.call_later(seconds, self.wake, context=Context())
        )

    def expect_tick(self, seconds: float | None) -> None:
        """Wake in *seconds* to submit a recurring job, instead of at the time that was expected before."""
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
        """Return whether *handle* may run now; otherwise keep it for later."""
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
        self._anyio_detected = False
        self._anyio_limiter: Any = None
        self._earlier = set(threading.enumerate())

    def new_process(self, die: Callable[[], None]) -> Process:
        """Return a process that has not started yet."""
        self.processes.append(Process(self, die))
        return self.processes[-1]

    def waits_for(self, answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        process = PROCESS.get()
        if process is not None:
            process.threads.add(answer)
            answer.add_done_callback(process.threads.discard, context=Context())
        return super().waits_for(answer)

    def count_tick(self) -> None:
        """Count the ticks of schedules that pass while no timer of the test or of a job is pending."""
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
                raise Stuck(
                    "nothing is left to happen: only housekeeping of workers runs, and every job waits"
                )
        process: Process | None = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # a handle hides its context
        return process is None or process.admits(handle)

    def _nothing_will_happen(self) -> bool:
        left = [*self._scheduled, *self._ready]
        return all(handle.cancelled() or _is_housekeeping(handle) for handle in left)

    def _waits_outside(self) -> bool:
        if super()._waits_outside() or self._anyio_is_busy():
            return True
        # Threads that other code started since the beginning, such as a database driver.
        others = self._other_threads() - self._earlier
        unknown = any(not thread.name.startswith(KNOWN_THREADS) for thread in others)
        return unknown and not self._stays_silent(IO_GRACE)

    def _other_threads(self) -> set[threading.Thread]:
        return {thread for thread in super()._other_threads() if not thread.name.startswith("holdfast")}

    def _anyio_is_busy(self) -> bool:
        """Whether threads of anyio are busy: FastAPI, for example, calls plain functions there."""
        if not self._anyio_detected and "anyio.to_thread" in sys.modules:
            self._anyio_detected = True
            self.create_task(self._load_anyio_limiter(), context=Context())
            return True
        return self._anyio_limiter is not None and self._anyio_limiter.borrowed_tokens > 0

    async def _load_anyio_limiter(self) -> None:
        """Get the limiter that counts anyio's threads; anyio returns it only inside a task."""
        self._anyio_limiter = sys.modules["anyio.to_thread"].current_default_thread_limiter()


def _is_housekeeping(handle: asyncio.Handle) -> bool:
    """Whether *handle* belongs to a worker itself, not to a job or the test."""
    context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS) is not None and context.get(CURRENT) is None


def _wakes_to_tick(timer: asyncio.TimerHandle) -> bool:
    return getattr(timer._callback, "__func__", None) is Process._wake_to_tick  # type: ignore[attr-defined]  # hidden
