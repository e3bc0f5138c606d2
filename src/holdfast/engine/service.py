"""A background service of a worker: a loop around `run_once`, which is started, woken and stopped."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_availability import StoreAvailability

STORE_PAUSE = 1.0
"""Seconds until the next run when the store was unavailable, unless a service has a pause of its own."""

ERROR_PAUSE = 10.0
"""Seconds until the next run of an `OptionalService` after any other error."""


class Service(ABC):
    """Calls `run_once` repeatedly: after the seconds that it returned, or earlier if `wake` is called.

    An unavailable store delays the next run. Any other error ends the service: a worker cannot do without it.
    """

    name: str
    """Its name in logs, and in the report whether the store answers."""

    shortest_rest: ClassVar[float] = 0.0
    """The least seconds between two runs, however often it is woken."""

    def __init__(
        self, runtime: Runtime, *, store_pause: float = STORE_PAUSE, first_after: float = 0.0
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._logger = runtime.logger
        self._store_pause = store_pause
        self._first_after = first_after
        self._woken = asyncio.Event()
        self._finishing = False
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> float:
        """Do what is due; return the seconds until the next run. Raises `StoreUnavailable`."""

    def start(self, worker: str, availability: StoreAvailability) -> "asyncio.Task[None]":
        """Start the loop, and return its task."""
        self._task = asyncio.create_task(self._run(availability), name=f"{worker} {self.name}")
        return self._task

    def stop(self) -> None:
        """Cancel the loop, at once."""
        if self._task is not None:
            self._task.cancel()

    def finish(self) -> None:
        """End the loop once the run in flight has ended."""
        self._finishing = True
        self.wake()

    def wake(self) -> None:
        """Make it run again soon."""
        self._woken.set()

    def recover(self, error: Exception) -> float:
        """Return the seconds until the next run after an unexpected *error*; raise it to end the worker."""
        raise error

    async def _run(self, availability: StoreAvailability) -> None:
        if self._first_after:
            await self._rest(self._first_after)
        while not self._finishing:
            self._woken.clear()  # before the run: what happens during it may need another
            try:
                pause = await self.run_once()
                availability.answered(self.name)
            except StoreUnavailable as error:
                availability.failed(self.name, error)
                pause = self._store_pause
            except Exception as error:  # noqa: BLE001 - the edge of a service's loop
                pause = self.recover(error)
            await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        """Wait for *pause* seconds, or until `wake`."""
        if self.shortest_rest:
            await asyncio.sleep(min(pause, self.shortest_rest))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()

    def _jittered(self, seconds: float) -> float:
        """Return *seconds*, more or less: workers that started together do not run together."""
        return seconds * (0.5 + self._runtime.random.random())


class OptionalService(Service):
    """A service without which jobs run on: an unexpected error is logged, and delays the next run."""

    def recover(self, error: Exception) -> float:
        """Log *error*, and return the seconds until the next run."""
        message = self._runtime.describe(error)
        self._logger.error("background service failed", service=self.name, message=message)
        return ERROR_PAUSE
