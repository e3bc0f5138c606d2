"""Threads for functions that block."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

IDLE_SECONDS = 10

ENDS_WITHIN = 5.0
"""Seconds to wait for a watchdog that was asked to end: it may be waiting for a store that does not answer."""


class Threads:
    """Daemon threads, made when needed and kept for a while.

    The standard pool counts a thread that hangs against its size for ever, and waits for it at
    exit. Here a hanging thread is one more thread, and ends with the process.
    """

    def __init__(self, name: str, *, limit: int | None = None) -> None:
        self._name = name
        self._limit = limit
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._count = 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Start anew in a forked child: threads do not come along."""
        self._calls = SimpleQueue()
        self._lock = threading.Lock()
        self._busy = self._count = 0

    def run(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                outcome: T | None = function()
                error: BaseException | None = None
            except (StopIteration, GeneratorExit) as stray:
                # A future cannot carry them: they would end the coroutine that awaits it, not its wait.
                outcome, error = None, RuntimeError(f"the function raised {stray!r}")
                error.__cause__ = stray
            except BaseException as caught:  # noqa: BLE001 - it belongs to the caller that waits for the answer
                outcome, error = None, caught
            _hand_over(loop, answer, outcome, error)

        self._dispatch(call)
        return answer

    def close(self) -> None:
        with self._lock:
            for _ in range(self._count):
                self._calls.put(None)

    def _dispatch(self, call: Callable[[], None]) -> None:
        with self._lock:
            # More calls than threads, those included that wait in the queue: a count of idle threads would drift.
            if self._busy >= self._count and (self._limit is None or self._count < self._limit):
                # First of all: if the machine has no thread left this raises, and nothing was counted or queued.
                threading.Thread(
                    target=self._work, name=f"{self._name}-{self._count + 1}", daemon=True
                ).start()
                self._count += 1
            self._calls.put(call)
            self._busy += 1

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except Empty:
                call = None
            if call is None and self._leaves():
                return
            if call is not None:
                call()
                with self._lock:
                    self._busy -= 1

    def _leaves(self) -> bool:
        with self._lock:
            if not self._calls.empty():
                return False
            self._count -= 1
            return True


class ThreadWatchdog:
    """The `Watchdog` port: a daemon thread for each check. A forked child has none until it starts its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def start(
        self, check: Callable[[], float], *, close: Callable[[], object]
    ) -> Callable[[], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stopping = threading.Event()

        def watch() -> None:
            try:
                pause = 0.0
                while not stopping.wait(pause):
                    pause = check()
            finally:
                try:
                    close()
                finally:
                    _hand_over(loop, ended, None, None)

        async def stop() -> None:
            stopping.set()
            await asyncio.wait([ended], timeout=ENDS_WITHIN)

        threading.Thread(target=watch, name=self._name, daemon=True).start()
        return stop


def _hand_over(
    loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", outcome: Any, error: Any
) -> None:
    def settle() -> None:
        if answer.done():
            return  # the wait was given up; what the function did stands
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(outcome)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop is closed: no caller waits any more
