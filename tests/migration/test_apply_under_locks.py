"""Applying the schema waits for locks in short attempts, names the blocking sessions, and lets workers run in between."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.connections import SESSION
from holdfast.stores.postgres.store import PostgresStore
from tests.contract.conftest import Logger
from tests.integration.cli_process import holdfast as command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.ports.schema import LockWait
    from tests.migration.conftest import Release

TIMEOUT = 60.0
NEXT = "LOCK TABLE holdfast.jobs, holdfast.finished IN ACCESS EXCLUSIVE MODE; ALTER TABLE holdfast.jobs ADD extra text"


@pytest.fixture
async def found(postgres_dsn: str, release: Release) -> int:
    """The version of a database whose next migration needs a lock on the tables of jobs."""
    store = PostgresStore(postgres_dsn)
    found = (await store.apply_schema()).expected
    await store.close()
    release([*((version, "") for version in range(1, found + 1)), (found + 1, NEXT)])
    return found


@asynccontextmanager
async def a_backup(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that reads the table of jobs in a transaction that stays open."""
    reader = await asyncpg.connect(dsn, server_settings={"application_name": "nightly backup"})
    try:
        await reader.execute("BEGIN; SELECT count(*) FROM holdfast.jobs")
        yield reader
    finally:
        await reader.close()


async def test_workers_go_on_while_a_reader_keeps_the_schema_from_being_applied(
    postgres_dsn: str, found: int
) -> None:
    waits: asyncio.Queue[LockWait] = asyncio.Queue()
    store = PostgresStore(postgres_dsn)
    worker = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    async with asyncio.timeout(TIMEOUT), a_backup(postgres_dsn) as reader:
        applying = asyncio.create_task(store.apply_schema(blocked=waits.put_nowait))

        # Each of these gives up after five seconds in the queue of a lock, as every statement of a worker does.
        tries: list[LockWait] = []
        while len(tries) < 2 or not any(wait.holders for wait in tries):
            await worker.execute("UPDATE holdfast.jobs SET priority = 1 WHERE false")
            await asyncio.sleep(0.05)
            while not waits.empty():
                tries.append(waits.get_nowait())
        before = await store.schema_state()
        await reader.execute("COMMIT")
        applied = await applying

    holders = next(wait.holders for wait in tries if wait.holders)
    assert [(holder.application, holder.state) for holder in holders] == [
        ("nightly backup", "idle in transaction")
    ]
    assert holders[0].since is not None
    assert before.found == applied.found == found
    assert (await store.schema_state()).found == found + 1
    await worker.close()
    await store.close()


async def test_after_its_limit_it_names_the_blocking_session_and_says_that_nothing_was_changed(
    postgres_dsn: str, found: int
) -> None:
    store = PostgresStore(postgres_dsn)
    async with asyncio.timeout(TIMEOUT), a_backup(postgres_dsn):
        with pytest.raises(StoreUnavailable, match=r"nothing was changed: .*'nightly backup'.*idle in trans"):
            await store.apply_schema(limit=timedelta(seconds=4))

    assert (await store.schema_state()).found == found
    await store.close()


@pytest.mark.usefixtures("found")
async def test_each_wait_is_logged_with_the_sessions_it_waits_for(postgres_dsn: str, logger: Logger) -> None:
    hold = Holdfast(postgres_dsn, logger=logger.writer)
    async with asyncio.timeout(TIMEOUT), a_backup(postgres_dsn) as reader:
        applying = asyncio.create_task(hold.apply_schema())
        while not any(line["sessions"] for line in logger.lines("schema apply blocked")):
            await asyncio.sleep(0.05)
        await reader.execute("COMMIT")
        await applying

    [session] = next(line["sessions"] for line in logger.lines("schema apply blocked") if line["sessions"])
    assert "'nightly backup'" in session
    await hold.close()


async def test_the_command_says_what_it_waits_for_and_ends_with_a_code_of_its_own(
    postgres_dsn: str, tmp_path: Path
) -> None:
    other = await asyncpg.connect(postgres_dsn, server_settings={"application_name": "deploy"})
    await other.execute("BEGIN; CREATE SCHEMA holdfast")

    done = await asyncio.to_thread(
        command, "schema", "apply", "--wait", "4s", "--url", postgres_dsn, cwd=tmp_path
    )

    await other.close()
    lines = done.stderr.splitlines()
    assert done.returncode == 3
    assert lines[0].startswith("holdfast: waited ")
    assert "'deploy'" in lines[-1]
    assert "nothing was changed" in lines[-1]


@pytest.fixture
def logger() -> Logger:
    """What a Holdfast logs."""
    return Logger()
