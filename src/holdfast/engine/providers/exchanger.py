"""The exchanger: it runs one exchange of a provider link at a time, when the first of its users needs it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Exchanger:
    """Runs *exchange* in a task of its own; what is due during one is covered by the next."""

    def __init__(
        self,
        exchange: Callable[[], Coroutine[Any, Any, None]],
        *,
        name: str,
        interrupted: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._exchange = exchange
        self._name = name
        self._interrupted = interrupted
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        """Set when the exchange in flight has ended."""
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self._closed = False

    @property
    def is_scheduled(self) -> bool:
        """Whether an exchange is to come."""
        return self._timer is not None

    def schedule(self, delay: float) -> None:
        """Exchange in *delay* seconds at the latest; never after `close`."""
        if self._closed:
            return
        due = self._loop.time() + delay
        if self._timer is not None:
            if self._due <= due:  # uvloop's timers do not say when they are due
                return
            self._timer.cancel()
        self._due, self._timer = due, self._loop.call_at(due, self._start)

    def exchange_now(self) -> None:
        """Exchange as soon as the loop gets to it."""
        self.schedule(0.0)

    async def exchange_or_join(self) -> None:
        """Exchange once, or wait for the exchange in flight."""
        if self._task is None:
            self._start()
        await self._over.wait()

    async def finish(self) -> None:
        """Wait until no exchange is in flight."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Cancel the scheduled exchange and the one in flight; none follows, whatever was due meanwhile."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # this exchange covers it
            self._timer = None
        if self._task is None:
            self._over = asyncio.Event()
            self._task = self._loop.create_task(self._exchange(), name=self._name)
            self._task.add_done_callback(self._ended)
        else:  # what was collected meanwhile goes next
            self._task.add_done_callback(lambda _: self.exchange_now())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._over.set()
        error = None if task.cancelled() else task.exception()
        if task.cancelled():  # by other code, or at shutdown
            self._interrupted()
        elif error is not None:
            self._failed(error)
