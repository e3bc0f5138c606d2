"""The ports of a simulated process: the real parts, with faults before and after every call."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast
from unittest import mock

from holdfast.core.errors import StoreUnavailable
from tests.simulation.processes import Injected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast.ports import Executor, Hint, Store
    from tests.simulation.processes import Process

T = TypeVar("T")


class GuardedStore:
    """A store whose every call may be struck, whose hints may get lost, and which may be away for everybody."""

    def __init__(
        self, store: Store, process: Process, *, loses: Callable[[], bool], away: Callable[[], bool]
    ) -> None:
        self._store = store
        self._process = process
        self._loses = loses
        self._away = away

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not iscoroutinefunction(method):
            return method

        @wraps(method)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            if self._away():
                raise StoreUnavailable(f"store.{name} failed: the store is away")
            return await self._process.call(
                f"store.{name}", partial(method, *args, **kwargs), error=StoreUnavailable
            )

        return guarded

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        """Pass on the hints that do not get lost."""
        return self._store.listen(lambda hint: None if self._loses() else hear(hint))


class GuardedExecutor:
    """An executor whose every call may be struck; *committed* hears of each one that ran."""

    def __init__(
        self,
        executor: Executor,
        process: Process,
        *,
        point: str,
        committed: Callable[[Process], None] = lambda _: None,
    ) -> None:
        self._executor = executor
        self._process = process
        self._point = point
        self._committed = committed

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run *function*, unless something befalls the process."""
        return self._process.call(self._point, partial(self._run, function), error=Injected)

    async def _run(self, function: Callable[[], T]) -> T:
        good, self._process.good_statements = self._process.good_statements, None
        with File.lasting(good):
            running = self._executor.run(function)  # it runs at once
        answer = await running
        self._committed(self._process)
        return answer

    def close(self) -> None:
        """Let go of the real one."""
        self._executor.close()


class File(sqlite3.Connection):
    """A file on a disk that may fail, in the middle of a transaction or at its end."""

    _good_statements: ClassVar[int | None] = None

    @classmethod
    @contextmanager
    def lasting(cls, good_statements: int | None) -> Iterator[None]:
        """Let the statement after so many fail, whoever makes it; the one after that is good again."""
        cls._good_statements = good_statements
        try:
            yield
        finally:
            cls._good_statements = None

    def execute(self, *args: Any) -> sqlite3.Cursor:
        """Run a statement, unless this is the one that fails."""
        self._wear()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        """Run a statement for many rows, unless this is the one that fails."""
        self._wear()
        return super().executemany(*args)

    @classmethod
    def _wear(cls) -> None:
        if cls._good_statements is not None:
            cls._good_statements -= 1
            if cls._good_statements < 0:
                cls._good_statements = None
                raise sqlite3.OperationalError("disk I/O error")


@contextmanager
def failing_files() -> Iterator[None]:
    """Let every connection that is opened be a `File`."""
    with mock.patch("sqlite3.connect", partial(sqlite3.connect, factory=File)):
        yield


def as_store(guarded: GuardedStore) -> Store:
    """Say to the type checker what it cannot see: every method is there."""
    return cast("Store", guarded)
