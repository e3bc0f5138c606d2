"""Fills the tables of a PostgreSQL with jobs in every state, quickly and on the server alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from holdfast.stores.postgres.store import PostgresStore

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

TABLES = ("jobs", "payloads", "finished", "stages", "job_events")

STRIDE = 100_000_000
"""How far apart the ids of two kinds are."""

_JOB = """
INSERT INTO holdfast.jobs (
    id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after, status, attempt,
    last_attempt, last_attempt_at, lease_token, leased_by, lease_expires_at, held_by)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'default', '', {priority}, now(), now(), now(), {retry_after}, '{status}',
       1, 1, now(), 1, {leased_by}, {lease_expires_at}, {held_by}
  FROM generate_series($1::bigint, $2::bigint) AS n
"""

_FINISHED = """
INSERT INTO holdfast.finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'default', '', 'completed', 0, 1, 1, 1, 0, 0, now(), now(), now()
  FROM generate_series($1::bigint, $2::bigint) AS n
"""

_STAGE = """
INSERT INTO holdfast.stages (
    job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'fetch', '#1', 'started', 1, 1, 1, '', now()
  FROM generate_series($1::bigint, $2::bigint) AS n
"""

_PAYLOAD = """
INSERT INTO holdfast.payloads (job_id, args)
SELECT lpad(to_hex(n), 32, '0')::uuid, '{}'
  FROM generate_series($1::bigint, $2::bigint) AS n
"""


def _job(
    *,
    priority: int = 0,
    status: str = "queued",
    retry_after: str = "NULL",
    leased_by: str = "NULL",
    expires: str = "NULL",
    held_by: str = "NULL",
) -> str:
    return _JOB.format(
        priority=priority,
        status=status,
        retry_after=retry_after,
        leased_by=leased_by,
        lease_expires_at=expires,
        held_by=held_by,
    )


@dataclass(frozen=True)
class Kind:
    """One kind of jobs: where its ids begin, and the statements that make it."""

    first: int
    statements: tuple[str, ...]

    def ids(self, start: int, count: int) -> list[str]:
        """The ids of *count* jobs of this kind, from number *start* on."""
        return [f"{self.first + number:032x}" for number in range(start, start + count)]


FINISHED = Kind(1 * STRIDE, (_FINISHED, _PAYLOAD))
PARKED = Kind(2 * STRIDE, (_job(retry_after="now() + interval '1 day' + n * interval '1 ms'"), _PAYLOAD))
READY = Kind(3 * STRIDE, (_job(), _PAYLOAD))
LEASED = Kind(
    4 * STRIDE,
    (
        _job(status="processing", leased_by="'worker'", expires="now() + interval '1 day'"),
        _PAYLOAD,
        _STAGE,
    ),
)
DUE = Kind(5 * STRIDE, (_job(retry_after="now() - interval '1 minute'"), _PAYLOAD))
LOST = Kind(
    6 * STRIDE,
    (_job(status="processing", leased_by="'gone'", expires="now() - interval '1 minute'"), _PAYLOAD),
)
URGENT = Kind(7 * STRIDE, (_job(priority=1), _PAYLOAD))
HELD = Kind(
    8 * STRIDE,
    (_job(retry_after="now() + interval '36500 days'", held_by="'provider ' || (n % 3)"), _PAYLOAD),
)
KINDS = (FINISHED, PARKED, READY, LEASED, DUE, LOST, HELD)


async def prepared(dsn: str) -> Connection:
    """Make the tables, keep autovacuum from analysing them, and connect."""
    store = PostgresStore(dsn)
    await store.apply_schema()
    await store.close()
    connection = await asyncpg.connect(dsn)
    for table in TABLES:
        await connection.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
    await connection.execute("SET synchronous_commit = off")
    return connection


async def fill(connection: Connection, kind: Kind, count: int, *, start: int = 0) -> None:
    """Add *count* jobs of a kind."""
    for statement in kind.statements:
        await connection.execute(statement, kind.first + start, kind.first + start + count - 1, timeout=120)


async def analyse(connection: Connection) -> None:
    """Take fresh statistics."""
    for table in TABLES:
        await connection.execute(f"ANALYZE holdfast.{table}", timeout=120)


async def analyse_while_tiny(connection: Connection) -> None:
    """Take statistics of tables with a few jobs in them, which then leave."""
    for kind in KINDS:
        await fill(connection, kind, 3)
    await analyse(connection)
    for table in TABLES:
        await connection.execute(f"DELETE FROM holdfast.{table}")


async def forget_statistics(connection: Connection) -> None:
    """Leave the catalogue as it is for tables that were never analysed. Takes a superuser."""
    named = """
        SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relname = ANY ($1::text[])
         UNION
        SELECT indexrelid FROM pg_index JOIN pg_class ON oid = indrelid
         WHERE relnamespace = 'holdfast'::regnamespace AND relname = ANY ($1::text[])"""
    unknown = -1 if connection.get_server_version().major >= 14 else 0
    await connection.execute(f"DELETE FROM pg_statistic WHERE starelid IN ({named})", TABLES)
    await connection.execute(
        f"UPDATE pg_class SET relpages = 0, reltuples = {unknown}, relallvisible = 0 WHERE oid IN ({named})",
        TABLES,
    )
