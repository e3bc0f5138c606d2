"""A database that was migrated step by step equals one that was created at once, and a step that fails leaves no trace."""

import asyncio
import os
import sqlite3

import asyncpg
import pytest

from holdfast.errors import SchemaError
from holdfast.ports import SchemaState
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.schema_version import MIN_COMPATIBLE
from tests.builders import a_job
from tests.migration.conftest import Release, Scripts, SqliteTarget, Target, as_on_sqlite

TIMEOUT = 30.0


def with_next(target: Target, *statements: str) -> Scripts:
    """The migrations of this code, and one more."""
    script = ";\n".join(statements) + ";\n"
    version = target.scripts[-1][0] + 1
    return [*target.scripts, (version, as_on_sqlite(script) if isinstance(target, SqliteTarget) else script)]


ADDITION = (
    "CREATE TABLE holdfast.extra (id integer PRIMARY KEY, note text NOT NULL DEFAULT 'none')",
    "ALTER TABLE holdfast.jobs ADD COLUMN extra text",
)
BROKEN = (*ADDITION, "INSERT INTO holdfast.extra (id) VALUES (1), (1)")


async def apply(target: Target) -> SchemaState:
    store = target.new_store()
    try:
        return await store.apply_schema()
    finally:
        await store.close()


async def version(target: Target) -> int:
    store = target.new_store()
    try:
        return (await store.schema_state()).found
    finally:
        await store.close()


def test_migrations_are_numbered_without_a_gap(target: Target) -> None:
    assert [number for number, _ in target.scripts] == list(range(1, len(target.scripts) + 1))


async def test_a_migrated_schema_equals_a_fresh_one(
    target: Target, other_target: Target, release: Release
) -> None:
    scripts = with_next(target, *ADDITION)

    release(scripts)
    await apply(other_target)
    for count in range(1, len(scripts) + 1):
        release(scripts[:count])
        assert (await apply(target)).found == count - 1

    assert await target.catalog() == await other_target.catalog()
    assert await version(target) == await version(other_target) == len(scripts)


async def test_jobs_outlive_a_migration(target: Target, release: Release) -> None:
    job = a_job()
    await apply(target)
    store = target.new_store()
    await store.open()
    await store.submit([job])
    await store.close()

    release(with_next(target, *ADDITION))
    await apply(target)

    store = target.new_store()
    await store.open()
    assert (await store.get(job.id)).id == job.id
    await store.close()


FAILED_BEFORE = (
    """
    INSERT INTO holdfast.outbox_messages (id, aggregate_id, aggregate_type, message_type, payload, status)
    VALUES ('{message}', 'a', 'Order', 'placed', '{{}}', 'failed'), ('{other}', 'b', 'Order', 'placed', '{{}}', 'failed')
    """,
    """
    INSERT INTO holdfast.payloads (job_id, args) VALUES ('{job}', '{{"outbox_id": "{message}"}}')
    """,
    """
    INSERT INTO holdfast.finished (
        id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
        finished_at, failure)
    VALUES ('{job}', 'holdfast' || '.publish', 'default', '', 'failed', 0, 0, 1, 0, 0, 0, {now}, {now}, {now}, '{{}}')
    """,
)


async def test_a_message_that_failed_before_the_migration_is_connected_with_its_dead_letter(
    target: Target, release: Release
) -> None:
    job, message, other = (f"01900000-0000-7000-8000-00000000000{digit}" for digit in "abc")
    now = "0" if isinstance(target, SqliteTarget) else "now()"
    release(target.scripts[:8])
    await apply(target)
    for statement in FAILED_BEFORE:
        await target.execute(statement.format(job=job, message=message, other=other, now=now))

    release(target.scripts)
    await apply(target)

    store = target.new_store()
    await store.open()
    assert (await store.outbox.get(message)).dead_job_id == job
    assert (await store.outbox.get(other)).dead_job_id is None
    await store.close()


async def test_applying_twice_changes_nothing(target: Target) -> None:
    first = await apply(target)
    made = await target.catalog()

    second = await apply(target)

    latest = target.scripts[-1][0]
    assert (first.found, first.current) == (0, False)
    assert second == SchemaState(latest, latest, MIN_COMPATIBLE)
    assert await target.catalog() == made


