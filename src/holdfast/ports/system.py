"""Time, randomness, ids and threads: everything that would make two runs differ.

All of it is passed in, so that a test can run the whole engine on a simulated
clock with seeded random numbers.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """A source of time. Where it matters, the store's own clock decides, never this one."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring durations."""
        ...


class Random(Protocol):
    """A source of random numbers."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...


class Ids(Protocol):
    """A source of names that were not used before."""

    def job_id(self) -> str:
        """Return a UUID in text form; later ones sort after earlier ones of the same process."""
        ...

    def worker_id(self) -> str:
        """Return a name for a worker that a person can trace to a host and process.

        No other worker ever has it: what is leased to a name is its worker's alone.
        """
        ...


class Watchdog(Protocol):
    """Watches the event loop from a thread, also while the loop is blocked."""

    def start(
        self, check: Callable[[], float], *, close: Callable[[], object]
    ) -> Callable[[], Awaitable[None]]:
        """Call *check* off the event loop, again after as many seconds as it returns, and *close* in the end.

        The returned function ends it, and waits until *close* has returned, but not for long. Raises
        `RuntimeError` if there is no thread for it.
        """
        ...


class Executor(Protocol):
    """Runs functions that block."""

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run *function* off the event loop. Raises `RuntimeError` if there is no thread for it.

        Cancelling the wait leaves the function running: a thread cannot be stopped.
        """
        ...

    def close(self) -> None:
        """Stop idle threads. A thread that is still busy ends with the process."""
        ...
