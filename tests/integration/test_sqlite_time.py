"""In SQLite, the time of a write is the time at which it holds the lock."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.builders import a_job
from tests.contract.conftest import SqliteFile

LEASE = timedelta(seconds=2)


@pytest.mark.clause("JOB-4", "sqlite")
async def test_a_lease_begins_when_the_claim_gets_the_lock(tmp_path: Path) -> None:
    file = SqliteFile(str(tmp_path / "jobs.db"))
    store = file.new_store()
    await store.open()
    await store.submit([a_job()])

    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.claim("worker", "default", limit=1, lease=LEASE))
        await asyncio.sleep(0)  # the claim has been asked for, and waits for the other's lock
        await file.clock.advance(2 * LEASE)
        other.execute("COMMIT")
    [claim] = await waiting

    job = await store.get(claim.id)
    assert job.lease_expires_at is not None
    assert job.lease_expires_at > await file.clock.now()
    assert await store.reclaim(limit=1) == []
    await store.close()
