"""The thread of plain functions while jobs run inline: that of their job."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from holdfast.wiring.threads import Threads

T = TypeVar("T")


class PlainFunctionExecutor:
    """Runs plain functions off the event loop; under Django, in Django's thread for synchronous code.

    That is the thread of the test, so a job reads and writes in the test's transaction.
    """

    def __init__(self) -> None:
        self._threads = Threads("holdfast-inline")

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        if not _under_django():
            return self._threads.run(function)
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - it comes with Django

        return sync_to_async(function, thread_sensitive=True)()

    def thread_of_job(self, loop: asyncio.AbstractEventLoop) -> "JobThread":
        """Return the thread of one plain job."""
        return DjangoThread(loop, self) if _under_django() else OwnThread(loop, self)

    def close(self) -> None:
        self._threads.close()


class JobThread(ABC):
    """The thread of one plain job, and the event loop as the job sees it from there.

    A job that starts something on the loop waits in `call_soon_threadsafe`. Meanwhile its thread runs the plain
    functions that this calls, which otherwise would need another thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: PlainFunctionExecutor) -> None:
        self._loop = loop
        self._functions = functions

    @abstractmethod
    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run the job in a thread, and later its stages in the same thread."""

    @abstractmethod
    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call *callback* on the loop, and run plain functions in this thread until the task it starts has ended."""

    @abstractmethod
    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the task that the thread waits for."""

    def close(self) -> None:  # noqa: B027 - there is nothing to close
        """Do nothing."""

    def time(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Call *callback* on the loop at a time; this is called on the loop."""
        return self._loop.call_at(when, callback, *args)


class OwnThread(JobThread):
    """A thread that runs functions from a queue while its job waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: PlainFunctionExecutor) -> None:
        super().__init__(loop, functions)
        self._started = False
        self._stages: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        if not self._started:
            self._started = True
            return self._functions.run(function)
        answer: asyncio.Future[T] = self._loop.create_future()
        self._stages.put(lambda: self._call(function, answer))
        return answer

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)
        while (call := self._stages.get()) is not None:
            call()

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: self._stages.put(None))
        return task

    def _call(self, function: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            outcome = function()
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller that awaits the answer
            self._loop.call_soon_threadsafe(_unless_done, answer.set_exception, answer, error)
        else:
            self._loop.call_soon_threadsafe(_unless_done, answer.set_result, answer, outcome)


class DjangoThread(JobThread):
    """Django's single thread for synchronous code: all plain jobs share it, and so does the ORM of async code.

    A job therefore waits with Django's `async_to_sync`, which keeps the thread available for its stages, for a plain
    job that it submitted, and for the queries of an async one.
    """

    _task: "asyncio.Task[Any]"

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        return self._functions.run(function)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        from asgiref.sync import async_to_sync  # noqa: PLC0415 - it comes with Django

        async_to_sync(self._run_task)(callback, *args)

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        self._task = task = self._loop.create_task(coroutine)
        return task

    async def _run_task(self, callback: Callable[..., Any], *args: Any) -> None:
        callback(*args)  # it creates the task
        await asyncio.wait([self._task])


def _under_django() -> bool:
    return "django" in sys.modules


def _unless_done(settle: Callable[[Any], None], answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        settle(value)
