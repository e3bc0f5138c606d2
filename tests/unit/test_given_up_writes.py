"""Every caller that asked for a write is answered, also when it can no longer be made."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.aio.batcher import Batcher
from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.writer import Writer
from holdfast.wiring.system import SystemClock
from holdfast.wiring.threads import Threads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TIMEOUT = 10


class Unreliable:
    """Threads, unless there are none."""

    def __init__(self) -> None:
        self.none_left = False
        self._threads = Threads("test", limit=1)

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        if self.none_left:
            raise RuntimeError("can't start new thread")
        return self._threads.run(function)

    def close(self) -> None:
        self._threads.close()


@pytest.fixture
def executor() -> Unreliable:
    return Unreliable()


@pytest.fixture
async def writer(executor: Unreliable, tmp_path: Path) -> AsyncIterator[Writer]:
    writer = Writer(str(tmp_path / "jobs.db"), executor, SystemClock())
    await writer.open()
    yield writer
    await writer.close()
    executor.close()


def one(connection: sqlite3.Connection, _: int) -> int:
    [number] = connection.execute("SELECT 1").fetchone()
    return int(number)


async def test_without_a_thread_the_store_is_unavailable_and_recovers(
    writer: Writer, executor: Unreliable
) -> None:
    executor.none_left = True
    with pytest.raises(StoreUnavailable, match="new thread"):
        await asyncio.wait_for(writer.write(one), TIMEOUT)

    executor.none_left = False
    assert await asyncio.wait_for(writer.write(one), TIMEOUT) == 1


async def test_a_writer_that_is_cancelled_answers_those_who_wait(writer: Writer) -> None:
    loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(_: sqlite3.Connection, now: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(TIMEOUT)

    waiting = [asyncio.create_task(writer.write(slow))]
    await asyncio.wait_for(begun.wait(), TIMEOUT)
    waiting.append(asyncio.create_task(writer.write(slow)))
    await asyncio.sleep(0)

    cancel("holdfast sqlite writer")

    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), TIMEOUT)
    go.set()
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
    assert await asyncio.wait_for(writer.write(one), TIMEOUT) == 1


async def test_what_comes_after_a_cancelled_batch_is_written_all_the_same() -> None:
    writing = asyncio.Event()

    async def write(batch: list[int]) -> list[int]:
        if batch == [1]:
            writing.set()
            await asyncio.Event().wait()
        return batch

    batcher = Batcher(write, limit=10, name="batcher under test")
    first = asyncio.create_task(batcher.ask(1))
    await asyncio.wait_for(writing.wait(), TIMEOUT)
    second = asyncio.create_task(batcher.ask(2))
    await asyncio.sleep(0)

    cancel("batcher under test")

    with pytest.raises(StoreUnavailable, match="unknown"):
        await asyncio.wait_for(first, TIMEOUT)
    assert await asyncio.wait_for(second, TIMEOUT) == 2


async def test_a_batcher_that_gives_up_leaves_no_task_behind() -> None:
    async def write(batch: list[int]) -> list[int]:
        await asyncio.Event().wait()
        return batch

    batcher = Batcher(write, limit=10, name="batcher under test")
    batcher.post(1)
    await asyncio.sleep(0)
    asked = asyncio.create_task(batcher.ask(2))
    await asyncio.sleep(0)

    batcher.give_up()

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(asked, TIMEOUT)
    await asyncio.wait_for(batcher.drain(), TIMEOUT)
    assert "batcher under test" not in {task.get_name() for task in asyncio.all_tasks()}


def cancel(name: str) -> None:
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == name]
    task.cancel()


class ThreadEndedError(BaseException):
    """Not an `Exception`, and no cancellation."""


async def test_a_caller_is_answered_whatever_ends_the_write() -> None:
    async def end_at_once(_: list[int]) -> list[int]:
        raise ThreadEndedError

    batcher: Batcher[int, int] = Batcher(end_at_once, name="ends")

    with pytest.raises(StoreUnavailable, match="given up"):
        await asyncio.wait_for(batcher.ask(1), TIMEOUT)