async def test_a_first_migration_that_fails_leaves_nothing_behind(target: Target, release: Release) -> None:
    before = await target.catalog()
    release(with_next(target, *BROKEN))

    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await apply(target)

    assert await target.catalog() == before
    assert await version(target) == 0


async def test_a_later_migration_that_fails_leaves_the_schema_as_it_was(
    target: Target, release: Release
) -> None:
    await apply(target)
    before = await target.catalog()
    release(with_next(target, *BROKEN))

    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await apply(target)

    assert await target.catalog() == before
    assert await version(target) == target.scripts[-1][0]
    release(with_next(target, *ADDITION))
    await apply(target)
    assert await version(target) == target.scripts[-1][0] + 1


async def test_many_may_apply_at_once(target: Target, other_target: Target) -> None:
    found = await asyncio.gather(*(apply(target) for _ in range(4)))

    latest = target.scripts[-1][0]
    assert sorted(state.found for state in found) == [0, latest, latest, latest]
    await apply(other_target)
    assert await target.catalog() == await other_target.catalog()


async def test_on_postgres_the_second_waits_for_the_first(postgres_dsn: str) -> None:
    stores = [PostgresStore(postgres_dsn) for _ in range(2)]
    watcher, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    await other.execute("BEGIN; CREATE SCHEMA holdfast")  # blocks the first of the two

    applying = [asyncio.create_task(store.apply_schema()) for store in stores]
    async with asyncio.timeout(TIMEOUT):
        while await watcher.fetchval(WAITING) < 2:
            await asyncio.sleep(0.01)
    await other.execute("ROLLBACK")

    states = [await task for task in applying]
    assert sorted(state.found for state in states) == [0, states[0].expected]
    for store in stores:
        await store.close()
    await watcher.close()
    await other.close()


WAITING = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'holdfast' AND wait_event_type = 'Lock'
"""


async def test_on_postgres_a_migration_that_deadlocks_with_a_worker_begins_anew(
    postgres_dsn: str, release: Release
) -> None:
    store = PostgresStore(postgres_dsn)
    found = (await store.apply_schema()).expected
    await store.close()
    steps = "LOCK TABLE holdfast.jobs; LOCK TABLE holdfast.finished"
    release([*((version, "") for version in range(1, found + 1)), (found + 1, steps)])
    store = PostgresStore(postgres_dsn)
    watcher, worker = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    # In a deadlock, the session whose deadlock_timeout ends first is aborted.
    await worker.execute(
        "SET deadlock_timeout = '1min'; BEGIN; LOCK TABLE holdfast.finished IN ROW EXCLUSIVE MODE"
    )

    applying = asyncio.create_task(store.apply_schema())
    async with asyncio.timeout(TIMEOUT):
        while not await watcher.fetchval(WAITING):
            await asyncio.sleep(0.01)
    await worker.execute("LOCK TABLE holdfast.jobs IN ROW EXCLUSIVE MODE; COMMIT")

    assert (await applying).found == found
    assert (await store.schema_state()).found == found + 1
    await store.close()
    await watcher.close()
    await worker.close()


@pytest.mark.skipif("HOLDFAST_LONG" not in os.environ, reason="takes a minute; HOLDFAST_LONG=1 runs it")
async def test_on_postgres_a_migration_may_take_longer_than_any_statement(
    postgres_dsn: str, release: Release
) -> None:
    store = PostgresStore(postgres_dsn)
    await store.apply_schema()
    await store.close()
    release([(1, ""), (2, "SELECT pg_sleep(62)")])

    store = PostgresStore(postgres_dsn)
    assert (await store.apply_schema()).found == 1
    assert (await store.schema_state()).found == 2
    await store.close()


async def test_a_schema_error_is_raised_before_anything_is_written(target: Target, release: Release) -> None:
    await apply(target)
    before = await target.catalog()
    release(with_next(target, *ADDITION))

    store = target.new_store()
    with pytest.raises(SchemaError):
        await store.open()
    await store.close()

    assert await target.catalog() == before
