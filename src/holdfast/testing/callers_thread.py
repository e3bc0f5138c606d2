"""Where plain functions run while jobs are inlined: with their job, in one thread."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.wiring.threads import Threads

T = TypeVar("T")


class PlainFunctions:
    """Runs plain functions off the event loop; under Django, in the thread that Django keeps for such code.

    That is the thread of the test, so what a job reads and writes is in the test's transaction.
    """

    def __init__(self) -> None:
        self._threads = Threads("holdfast-inline")

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        if "django" not in sys.modules:
            return self._threads.run(function)
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - it comes with Django

        return sync_to_async(function, thread_sensitive=True)()

    def close(self) -> None:
        self._threads.close()


class JobThread:
    """The thread of one plain job, and the event loop as the job sees it from there.

    A job that calls a plain stage asks the loop to run it, and waits. Meanwhile its thread is free
    for the function of the stage, which else would need another one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: PlainFunctions) -> None:
        self._loop = loop
        self._functions = functions
        self._begun = False
        self._stages: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run the job in a thread, and later its stages in the same."""
        if not self._begun:
            self._begun = True
            return self._functions.run(function)
        answer: asyncio.Future[T] = self._loop.create_future()
        self._stages.put(lambda: self._call(function, answer))
        return answer

    def close(self) -> None:
        """There is nothing to let go of."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        """Have a stage run on the loop, and do its part until it has ended."""
        self._loop.call_soon_threadsafe(callback, *args)
        while (call := self._stages.get()) is not None:
            call()

    def create_task(self, stage: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the stage; when it has ended, so has the wait for it."""
        task = self._loop.create_task(stage)
        task.add_done_callback(lambda _: self._stages.put(None))
        return task

    def time(self) -> float:
        """Tell the loop's time."""
        return self._loop.time()

    def _call(self, function: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            outcome = function()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self._loop.call_soon_threadsafe(_unless_given_up, answer.set_exception, answer, error)
        else:
            self._loop.call_soon_threadsafe(_unless_given_up, answer.set_result, answer, outcome)


def _unless_given_up(settle: Callable[[Any], None], answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        settle(value)
