"""A task that writes for others may be cancelled before its first step; nothing then hangs or is forgotten."""

import asyncio
from pathlib import Path

from holdfast.aio.batcher import Batcher
from holdfast.stores.sqlite.writer import Writer
from holdfast.testing.seeded_system import InlineExecutor
from holdfast.wiring.system import SystemClock


def cancel_all_others() -> None:
    """Do as `asyncio.run` does at the end, or at Ctrl-C."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_what_was_posted_is_written_all_the_same() -> None:
    written: list[int] = []

    async def write(batch: list[int]) -> list[None]:
        written.extend(batch)
        return [None] * len(batch)

    batcher = Batcher(write, limit=10, name="test")
    batcher.post(1)
    cancel_all_others()

    await batcher.drain()

    assert written == [1]


async def test_a_later_post_takes_along_what_was_left() -> None:
    written: list[int] = []

    async def write(batch: list[int]) -> list[int]:
        written.extend(batch)
        return batch

    batcher = Batcher(write, limit=10, name="test")
    batcher.post(1)
    cancel_all_others()
    await asyncio.sleep(0)

    await batcher.ask(2)

    assert written == [1, 2]


async def test_a_file_can_still_be_closed(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "jobs.db"), InlineExecutor(), SystemClock())
    await writer.open()
    writing = asyncio.create_task(
        writer.write(lambda connection, _: connection.execute("CREATE TABLE seen (it)"))
    )
    await asyncio.sleep(0)
    cancel_all_others()
    await asyncio.wait([writing])

    await writer.close()
    await writer.open()

    tables = await writer.write(
        lambda connection, _: connection.execute("SELECT name FROM sqlite_master").fetchall()
    )
    assert [name for (name,) in tables] == ["seen"]
    await writer.close()


async def test_a_write_that_joins_a_cancelled_one_is_answered(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "jobs.db"), InlineExecutor(), SystemClock())
    await writer.open()
    first = asyncio.create_task(writer.write(lambda connection, _: None))
    await asyncio.sleep(0)
    cancel_all_others()  # the task that writes has not begun, and has not ended yet

    async with asyncio.timeout(5):
        answer = await writer.write(lambda connection, _: "written")

    assert answer == "written"
    assert first.cancelled()
    await writer.close()


async def test_a_question_that_joins_a_cancelled_write_is_answered() -> None:
    async def write(batch: list[int]) -> list[int]:
        return batch

    batcher = Batcher(write, limit=10, name="test")
    batcher.post(1)
    cancel_all_others()

    async with asyncio.timeout(5):
        answer = await batcher.ask(2)

    assert answer == 2
