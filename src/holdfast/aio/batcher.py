"""Group commit: concurrent writes share a batch.

While one write is in flight, further items queue, and the next write takes all of them. A single item is written
without delay; under load, batches form without a timer.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.core.errors import StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

GIVEN_UP = "the write was given up; whether it took place is unknown"


class Batcher(Generic[T, R]):
    """Passes batches to *write*, one at a time; *write* returns a result for each item, in order.

    An item whose result is *retry_on* is written again by *retried_by*, or by this batcher; any other result is final.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[Sequence[R]]],
        *,
        limit: int = sys.maxsize,
        name: str,
        retry_on: "R | None" = None,
        retried_by: "Batcher[T, R] | None" = None,
    ) -> None:
        self._write = write
        self._retry_on = retry_on
        self._retried_by = retried_by or self
        self._limit = limit
        self._name = name
        self._items: list[T] = []
        self._answers: list[asyncio.Future[R] | None] = []
        self._free = asyncio.Event()
        self._free.set()
        self._flushing: asyncio.Task[None] | None = None

    def post(self, item: T) -> None:
        """Queue *item*, without waiting for its result."""
        self._items.append(item)
        self._answers.append(None)
        if self._flushing is None:  # a task that has ended looks for more items in its callback
            self._start_flush()

    async def ask(self, item: T) -> R:
        """Queue *item*, and return its result. Raises what *write* raised."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._add(item, answer)
        return await answer

    def _add(self, item: T, answer: "asyncio.Future[R] | None") -> None:
        self._items.append(item)
        self._answers.append(answer)
        self._start_flush()

    async def ask_alone(self, item: T) -> R:
        """Write *item* in the caller's task if no write is in flight: a new task would cost a fifth of the write.

        When the caller is cancelled meanwhile, the outcome is unknown.
        """
        if self._is_flushing() or not self._free.is_set():
            return await self.ask(item)
        self._free.clear()
        try:
            [answer] = await self._write([item])
        finally:
            self._free.set()
            if self._items:
                self._start_flush()
        return answer

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._free.wait()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    def give_up(self) -> None:
        """Drop what is queued and cancel the write in flight; callers that wait get `StoreUnavailable`."""
        answers, self._items, self._answers = self._answers, [], []
        _refuse(answers, StoreUnavailable(GIVEN_UP))
        if self._flushing is not None:
            self._flushing.cancel()

    def _start_flush(self) -> None:
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
            self._start_flush()  # items are left only if the task was cancelled: they are written all the same

    async def _write_batch(self, items: list[T], answers: list[asyncio.Future[R] | None]) -> None:
        try:
            results = await self._write(items)
        except Exception as error:  # noqa: BLE001 - raised to the callers that wait
            _refuse(answers, error)
            return
        except BaseException:  # cancelled, or the process exits: no caller is left waiting
            _refuse(answers, StoreUnavailable(GIVEN_UP))
            raise
        for item, answer, result in zip(items, answers, results, strict=True):
            if result is self._retry_on and result is not None:
                self._retried_by._add(item, answer)
            elif answer is not None and not answer.done():
                answer.set_result(result)


def _refuse(answers: Sequence[asyncio.Future[Any] | None], error: Exception) -> None:
    for answer in answers:
        if answer is not None and not answer.done():
            answer.set_exception(error)
