"""Whatever a list of jobs is filtered by, an index has those jobs in order, however many others have ended."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import JobFilter, Status
from holdfast.stores.find_statement import find_statement
from holdfast.stores.postgres.connections import SESSION
from holdfast.stores.queries import Queries
from tests.contract.conftest import SqliteFile

pytestmark = pytest.mark.clause("JOB-9")

ID = "01900000-0000-7000-8000-000000000000"

FILTERS = {
    "failed": (JobFilter(status=Status.FAILED), "finished_failed_by_id"),
    "cancelled": (JobFilter(status=Status.CANCELLED), "finished_cancelled"),
    "name": (JobFilter(name="report"), "finished_by_name"),
    "name, page": (JobFilter(name="report", before=ID), "finished_by_name"),
    "failed of a name": (JobFilter(name="work", status=Status.FAILED), "finished_failed_by_name"),
    "owner": (JobFilter(owner="ada"), "finished_by_owner"),
    "queue": (JobFilter(queue="reports"), "finished_by_queue"),
}
"""Each filter, and the index that it reads."""

BY_ID = {
    "none": JobFilter(),
    "page": JobFilter(before=ID),
    "completed": JobFilter(status=Status.COMPLETED),
    "default queue": JobFilter(queue="default"),
    "no owner": JobFilter(owner=""),
}
"""What most jobs are: the primary key, read from its end, meets them soon."""


def on_sqlite(connection: sqlite3.Connection, filtered: JobFilter) -> list[str]:
    values: dict[str, Any] = {}

    def bind(name: str, value: Any) -> str:
        values[name] = value
        return f":{name}"

    sql = find_statement(
        Queries("holdfast.stores.sqlite"), filtered, bind, before="id < {}", keys="holdfast_job_keys"
    )
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    made = SqliteFile(str(tmp_path / "jobs.db"))
    store = made.new_store()
    await store.open()
    await store.close()
    with closing(sqlite3.connect(made.path)) as connection:
        yield connection


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_on_sqlite_reads_its_index_in_order(file: sqlite3.Connection, name: str) -> None:
    filtered, index = FILTERS[name]

    steps = on_sqlite(file, filtered)

    assert [step for step in steps if f"holdfast_{index} " in f"{step} "]


@pytest.mark.parametrize("name", BY_ID)
def test_what_most_jobs_are_is_read_on_sqlite_by_id(file: sqlite3.Connection, name: str) -> None:
    steps = on_sqlite(file, BY_ID[name])

    [ended] = [step for step in steps if "holdfast_finished" in step]
    assert "INDEX" not in ended or "USING PRIMARY KEY" in ended


KEYED = 5_000
"""Enough keys for an index to pay."""


def test_a_key_is_found_on_sqlite_by_its_index(file: sqlite3.Connection) -> None:
    file.executemany(
        "INSERT INTO holdfast_job_keys (owner, name, key, job_id, fingerprint, created_at) VALUES ('', 'work', ?, ?, '', 0)",
        [(f"key {number}", f"{number:08}-0000-7000-8000-000000000000") for number in range(KEYED)],
    )
    file.execute("ANALYZE")

    steps = on_sqlite(file, JobFilter(key="key 7"))

    assert [step for step in steps if "holdfast_job_keys_by_key " in step]
    assert not [step for step in steps if step.startswith("SCAN holdfast_")], steps


SOME = """
INSERT INTO holdfast.finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
    finished_at)
SELECT (lpad(to_hex(n), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid,
       CASE WHEN n < 10 THEN 'report' ELSE 'work' END, CASE WHEN n < 10 THEN 'reports' ELSE 'default' END,
       CASE WHEN n < 10 THEN 'ada' ELSE '' END,
       CASE WHEN n < 10 THEN 'failed' WHEN n < 20 THEN 'cancelled' ELSE 'completed' END,
       0, 1, 1, 1, 0, 0, now(), now(), now()
  FROM generate_series(1, 5000) AS n
"""


async def on_postgres(dsn: str, filtered: JobFilter) -> str:
    values: list[Any] = []

    def bind(name: str, value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    sql = find_statement(
        Queries("holdfast.stores.postgres"),
        filtered,
        bind,
        before="id < {}::uuid",
        keys="holdfast.job_keys",
    )
    connection = await asyncpg.connect(
        dsn, server_settings=SESSION | {"plan_cache_mode": "force_custom_plan"}
    )
    try:
        # What deleted rows leave behind makes an index dearer, and the rows lie in any order.
        await connection.execute("TRUNCATE holdfast.finished, holdfast.job_stubs")
        await connection.execute(SOME)
        await connection.execute("ANALYZE holdfast.finished")
        return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}", *values))
    finally:
        await connection.close()


@pytest.mark.parametrize("name", FILTERS)
async def test_a_filter_on_postgres_reads_its_index(postgres_dsn: str, name: str) -> None:
    filtered, index = FILTERS[name]

    steps = await on_postgres(postgres_dsn, filtered)

    indexes = {index, "finished_failed_by_id"} if name == "failed of a name" else {index}
    assert any(f"using {each} on finished" in steps for each in indexes), steps
    assert "Seq Scan" not in steps


@pytest.mark.parametrize("name", BY_ID)
async def test_what_most_jobs_are_is_read_on_postgres_by_id(postgres_dsn: str, name: str) -> None:
    steps = await on_postgres(postgres_dsn, BY_ID[name])

    assert "Index Scan Backward using finished_pkey on finished" in steps


async def test_a_key_is_found_on_postgres_by_its_index(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(
            "INSERT INTO holdfast.job_keys (owner, name, key, job_id, fingerprint, created_at)"
            " SELECT '', 'work', 'key ' || n, gen_random_uuid(), '', now() FROM generate_series(1, $1::integer) AS n",
            KEYED,
        )
        await connection.execute("ANALYZE holdfast.job_keys")
    finally:
        await connection.close()

    steps = await on_postgres(postgres_dsn, JobFilter(key="key 7"))

    assert "job_keys_by_key" in steps
    assert "Seq Scan on job_keys" not in steps
    assert "Seq Scan on finished" not in steps


async def test_letters_that_may_be_replayed_are_read_on_postgres_by_their_age(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    sql = Queries("holdfast.stores.postgres")["replayable_letters"]
    ages = (timedelta(minutes=10), timedelta(days=1))

    rows = await connection.fetch(f"EXPLAIN {sql}", "work", *ages, datetime(1970, 1, 1, tzinfo=UTC), ID, 9)

    await connection.close()
    steps = "\n".join(row[0] for row in rows)
    assert "using dead_letters_replayable" in steps
    assert "Sort" not in steps
