"""Where plain functions run while jobs are inlined: with their job, in one thread."""

import asyncio
import sys
from abc import ABC, abstractmethod
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
        if not _under_django():
            return self._threads.run(function)
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - it comes with Django

        return sync_to_async(function, thread_sensitive=True)()

    def thread_of_job(self, loop: asyncio.AbstractEventLoop) -> "JobThread":
        """Give the thread that one plain job runs in."""
        return DjangosThread(loop, self) if _under_django() else OwnThread(loop, self)

    def close(self) -> None:
        self._threads.close()


class JobThread(ABC):
    """The thread of one plain job, and the event loop as the job sees it from there.

    A job that wants something of the loop waits in `call_soon_threadsafe`. Meanwhile its thread is free for
    the plain functions that this needs, which else would need another one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: PlainFunctions) -> None:
        self._loop = loop
        self._functions = functions

    @abstractmethod
    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run the job in a thread, and later its stages in the same."""

    @abstractmethod
    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        """Have something run on the loop, and do the thread's part until it has ended."""

    @abstractmethod
    def create_task(self, wanted: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start what the thread waits for."""

    def close(self) -> None:  # noqa: B027 - there is nothing to let go of
        """Let go of nothing."""

    def time(self) -> float:
        """Tell the loop's time."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Have the loop call at its time; it is on the loop that this is asked for."""
        return self._loop.call_at(when, callback, *args)


class OwnThread(JobThread):
    """A thread that runs what comes in through a queue while its job waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: PlainFunctions) -> None:
        super().__init__(loop, functions)
        self._begun = False
        self._stages: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        if not self._begun:
            self._begun = True
            return self._functions.run(function)
        answer: asyncio.Future[T] = self._loop.create_future()
        self._stages.put(lambda: self._call(function, answer))
        return answer

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)
        while (call := self._stages.get()) is not None:
            call()

    def create_task(self, wanted: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._loop.create_task(wanted)
        task.add_done_callback(lambda _: self._stages.put(None))
        return task

    def _call(self, function: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        try:
            outcome = function()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self._loop.call_soon_threadsafe(_unless_given_up, answer.set_exception, answer, error)
        else:
            self._loop.call_soon_threadsafe(_unless_given_up, answer.set_result, answer, outcome)


class DjangosThread(JobThread):
    """The one thread that Django has for plain code: all plain jobs share it, and so does the ORM of async code.

    So a job waits in it in Django's own way. Then not only its stages find the thread free, but also a plain
    job that it submitted, and the queries of an async one.
    """

    _wanted: "asyncio.Task[Any]"

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        return self._functions.run(function)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        from asgiref.sync import async_to_sync  # noqa: PLC0415 - it comes with Django

        async_to_sync(self._ended)(callback, *args)

    def create_task(self, wanted: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        self._wanted = task = self._loop.create_task(wanted)
        return task

    async def _ended(self, callback: Callable[..., Any], *args: Any) -> None:
        callback(*args)  # it makes the task
        await asyncio.wait([self._wanted])


def _under_django() -> bool:
    return "django" in sys.modules


def _unless_given_up(settle: Callable[[Any], None], answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        settle(value)
