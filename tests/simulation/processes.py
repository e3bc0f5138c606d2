"""Processes of a simulated world: each can crash, or stop and wake up, at any call to the outside.

All of them live in one thread, on one virtual loop. Which process a callback belongs to is known from
its context, so the loop can keep back what belongs to a sleeping process and drop what belongs to a
dead one. Nothing of a dead process runs again: no `finally`, no last word.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast.testing.virtual_loop import VirtualLoop

T = TypeVar("T")

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Moment(StrEnum):
    """When a fault is injected: before the call did anything, or after it did all of it."""

    BEFORE = "before"
    AFTER = "after"


class Fault(StrEnum):
    """What can happen to a process at a call."""

    CRASH = "crash"
    PAUSE = "pause"
    ERROR = "error"
    CANCEL = "cancel"
    SLOW = "slow"
    DISK = "disk"


CANCELLED_BY_FAULT: WeakSet[asyncio.Task[Any]] = WeakSet()
"""The tasks that an injected fault has cancelled, and not a timeout, however long they had run."""


class InjectedFault(NamedTuple):
    """A fault, how long it lasts if it does, and how many statements a disk still takes before it fails."""

    fault: Fault
    seconds: float = 0.0
    good_statements: int = 0


class Injected(RuntimeError):
    """What a call raises on an injected error where the real one, without a thread, has no error of its own."""


class Crashed(BaseException):
    """Ends the code that was running when its process died."""


class Injector(Protocol):
    """Decides at which call of which process a fault is injected."""

    def inject(self, process: Process, point: str, moment: Moment) -> InjectedFault | None:
        """Return the fault at this moment of the call to *point*, if any."""
        ...


class Process:
    """Something that runs, and may die."""

    def __init__(self, name: str, loop: VirtualLoop, injector: Injector, note: Callable[[str], None]) -> None:
        self.name = name
        self.alive = True
        self.asleep = False
        self.troubled_at = float("-inf")
        self.good_statements: int | None = None
        """How many statements its disk still takes before one fails; `None` if none does."""
        self._at_work: tuple[float, Callable[[], bool]] | None = None
        self.main: asyncio.Task[Any] | None = None
        self._loop = loop
        self._injector = injector
        self._note = note
        self._files: list[sqlite3.Connection] = []
        self._kept: list[asyncio.Handle] = []
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], None] = (
            WeakKeyDictionary()
        )  # in the order of their start
        self._world = Context()  # a timer that wakes the process is not the process's own

    def __repr__(self) -> str:
        return self.name

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run *main* and all that it starts as this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        self.main = self._loop.create_task(main, name=self.name, context=context)
        return self.main

    def begins_work(self, stopping: Callable[[], bool]) -> None:
        """Remember that it runs a worker from now on; *stopping* says whether that one is stopping."""
        self._at_work = (self._loop.time(), stopping)

    @property
    def works(self) -> bool:
        """Whether it runs a worker, or has run one."""
        return self._at_work is not None

    def works_since(self, moment: float) -> bool:
        """Whether it has run a worker all the time since *moment*, without a fault."""
        if self._at_work is None or not self.alive or self.asleep or self.interrupted:
            return False
        began, stopping = self._at_work
        return max(began, self.troubled_at) < moment and not stopping()

    @property
    def interrupted(self) -> bool:
        """Whether its main task was cancelled, or has ended with an error."""
        main = self.main
        if main is None or main.cancelling() or main.cancelled():
            return True
        return main.done() and main.exception() is not None

    def running(self) -> list[asyncio.Task[Any]]:
        """The tasks of this process that have not ended, in the order of their start."""
        return [task for task in self._tasks if not task.done()]

    def tasks(self) -> list[str]:
        """Name the tasks of this process that still run."""
        return sorted(map(_name, self.running()))

    def owns(self, task: asyncio.Task[Any]) -> None:
        """Remember a task that this process started."""
        self._tasks[task] = None

    async def call(self, point: str, operation: Callable[[], Awaitable[T]], *, error: type[Exception]) -> T:
        """Make a call to the outside, with the faults that are injected; *error* is how the call fails."""
        if injected := self._inject(point, Moment.BEFORE):
            await self._apply(injected, point, Moment.BEFORE, error)
        answer = await operation()
        if injected := self._inject(point, Moment.AFTER):
            await self._apply(injected, point, Moment.AFTER, error)
        return answer

    def _inject(self, point: str, moment: Moment) -> InjectedFault | None:
        if not self.alive:
            raise Crashed
        return self._injector.inject(self, point, moment)

    async def _apply(
        self, injected: InjectedFault, point: str, moment: Moment, error: type[Exception]
    ) -> None:
        self._note(f"{self.name} {injected.fault} {moment} {point}")
        self.troubled_at = self._loop.time()
        match injected.fault:
            case Fault.CRASH:
                self.crash()
                raise Crashed
            case Fault.PAUSE:
                self.pause(injected.seconds)
                await asyncio.sleep(0)
            case Fault.ERROR:
                raise error(f"{point} failed, {moment} it did its work")
            case Fault.CANCEL:
                task = asyncio.current_task()
                assert task is not None
                CANCELLED_BY_FAULT.add(task)
                task.cancel()
                await asyncio.sleep(0)
            case Fault.SLOW:
                await asyncio.sleep(injected.seconds)
                self.troubled_at = self._loop.time()  # what waited for the call is late as well
            case Fault.DISK:
                self.good_statements = injected.good_statements

    def owns_file(self, file: sqlite3.Connection) -> None:
        """Remember a connection that its own code has opened."""
        self._files.append(file)

    def crash(self) -> None:
        """Die, without a word; the machine closes what its own code had opened."""
        self.alive = False
        self._kept.clear()
        for file in self._files:
            file.close()

    def pause(self, seconds: float) -> None:
        """Stop everything for a while; time goes on outside."""
        if not self.asleep:
            self.asleep = True
            self._loop.call_later(seconds, self.wake, context=self._world)

    def wake(self) -> None:
        """Go on where everything stopped."""
        self.asleep = False
        if self.alive:
            self.troubled_at = self._loop.time()
            self._note(f"{self.name} wakes")
            self._loop.readmit(self._kept)
        self._kept = []

    def keep(self, handle: asyncio.Handle) -> None:
        """Keep a callback until the process wakes."""
        self._kept.append(handle)


def _name(task: asyncio.Task[Any]) -> str:
    """Give the name that a task was given; asyncio's own ones count all tasks that the interpreter ever had."""
    name = task.get_name()
    return "a task without a name" if name.removeprefix("Task-").isdecimal() else name


def new_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: Context | None = None
) -> asyncio.Task[T]:
    """Make a task, and let its process know."""
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.owns(task)
    return task


def admits(handle: asyncio.Handle) -> bool:
    """Let callbacks run, except those of processes that are dead or asleep."""
    process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # a handle knows its context, but hides it
    if process is None or (process.alive and not process.asleep):
        return True
    if process.alive:
        process.keep(handle)
    return False
