"""Each test of this folder runs on every store, on a database that has no tables yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg
import pytest

from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.queries import migrations
from holdfast.stores.sqlite import schema as sqlite_schema
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.wiring.system import SystemClock
from holdfast.wiring.threads import Threads

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ports import Store
    from tests.servers import PostgresServer

Scripts = Sequence[tuple[int, str]]
Catalog = dict[str, list[tuple[Any, ...]]]


class Target(Protocol):
    """A database that only this test uses."""

    scripts: Scripts
    """The migrations of its store."""

    def new_store(self) -> Store:
        """Make a store with connections of its own, as another process would have it."""
        ...

    async def catalog(self) -> Catalog:
        """Read the database's catalogue of its tables."""
        ...

    async def execute(self, sql: str) -> None:
        """Run a statement; tables are named as on PostgreSQL."""
        ...


_POSTGRES_CATALOG = {
    "columns": """
        SELECT relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
               pg_get_expr(adbin, adrelid)
          FROM pg_class
          JOIN pg_attribute ON attrelid = pg_class.oid
          LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
         WHERE relnamespace = to_regnamespace('holdfast') AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
         ORDER BY relname, attnum""",
    "tables": """
        SELECT relname, relkind, relpersistence, reloptions
          FROM pg_class WHERE relnamespace = to_regnamespace('holdfast') ORDER BY relname""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = to_regnamespace('holdfast') ORDER BY 1, 2""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'holdfast' ORDER BY 1, 2",
    "functions": """
        SELECT proname, pg_get_functiondef(oid)
          FROM pg_proc WHERE pronamespace = to_regnamespace('holdfast') ORDER BY 1""",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(pg_trigger.oid)
          FROM pg_trigger JOIN pg_class ON tgrelid = pg_class.oid
         WHERE relnamespace = to_regnamespace('holdfast') AND NOT tgisinternal ORDER BY 1, 2""",
    "schemas": "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' ORDER BY 1",
}


@dataclass
class PostgresTarget:
    """An empty PostgreSQL database."""

    dsn: str
    scripts: Scripts

    def new_store(self) -> Store:
        return PostgresStore(self.dsn)

    async def catalog(self) -> Catalog:
        connection = await asyncpg.connect(self.dsn)
        try:
            return {
                name: [tuple(row) for row in await connection.fetch(sql)]
                for name, sql in _POSTGRES_CATALOG.items()
            }
        finally:
            await connection.close()

    async def execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


@dataclass
class SqliteTarget:
    """A SQLite file that does not exist yet."""

    path: str
    scripts: Scripts

    def new_store(self) -> Store:
        writing, reading = Threads("test-writer", limit=1), Threads("test-reader", limit=1)
        return SqliteStore(self.path, clock=SystemClock(), writing=writing, reading=reading)

    async def catalog(self) -> Catalog:
        with closing(sqlite3.connect(self.path)) as connection:
            made = connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"
            ).fetchall()
            tables = [name for kind, name, *_ in made if kind == "table"]
            return {"master": made} | {
                table: connection.execute(f"PRAGMA table_xinfo({table})").fetchall() for table in tables
            }

    async def execute(self, sql: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(as_on_sqlite(sql))


def as_on_sqlite(sql: str) -> str:
    """Name the tables as they are named in SQLite."""
    return sql.replace("holdfast.", "holdfast_")


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty database, once for each store."""
    if request.param == "sqlite":
        return SqliteTarget(str(tmp_path / "jobs.db"), migrations("holdfast.stores.sqlite"))
    return PostgresTarget(request.getfixturevalue("postgres_dsn"), migrations("holdfast.stores.postgres"))


@pytest.fixture
def other_target(request: pytest.FixtureRequest, target: Target, tmp_path: Path) -> Iterator[Target]:
    """A second empty database of the same store."""
    if isinstance(target, SqliteTarget):
        yield SqliteTarget(str(tmp_path / "other.db"), target.scripts)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    dsn = server.create_database()
    yield PostgresTarget(dsn, target.scripts)
    server.drop_database(dsn)


Release = Callable[[Scripts], None]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Replace the migrations of this code, as another release would have them."""

    def become(scripts: Scripts) -> None:
        monkeypatch.setattr("holdfast.stores.postgres.schema.migrations", lambda _: list(scripts))
        monkeypatch.setattr(sqlite_schema, "MIGRATIONS", list(scripts))
        monkeypatch.setattr(sqlite_schema, "EXPECTED", scripts[-1][0])

    return become
