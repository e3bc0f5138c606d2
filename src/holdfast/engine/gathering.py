"""Writes that gather by themselves.

While one write is under way, what comes next waits together, and the following write takes all
of it. Alone, nobody waits; under load, batches form without a timer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.core.errors import StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

GIVEN_UP = "the write was given up; whether it took place is unknown"


class Gatherer(Generic[T, R]):
    """Hands batches to *write*, which answers each item in order, one batch at a time.

    *retried_by* names the gatherer that is to try an item again, by the answer to it; `None` if that is the last word.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[Sequence[R]]],
        *,
        limit: int,
        name: str,
        retried_by: "Callable[[R], Gatherer[T, R] | None]" = lambda _: None,
    ) -> None:
        self._write = write
        self._retried_by = retried_by
        self._limit = limit
        self._name = name
        self._items: list[T] = []
        self._answers: list[asyncio.Future[R] | None] = []
        self._free = asyncio.Event()
        self._free.set()
        self._flushing: asyncio.Task[None] | None = None

    def post(self, item: T) -> None:
        """Have *item* written, and ask no questions."""
        self._add(item, None)

    async def ask(self, item: T) -> R:
        """Have *item* written, and wait for its answer."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._add(item, answer)
        return await answer

    def _add(self, item: T, answer: "asyncio.Future[R] | None") -> None:
        self._items.append(item)
        self._answers.append(answer)
        self._kick()

    async def ask_alone(self, item: T) -> R:
        """Have *item* written, at once if nobody else is at it: a task of its own would cost a fifth of the write.

        A caller that is cancelled meanwhile leaves the outcome open.
        """
        if self._is_flushing() or not self._free.is_set():
            return await self.ask(item)
        self._free.clear()
        try:
            [answer] = await self._write([item])
        finally:
            self._free.set()
            if self._items:
                self._kick()
        return answer

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._free.wait()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    def give_up(self) -> None:
        """Write nothing more of what waits; whoever waits for an answer is told."""
        answers, self._items, self._answers = self._answers, [], []
        _refuse(answers, StoreUnavailable(GIVEN_UP))
        if self._flushing is not None:
            self._flushing.cancel()

    def _kick(self) -> None:
        if not self._is_flushing() and self._free.is_set() and self._items:
            self._flushing = asyncio.create_task(self._flush(), name=self._name)
            self._flushing.add_done_callback(self._flushed)

    def _is_flushing(self) -> bool:
        return self._flushing is not None and not self._flushing.done()

    async def _flush(self) -> None:
        while self._items:
            items, self._items = self._items[: self._limit], self._items[self._limit :]
            answers, self._answers = self._answers[: self._limit], self._answers[self._limit :]
            await self._write_batch(items, answers)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        # Not in a `finally` of the task: one that is cancelled before its first step runs none of its lines.
        if self._flushing is task:
            self._flushing = None
            self._kick()  # something is left only if the task was cancelled: it is written all the same

    async def _write_batch(self, items: list[T], answers: list[asyncio.Future[R] | None]) -> None:
        try:
            results = await self._write(items)
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait for the answer
            _refuse(answers, error)
            return
        except asyncio.CancelledError:
            _refuse(answers, StoreUnavailable(GIVEN_UP))
            raise
        for item, answer, result in zip(items, answers, results, strict=True):
            again = self._retried_by(result)
            if again is not None:
                again._add(item, answer)
            elif answer is not None and not answer.done():
                answer.set_result(result)


def _refuse(answers: Sequence[asyncio.Future[Any] | None], error: Exception) -> None:
    for answer in answers:
        if answer is not None and not answer.done():
            answer.set_exception(error)
