"""An event loop whose time passes only when nobody has anything left to do.

A pause of an hour takes no time: when every task waits, the clock jumps to the next timer. With a
source of chance, callbacks that are ready at once run in an order that chance decides, and the same
chance gives the same order.
"""

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

IO_GRACE = 0.02
"""Seconds of real time that open sockets get to bring something, before virtual time jumps on."""


class Stuck(RuntimeError):
    """Everybody waits for something that no timer will bring."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with a virtual clock, and an order of callbacks that *chance* decides.

    *admits* is asked before a callback runs; one that it does not admit is dropped. Whoever keeps it
    can hand it back with `readmit`: that is how a process is paused, or killed.
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
        self._outside = 0

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def readmit(self, handles: "list[asyncio.Handle]") -> None:
        """Run callbacks after all that were not admitted before."""
        self._ready.extend(handles)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # as wide as all of them
        """Run a blocking function in a real thread; virtual time waits for it."""
        return self.waits_for(super().run_in_executor(executor, func, *args))

    def waits_for(self, answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """Let virtual time wait for *answer*: it comes from a thread, where time is real."""
        self._outside += 1
        answer.add_done_callback(self._came_back)
        return answer

    def _came_back(self, _: "asyncio.Future[Any]") -> None:
        self._outside -= 1

    def _run_once(self) -> None:
        self._ripen()
        while not self._ready and not self._stopping and not self._waits_outside():  # type: ignore[attr-defined]  # of the base class
            if not self._scheduled:
                raise Stuck("nothing is left to happen: every task waits, and there is no timer")
            self._now = max(self._now, self._scheduled[0].when())
            self._ripen()
        if self._chance is not None:
            self._chance.shuffle(self._ready)
        if self._ready:
            super()._run_once()  # type: ignore[misc]  # it exists, but is not part of the typed interface
        else:
            self._wait_in_real_time()

    def _ripen(self) -> None:
        """Move timers that are due among the ready callbacks, and keep those out that are not admitted."""
        while self._scheduled and (
            self._scheduled[0].cancelled() or self._scheduled[0].when() <= self._now + self._clock_resolution
        ):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # as the base class marks it
            if timer.cancelled():
                self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
            else:
                self._ready.append(timer)
        if self._admits is not None and self._ready:
            self._ready = deque(filter(self._admits, self._ready))

    def _waits_outside(self) -> bool:
        """Whether something that runs in real time may still bring news."""
        if self._outside:
            return True
        sockets = len(self._selector.get_map()) > 1  # type: ignore[attr-defined]  # one is the loop's own
        return sockets and not self._heard_nothing()

    def _heard_nothing(self) -> bool:
        """Give sockets a moment of real time; whether it brought nothing."""
        events = self._selector.select(IO_GRACE)  # type: ignore[attr-defined]
        self._process_events(events)  # type: ignore[attr-defined]
        return not self._ready

    def _wait_in_real_time(self) -> None:
        """Wait for a thread; its time is real, and virtual time goes along with it."""
        began = time.monotonic()
        super()._run_once()  # type: ignore[misc]
        self._now += time.monotonic() - began
