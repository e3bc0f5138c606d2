"""A Holdfast that was closed can be used again, also from another event loop."""

import asyncio
import os
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError, PayloadInvalid, StoreUnavailable
from holdfast.stores.sqlite.database import BUSY_MS
from holdfast.telemetry.logs import StructuredLogger


def test_a_closed_holdfast_works_again_in_another_event_loop(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @hold.job("double")
    async def double(n: int) -> int:
        return 2 * n

    async def once(n: int) -> int:
        async with hold, hold.worker(poll=0.05):
            return await (await double.submit(n)).result(timeout=20)

    assert [asyncio.run(once(n)) for n in (1, 2)] == [2, 4]


async def test_a_broken_worker_ends_the_block_that_runs_beside_it(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    async with hold:
        with pytest.raises(sqlite3.Error):
            async with hold.worker(queues=[object()]):  # type: ignore[list-item]  # what a careless caller may pass
                await asyncio.Event().wait()


@pytest.mark.parametrize("options", [{"key": ""}, {"subject": "", "version": 1}, {"key": "a\x00b"}])
def test_an_empty_or_unprintable_key_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @hold.job("noop")
    async def noop() -> None: ...

    with pytest.raises(PayloadInvalid, match="printable text of 1 to 200"):
        noop.options(**options)  # type: ignore[arg-type]  # what a careless caller may pass


async def test_a_file_whose_lock_is_held_is_waited_for_once_by_all_who_write_together(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with Holdfast(f"sqlite:///{path}") as hold:
        store = hold.runtime.store
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        writes = [asyncio.create_task(store.promote(limit=1)) for _ in range(5)]
        try:
            async with asyncio.timeout(2.5 * BUSY_MS / 1000):
                outcomes = await asyncio.gather(*writes, return_exceptions=True)
        finally:
            holder.close()

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 5


@pytest.mark.parametrize(
    "options", [{"slots": 0}, {"slots": "many"}, {"queues": []}, {"lease": 0}, {"poll": 0}], ids=str
)
async def test_a_worker_that_would_run_nothing_or_never_rest_is_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}") as hold:
        with pytest.raises(ConfigError):
            async with hold.worker(**options):
                pass


async def test_many_first_uses_open_the_store_once(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    opened: list[int] = []

    class Counted:
        async def open(self) -> None:
            await asyncio.sleep(0)
            opened.append(1)

        async def redaction_key(self) -> bytes:
            return b"k"

    hold.runtime = replace(hold.runtime, store=Counted())  # type: ignore[arg-type]  # it is only opened
    await asyncio.gather(*(hold.open() for _ in range(10)))

    assert opened == [1]


async def test_frameworks_see_that_a_job_and_a_stage_are_async(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")

    async def awaited() -> None: ...

    def plain() -> None: ...

    made = [hold.stage()(awaited), hold.job()(awaited), hold.stage()(plain), hold.job()(plain)]
    assert [asyncio.iscoroutinefunction(function) for function in made] == [True, True, False, False]


def test_a_log_whose_reader_has_gone_loses_lines_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        StructuredLogger(stream=stream).info("worker stopping")
        with suppress(OSError):
            stream.close()

    StructuredLogger(stream=stream).info("worker stopped")
