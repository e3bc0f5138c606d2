"""A full disk is reported in plain words, loses nothing, and work goes on as soon as there is space."""

from __future__ import annotations

import asyncio
import errno
import shutil
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Status
from holdfast.errors import StoreUnavailable
from holdfast_simulator import Rule, Script, Slow
from tests import invariants
from tests.acceptance.harness.app import BUDGET, submit_orders
from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.disks import MEGABYTE
from tests.acceptance.harness.fault_injector import LEASE
from tests.acceptance.harness.polling import until
from tests.acceptance.harness.processes import Service, WorkerPool
from tests.acceptance.harness.recovery import drain
from tests.builders import a_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.disks import SmallDisk


@pytest.fixture
def database(small_disk: SmallDisk, tmp_path: Path) -> Iterator[Database]:
    with open_database("sqlite", tmp_path, disk=small_disk) as opened:
        yield opened


def test_a_full_disk_has_no_room_at_all(small_disk: SmallDisk) -> None:
    small_disk.fill()

    with pytest.raises(OSError, match="No space left") as refused:
        (small_disk.folder / "one more").write_bytes(b"x")

    assert refused.value.errno == errno.ENOSPC
    small_disk.free()
    assert shutil.disk_usage(small_disk.folder).free > MEGABYTE


async def test_a_submission_to_a_full_disk_is_refused_in_plain_words_and_leaves_nothing(
    database: Database, small_disk: SmallDisk
) -> None:
    async with Holdfast(database.url) as hold:
        store = hold.runtime.store
        before = await refused_for_lack_of_room(hold, small_disk)
        batch = [a_job(args='{"n": 1}'), a_job(args='{"n": 2}', key="letter-7")]

        with pytest.raises(StoreUnavailable, match=r"the disk is full .* free some space"):
            await store.submit(batch)

        assert await stored(hold) == before
        small_disk.free()
        await store.submit(batch, again=True)
        assert await stored(hold) == before + len(batch)
    invariants.the_books_balance(await invariants.read_world(database.url))


@pytest.mark.clause("JOB-1", "sqlite")
async def test_a_submission_waits_for_room_and_then_returns(
    database: Database, small_disk: SmallDisk
) -> None:
    async with Holdfast(database.url) as hold:

        @hold.job("greet")
        async def greet(name: str) -> str:
            return f"hello {name}"

        before = await refused_for_lack_of_room(hold, small_disk)
        submitting = asyncio.create_task(greet.submit("Ada"))
        for _ in range(2):  # writes go in turn: the second one comes after the one that is being submitted
            with pytest.raises(StoreUnavailable, match="disk is full"):
                await hold.runtime.store.submit([a_job()])
        assert not submitting.done()

        small_disk.free()
        handle = await submitting

        assert (await handle.read()).status is Status.QUEUED
        assert await stored(hold) == before + 1


@pytest.mark.clause("JOB-4", "sqlite")
def test_a_worker_outlives_a_full_disk_and_finishes_its_jobs(
    database: Database, small_disk: SmallDisk, tmp_path: Path
) -> None:
    all_are_slow = Script.of(Rule(Slow(timedelta(seconds=0.2))))
    options = ("--lease", str(LEASE))
    with (
        Service(tmp_path, all_are_slow) as service,
        WorkerPool(database.url, tmp_path, service.url, size=1, options=options) as pool,
    ):
        pool.wait_until_at_work()
        orders = submit_orders(database.url, 60)
        until(lambda: len(service.calls()) >= 5, within=10, what="calls in flight")
        small_disk.fill()
        until(lambda: pool.lines("store unavailable"), within=60, what="the worker to report the full disk")
        assert "the disk is full" in pool.lines("store unavailable")[0]["message"]

        small_disk.free()
        drain(database, pool, within=120)
        codes = pool.stop()

    assert (pool.former, codes) == ([], [0])
    invariants.all_hold(database.world(), service.calls(), acknowledged=orders, budget=BUDGET)


async def refused_for_lack_of_room(hold: Holdfast, small_disk: SmallDisk) -> int:
    """Fill the disk, then the space that SQLite had reserved; return how many jobs are stored."""
    small_disk.fill()
    with suppress(StoreUnavailable):
        while True:
            await hold.runtime.store.submit([a_job(args=f'{{"text": "{"x" * 100_000}"}}')])
    return await stored(hold)


async def stored(hold: Holdfast) -> int:
    return sum((await hold.runtime.store.queues.counts()).values())
