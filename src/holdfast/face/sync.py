"""For code without an event loop: each verb has a twin that blocks until its answer is there.

The twins of a `Holdfast` share one thread with an event loop, and there a second `Holdfast` with the same
declarations and connections of its own: an async application in the same process never meets it. The
thread starts with the first call, and anew in a forked child, where threads and connections are the parent's.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.engine.execution.context import CURRENT

if TYPE_CHECKING:
    from holdfast.face.holdfast import Holdfast

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """Where blocking calls go in, and answers come out. Threads may share it."""

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold
        self._lock = threading.Lock()
        self._room: _Room | None = None
        _PORTALS.add(self)

    def run(self, verb: str, ask: "Callable[[Holdfast], Coroutine[Any, Any, T]]") -> T:
        """Have *ask* awaited on a loop, and wait for what it gives. Raises `ConfigError` on a loop's own thread."""
        refuse_on_a_loop(verb)
        job = CURRENT.get()
        if job is not None and job.is_kept_by(self._hold.runtime.store):
            # A plain job asks on its worker's loop: there, what it waits for gives its slot free.
            return answer_of(asyncio.run_coroutine_threadsafe(ask(self._hold), job.loop))
        with self._lock:
            if self._room is None:
                self._room = _Room(self._hold._twin())
            asked = self._room.ask(ask)
        return answer_of(asked)

    def close(self) -> None:
        """Disconnect and end the thread. The next call makes another."""
        with self._lock:
            room, self._room = self._room, None
        if room is not None:
            room.close()

    def forget(self) -> None:
        """Start anew in a forked child."""
        self._lock = threading.Lock()
        if self._room is not None:
            _LEFT_BEHIND.append(self._room)
        self._room = None


class _Room:
    """The thread, its loop, and the `Holdfast` that lives there."""

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold
        self._stop = asyncio.Event()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="holdfast-sync", daemon=True
        )
        self._thread.start()
        self._loop = self._ready.result()

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()

    def ask(self, ask: "Callable[[Holdfast], Coroutine[Any, Any, T]]") -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(ask(self._hold), self._loop)

    def close(self) -> None:
        try:
            self.ask(lambda hold: hold.close()).result()
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()


def answer_of(asked: "Future[T]") -> T:
    """Wait for what was asked on another thread's loop."""
    try:
        return asked.result()
    except CancelledError:
        raise StoreUnavailable("the Holdfast was closed before it could answer; ask again") from None
    except BaseException:
        asked.cancel()  # whoever was interrupted waits no longer, and nobody shall wait in their place
        raise


def refuse_on_a_loop(verb: str) -> None:
    """Raise `ConfigError` where an event loop runs: it would stand still, and with it the answer."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        f"{verb}_sync() blocks, and would block the event loop that runs here; write `await {verb}(...)` instead"
    )


_PORTALS: "WeakSet[Portal]" = WeakSet()

_LEFT_BEHIND: list[_Room] = []
"""What a forked child has of its parent: kept, since to close it would be to speak on the parent's connections."""


def _start_anew() -> None:
    for portal in list(_PORTALS):
        portal.forget()


def _close_all() -> None:
    for portal in list(_PORTALS):
        portal.close()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(_close_all)


class _Twinned(Protocol):
    @property
    def _portal(self) -> Portal: ...

    def _on(self, hold: "Holdfast") -> Any:
        """Give the same thing as it is seen from *hold*."""
        ...


S = TypeVar("S", bound=_Twinned)


def in_sync(verb: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Make the twin of an async method for code without an event loop."""
    name = verb.__name__

    @wraps(verb)
    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.run(name, lambda hold: verb(self._on(hold), *args, **kwargs))

    twin.__name__ += "_sync"
    twin.__qualname__ += "_sync"
    twin.__doc__ = f"Do what `{name}` does, for code without an event loop: block until it is done."
    return twin
