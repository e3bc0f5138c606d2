"""An event loop whose time passes only when every task waits.

A pause of an hour takes no time: when every task waits, the clock jumps to the next timer. With a random generator,
callbacks that are ready at the same time run in a random order, and the same seed gives the same order.
"""

import asyncio
import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

IO_GRACE = 0.02
"""Seconds of real time to wait for open sockets, before virtual time advances."""

LAST_GRACE = 1.0
"""Seconds of real time to wait for other threads, before the loop counts as stuck."""


class Stuck(RuntimeError):
    """Every task waits, and no timer is pending."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with a virtual clock, and an order of callbacks that *chance* determines.

    *admits* is called before a callback runs; a callback that it does not admit is dropped. *admits* may keep it
    and return it later with `readmit`: this is how a process is paused or killed.
    """

    _ready: "deque[asyncio.Handle]"
    _scheduled: "list[asyncio.TimerHandle]"
    _timer_cancelled_count: int

    def __init__(
        self,
        chance: random.Random | None = None,
        *,
        admits: Callable[[asyncio.Handle], bool] | None = None,
    ) -> None:
        super().__init__()
        self._clock_resolution = 1e-6
        self._now = 0.0
        self._chance = chance
        self._admits = admits
        self._outside: set[asyncio.Future[Any]] = set()
        self._settling: deque[asyncio.Future[None]] = deque()

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now

    def readmit(self, handles: "list[asyncio.Handle]") -> None:
        """Schedule callbacks that were not admitted before."""
        self._ready.extend(handles)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # as wide as all of them
        """Run a blocking function in a real thread; virtual time waits for it."""
        return self.waits_for(super().run_in_executor(executor, func, *args))

    def waits_for(self, answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """Let virtual time wait for *answer*: it comes from a thread, where time is real."""
        self._outside.add(answer)
        # In an empty context: the callback runs even if the process that waits is not admitted any more.
        answer.add_done_callback(self._outside.discard, context=Context())
        return answer

    def waits_no_more(self, answer: "asyncio.Future[Any]") -> None:
        """Let virtual time advance without *answer*."""
        self._outside.discard(answer)

    def settled(self) -> "asyncio.Future[None]":
        """Return a future that is done when everything has run that is due before time advances."""
        self._settling.append(self.create_future())
        return self._settling[-1]

    def _run_once(self) -> None:
        self._move_due_timers()
        while not self._ready and not self._stopping and not self._waits_outside():  # type: ignore[attr-defined]  # of the base class
            if self._settling:
                waiting = self._settling.popleft()
                if not waiting.done():
                    waiting.set_result(None)
            elif self._scheduled:
                self._now = max(self._now, self._scheduled[0].when())
            elif self._stays_silent(LAST_GRACE if self._other_threads() else 0):
                raise Stuck("nothing is left to happen: every task waits, and there is no timer")
            self._move_due_timers()
        if self._chance is not None:
            self._chance.shuffle(self._ready)
        if self._ready:
            super()._run_once()  # type: ignore[misc]  # it exists, but is not part of the typed interface
        else:
            # A thread is waited for in real time, and virtual time advances by as much.
            began = time.monotonic()
            super()._run_once()  # type: ignore[misc]
            self._now += time.monotonic() - began

    def _move_due_timers(self) -> None:
        """Move due timers to the ready callbacks, and drop callbacks that are not admitted."""
        while self._scheduled and (
            self._scheduled[0].cancelled() or self._scheduled[0].when() <= self._now + self._clock_resolution
        ):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # as the base class marks it
            if timer.cancelled():
                self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
            else:
                # No timer runs before its time, not even by a microsecond: code that compares times would set it again.
                self._now = max(self._now, timer.when())
                self._ready.append(timer)
        if self._admits is not None and self._ready:
            self._drop_not_admitted(self._admits)

    def _drop_not_admitted(self, admits: Callable[[asyncio.Handle], bool]) -> None:
        """Drop callbacks that are not admitted, one by one and in place: threads may append to the queue meanwhile."""
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if admits(handle):
                self._ready.append(handle)

    def _waits_outside(self) -> bool:
        """Whether something that runs in real time may still schedule a callback."""
        if self._outside:
            return True
        sockets = len(self._selector.get_map()) > 1  # type: ignore[attr-defined]  # one is the loop's own
        return sockets and not self._stays_silent(IO_GRACE)

    def _other_threads(self) -> set[threading.Thread]:
        """Return the threads that may schedule a callback."""
        return set(threading.enumerate()) - {threading.current_thread()}

    def _stays_silent(self, grace: float) -> bool:
        """Wait up to *grace* seconds of real time; return whether nothing arrived."""
        events = self._selector.select(grace)  # type: ignore[attr-defined]
        self._process_events(events)  # type: ignore[attr-defined]
        return not self._ready
