"""For code without an event loop: runs async methods on an event loop in a thread, and waits for their results.

The `_sync` methods of a `Holdfast` and of its services share one thread with an event loop, and there a second `Holdfast`
with the same declarations and its own connections, which an async application in the same process never uses. The
thread starts at the first call, and again in a forked child, where threads and connections are the parent's.
"""

import asyncio
import atexit
import os
import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.engine.execution.context import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.app.holdfast import Holdfast

T = TypeVar("T")


class Portal:
    """Runs async calls for code without an event loop. Threads may share it."""

    def __init__(self, hold: "Holdfast") -> None:
        self._hold = hold
        self._lock = threading.Lock()
        self._loop_thread: _LoopThread | None = None
        _PORTALS.add(self)

    def run(self, method: str, call: "Callable[[Holdfast], Coroutine[Any, Any, T]]") -> T:
        """Await *call* on the event loop of the thread, and return its result. Raises `ConfigError` on a loop's own thread."""
        refuse_on_a_loop(method)
        job = CURRENT.get()
        if job is not None and job.is_kept_by(self._hold.runtime.store):
            # A plain job calls on its worker's loop: there, a wait frees its slot.
            return result_of(asyncio.run_coroutine_threadsafe(call(self._hold), job.loop))
        with self._lock:
            if self._loop_thread is None:
                self._loop_thread = _LoopThread(self._hold._twin())
            running = self._loop_thread.start(call)
        return result_of(running)

    def close(self) -> None:
        """Disconnect and end the thread. The next call starts another."""
        with self._lock:
            loop_thread, self._loop_thread = self._loop_thread, None
        if loop_thread is not None:
            loop_thread.close()

    def forget(self) -> None:
        """Drop the thread of the parent, in a forked child; the next call starts another."""
        self._lock = threading.Lock()
        if self._loop_thread is not None:
            _LEFT_BEHIND.append(self._loop_thread)
        self._loop_thread = None


class _LoopThread:
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

    def start(self, call: "Callable[[Holdfast], Coroutine[Any, Any, T]]") -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(call(self._hold), self._loop)

    def close(self) -> None:
        try:
            self.start(lambda hold: hold.close()).result()
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()


def result_of(running: "Future[T]") -> T:
    """Wait for a call that runs on the event loop of another thread, and return its result."""
    try:
        return running.result()
    except CancelledError:
        raise StoreUnavailable("the Holdfast was closed before the call had ended; call it again") from None
    except BaseException:
        running.cancel()  # the caller was interrupted: nothing may go on waiting in its place
        raise


def refuse_on_a_loop(method: str) -> None:
    """Raise `ConfigError` in a thread with a running event loop: it would be blocked, and the call with it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        f"{method}_sync() blocks, and would block the event loop that runs here; write `await {method}(...)` instead"
    )


_PORTALS: "WeakSet[Portal]" = WeakSet()

_LEFT_BEHIND: list[_LoopThread] = []
"""Threads of the parent in a forked child. They are kept: closing them would use the connections of the parent."""


def _forget_all() -> None:
    for portal in list(_PORTALS):
        portal.forget()


def _close_all() -> None:
    for portal in list(_PORTALS):
        portal.close()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_close_all)
