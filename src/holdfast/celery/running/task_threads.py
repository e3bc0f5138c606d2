"""Runs a job's plain functions in the thread in which Celery runs the task that waits for the job.

There Celery's soft time limit reaches them, which is raised in that thread alone, and so does everything else that a
team has set up around its tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock
from traceback import walk_tb
from typing import Any, TypeVar

from billiard.common import _shutdown_cleanup as exit_at_signal
from billiard.exceptions import SoftTimeLimitExceeded

from holdfast.engine.execution.context import CURRENT
from holdfast.ports import Executor

T = TypeVar("T")


class TaskThreads:
    """The `Executor` port: a function goes to the thread that waits for its job, and else to *others*.

    One function at a time: of several that a job runs concurrently, the others run in threads of their own.
    """

    def __init__(self, others: Executor) -> None:
        self._others = others
        self._threads: dict[str, TaskThread] = {}

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        job = CURRENT.get()
        thread = None if job is None else self._threads.get(job.claim.id)
        if thread is not None:
            call = FunctionCall(function, asyncio.get_running_loop())
            if thread.offer(call):
                return call.answer
        return self._others.run(function)

    def close(self) -> None:
        self._others.close()

    @contextmanager
    def waiting_for(self, job_id: str) -> Iterator["TaskThread"]:
        """Let the functions of a job run in this thread, as long as the block serves them."""
        thread = TaskThread()
        self._threads[job_id] = thread
        try:
            yield thread
        finally:
            thread.leave()
            if self._threads.get(job_id) is thread:  # another dispatch of the job may have come meanwhile
                del self._threads[job_id]


class TaskThread:
    """A thread of Celery that waits for the end of a job, and runs its functions meanwhile."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[FunctionCall | None] = SimpleQueue()
        self._lock = Lock()
        self._taken = False
        """Whether it has a function to run, or has left."""

    def offer(self, call: "FunctionCall") -> bool:
        """Hand over a function; return whether it was taken."""
        with self._lock:
            if self._taken:
                return False
            self._taken = True
        self._calls.put(call)
        return True

    def wake(self) -> None:
        """Have the thread look whether the job has ended."""
        self._calls.put(None)

    def leave(self) -> None:
        """Take no function any more."""
        with self._lock:
            self._taken = True

    def serve(self, ended: Callable[[], bool], *, at_soft_limit: Callable[[], object]) -> None:
        """Run the functions of the job until it has *ended*.

        A soft time limit is raised in the function that runs here; while none runs, *at_soft_limit* is called. Raises
        `SystemExit` if the process was terminated, and the function that ran has no result then.
        """
        call: FunctionCall | None = None
        while True:
            try:
                call = self._calls.get()
                if call is not None:
                    call.run()
            except SoftTimeLimitExceeded as limit:
                # Celery raises it at any instruction of this thread: also before and after the function itself.
                if call is None or not call.fail(limit):
                    at_soft_limit()
            if call is not None:
                call = None
                self._release()
            if ended():
                return

    def _release(self) -> None:
        with self._lock:
            self._taken = False


class FunctionCall:
    """A function, and the future on the event loop that gets its result."""

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[Any] = loop.create_future()
        self._function = function
        self._loop = loop
        self._answered = False

    def run(self) -> None:
        """Call the function, and set the result or the error."""
        try:
            outcome = self._function()
        except (StopIteration, GeneratorExit) as stray:
            # A future cannot carry them: they would end the coroutine that awaits it.
            error = RuntimeError(f"the function raised {stray!r}")
            error.__cause__ = stray
            self.fail(error)
        except BaseException as error:
            if _terminated(error):
                raise
            self.fail(error)
        else:
            self._settle(lambda: self.answer.set_result(outcome))

    def fail(self, error: BaseException) -> bool:
        """Set the error, if neither it nor a result was set before; return whether it was."""
        if self._answered:
            return False
        self._settle(lambda: self.answer.set_exception(error))
        return True

    def _settle(self, settle: Callable[[], None]) -> None:
        self._answered = True
        # The caller may have been cancelled; the effects of the function remain.
        self._loop.call_soon_threadsafe(lambda: None if self.answer.done() else settle())


def _terminated(error: BaseException) -> bool:
    """Return whether the pool ends this process, as it does at the hard time limit; else the function itself exits."""
    if not isinstance(error, SystemExit):
        return False
    return any(frame.f_code is exit_at_signal.__code__ for frame, _ in walk_tb(error.__traceback__))
