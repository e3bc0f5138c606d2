"""Clock, randomness, ids and executors of a simulated world, all determined by a seed."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.testing.virtual_loop import VirtualLoop
from holdfast.wiring.threads import Threads

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The loop's virtual time as a clock; *skew* is its deviation."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, skew: timedelta = timedelta(0), epoch: datetime = EPOCH
    ) -> None:
        self._loop = loop
        self._zero = epoch + skew

    def now(self) -> datetime:
        return self._zero + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()


class SeededRandom:
    """Reproducible random numbers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def random(self) -> float:
        return self._chance.random()


class SeededIds:
    """Reproducible ids: they sort in the order of their creation, across all instances that share *serial*."""

    def __init__(self, serial: Callable[[], int], *, worker: str = "simulated:1:w") -> None:
        self._serial = serial
        self._worker = worker

    def job_id(self) -> str:
        return f"00000000-0000-7000-8000-{self._serial():012x}"

    def worker_id(self) -> str:
        return self._worker


class InlineExecutor:
    """An executor without threads: the function runs immediately, on the loop."""

    def run(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(function())
        except Exception as error:  # noqa: BLE001 - it is raised in the caller that awaits the answer
            answer.set_exception(error)
        return answer

    def close(self) -> None:
        """Do nothing: there are no threads."""


class AwaitedThreads:
    """Real threads for functions that block; virtual time waits for them."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._threads = Threads("holdfast-simulated-handler")

    def run(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        return self._loop.waits_for(self._threads.run(function))

    def close(self) -> None:
        self._threads.close()
