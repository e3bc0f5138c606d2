"""Where a fault is injected: every call of the victim to the outside has a number, and a moment before and after."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from tests.simulation.jobs import SIDE
from tests.simulation.message_jobs import QUEUE
from tests.simulation.processes import Fault, InjectedFault, Moment, Process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

FAULTS = (Fault.CRASH, Fault.PAUSE, Fault.ERROR, Fault.CANCEL)

WATCHER = "holdfast sqlite watcher"
"""The task that looks at the file ten times a second, whatever happens."""


class Subject(StrEnum):
    """What a story is about: only the victim's calls for it are numbered, the others have their own stories."""

    JOBS = "jobs"
    LETTERS = "letters"
    MESSAGES = "messages"
    FLEETS = "fleets"


SERVICES = {
    Subject.LETTERS: (" replayer", " automatic replayer", " notifier", " ticket hook", " archiver"),
    Subject.MESSAGES: (" relay", " announcer", f" consumer {QUEUE}"),
    Subject.FLEETS: (f" dispatcher of {SIDE}",),
}
"""Suffixes of the names of the tasks that look after dead letters, exchange messages, and dispatch jobs."""


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
    number: the others find the process just as it was. Calls of the services for dead letters and messages have numbers
    only in a story about them, where no other call has one: the others have their own stories.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._numbers = count(1)
        self._just_looked = False
        self.subject = Subject.JOBS
        self._subjects: WeakKeyDictionary[asyncio.Task[Any], Subject] = WeakKeyDictionary()

    async def call(self, point: str, operation: Callable[[], Awaitable[T]], *, error: type[Exception]) -> T:
        """Make a call, under its number."""
        return await super().call(self._numbered(point), operation, error=error)

    def owns(self, task: asyncio.Task[Any]) -> None:
        """Remember a task; one that a service starts belongs to that service."""
        super().owns(task)
        self._subjects[task] = self._subject_of(asyncio.current_task())

    def _numbered(self, point: str) -> str:
        task = asyncio.current_task()
        if self._subject_of(task) is not self.subject:
            return point
        looks = task is not None and task.get_name() == WATCHER
        again, self._just_looked = looks and self._just_looked, looks
        return point if again else f"#{next(self._numbers)} {point}"

    def _subject_of(self, task: asyncio.Task[Any] | None) -> Subject:
        if task is None:
            return Subject.JOBS
        named = (subject for subject, names in SERVICES.items() if task.get_name().endswith(names))
        return next(named, self._subjects.get(task, Subject.JOBS))


class OneFault:
    """Injects the planned fault once, or none; it notes every spot that it passes."""

    def __init__(self, planned: PlannedFault | None, *, seconds: float) -> None:
        self.planned = planned
        self.passed: list[Spot] = []
        self.injected = False
        self.lost_answer: str | None = None
        """The point at which the next answer gets lost, in addition to the planned fault."""
        self.seconds = seconds
        """How long a paused process sleeps."""

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
        return InjectedFault(self.planned.fault, self.seconds)

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
