"""The ports of a simulated process: the real implementations, with faults before and after every call."""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from holdfast.core.errors import StoreUnavailable
from tests.simulation.files import File
from tests.simulation.processes import Injected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from holdfast.core.jobs.stages import StageRow
    from holdfast.ports import Executor, Hint, HintKind, Store
    from tests.simulation.processes import Process

T = TypeVar("T")


POISON = "poison"
"""The stage whose rows take every worker down that reads them."""


class GuardedStore:
    """A store whose every call may fail, whose hints may get lost, and which may be away for all processes."""

    def __init__(
        self,
        store: Store,
        process: Process,
        *,
        loses: Callable[[], bool],
        die: Callable[[], NoReturn],
        away: Callable[[], bool],
        strikes_within: bool = False,
    ) -> None:
        self._store = store
        self._process = process
        self._loses = loses
        self._die = die
        self._away = away
        self.strikes_within = strikes_within
        """Whether calls on a caller's own connection are struck, too: it has locked the file meanwhile."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if iscoroutinefunction(method):
            method = self.guarded(f"store.{name}", method)
        elif not callable(method):
            method = GuardedPart(self, f"store.{name}", method)
        setattr(self, name, method)  # the next time it is found without asking here
        return method

    def guarded(self, point: str, method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """Give *method* such that its calls may be struck at *point*."""

        async def call(*args: Any, **kwargs: Any) -> T:
            return await self._call(point, partial(method, *args, **kwargs))

        return call

    async def _call(self, point: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._away():
            raise StoreUnavailable(f"{point} failed: the store is away")
        return await self._process.call(point, call, error=StoreUnavailable)

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        """Read stages. Some are more than a worker can bear; people read them page by page."""
        rows = await self._call("store.stages", partial(self._store.stages, job_ids))
        if self._process.works and any(row.key.name == POISON for row in rows):
            self._die()
        return rows

    def listen(self, receive: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        """Pass on the hints that do not get lost."""
        return self._store.listen(lambda hint: None if self._loses() else receive(hint), kinds)


class GuardedPart:
    """A part of a guarded store: each of its calls may be struck."""

    def __init__(self, store: GuardedStore, point: str, part: Any) -> None:
        self._store = store
        self._point = point
        self._part = part

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        if self._store.strikes_within or not name.endswith("_within"):
            method = self._store.guarded(f"{self._point}.{name}", method)
        setattr(self, name, method)
        return method


class GuardedExecutor:
    """An executor whose every call may fail; *committed* is called after each one that ran."""

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
        """Run *function*, with the faults that are injected into the process."""
        return self._process.call(self._point, partial(self._run, function), error=Injected)

    async def _run(self, function: Callable[[], T]) -> T:
        File.good_statements, self._process.good_statements = self._process.good_statements, None
        try:
            running = self._executor.run(function)  # it runs at once
        finally:
            File.good_statements = None
        answer = await running
        self._committed(self._process)
        return answer

    def close(self) -> None:
        """Let go of the real one."""
        self._executor.close()


def as_store(guarded: GuardedStore) -> Store:
    """Say to the type checker what it cannot see: every method is there."""
    return cast("Store", guarded)
