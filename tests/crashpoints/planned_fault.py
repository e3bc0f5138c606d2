"""Where a fault is injected: every call of the victim to the outside has a number, and a moment before and after."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

from tests.simulation.processes import Fault, InjectedFault, Moment, Process

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

FAULTS = (Fault.CRASH, Fault.PAUSE, Fault.ERROR, Fault.CANCEL)

WATCHER = "holdfast sqlite watcher"
"""The task that looks at the file ten times a second, whatever happens."""

LETTER_SERVICES = (" replayer", " automatic replayer", " notifier", " ticket hook", " archiver")
"""Suffixes of the names of the tasks that look after dead letters."""


class Spot(NamedTuple):
    """A moment of one of the victim's calls."""

    call: int
    point: str
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} #{self.call} {self.point}"


class PlannedFault(NamedTuple):
    """A fault at a spot."""

    spot: Spot
    fault: Fault


class Victim(Process):
    """A process whose calls are numbered.

    Of the watcher's looks that follow each other, with no other call between, only the first has a
    number: the others find the process just as it was. Calls of its dead letter services have numbers only in a story
    about them, where no other call has one: the others have their own stories.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._numbers = count(1)
        self._just_looked = False
        self._files: list[sqlite3.Connection] = []
        self.about_letter_services = False
        """Whether its dead letter services are what the story is about."""
        self._letter_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    async def call(self, point: str, operation: Callable[[], Awaitable[T]], *, error: type[Exception]) -> T:
        """Make a call, under its number."""
        return await super().call(self._numbered(point), operation, error=error)

    def owns(self, task: asyncio.Task[Any]) -> None:
        """Remember a task; one that a dead letter service starts belongs to that service."""
        super().owns(task)
        if self._serves_letters(asyncio.current_task()):
            self._letter_tasks.add(task)

    def owns_file(self, file: sqlite3.Connection) -> None:
        """Remember a connection that the victim itself has opened."""
        self._files.append(file)

    def crash(self) -> None:
        """Die; the machine closes what was open."""
        super().crash()
        for file in self._files:
            file.close()

    def _numbered(self, point: str) -> str:
        task = asyncio.current_task()
        if self._serves_letters(task) != self.about_letter_services:
            return point
        looks = task is not None and task.get_name() == WATCHER
        again, self._just_looked = looks and self._just_looked, looks
        return point if again else f"#{next(self._numbers)} {point}"

    def _serves_letters(self, task: asyncio.Task[Any] | None) -> bool:
        return task is not None and (task in self._letter_tasks or task.get_name().endswith(LETTER_SERVICES))


class OneFault:
    """Injects the planned fault once, or none; it notes every spot that it passes."""

    def __init__(self, planned: PlannedFault | None, *, seconds: float) -> None:
        self.planned = planned
        self.passed: list[Spot] = []
        self.injected = False
        self.lost_answer: str | None = None
        """The point at which the next answer gets lost, in addition to the planned fault."""
        self._seconds = seconds

    def inject(self, process: Process, point: str, moment: Moment) -> InjectedFault | None:
        """Inject the planned fault if this is its spot."""
        if not point.startswith("#"):
            return None
        number, _, name = point.removeprefix("#").partition(" ")
        spot = Spot(int(number), name, moment)
        self.passed.append(spot)
        if self.planned is None or spot != self.planned.spot:
            return self._lose_answer(spot)
        self.injected = True
        return InjectedFault(self.planned.fault, self._seconds)

    def _lose_answer(self, spot: Spot) -> InjectedFault | None:
        if spot.moment is Moment.AFTER and spot.point == self.lost_answer:
            self.lost_answer = None
            return InjectedFault(Fault.ERROR)
        return None


class NoFaults:
    """Injects nothing."""

    def inject(self, process: Process, point: str, moment: Moment) -> InjectedFault | None:
        """Do nothing."""
        return None
