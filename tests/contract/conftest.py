"""Every test of this folder runs on each store, with a clock that the test moves."""

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from holdfast import Backoff, Holdfast
from holdfast.ports import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.telemetry.logs import StructuredLogger
from holdfast.wiring.threads import Threads
from tests.contract.services import Service
from tests.servers import PostgresServer, Prepare


class DatabaseClock(Protocol):
    """The clock that decides in a store."""

    async def advance(self, length: timedelta) -> None:
        """Let *length* pass, for every process that uses this database."""
        ...

    async def now(self) -> datetime:
        """Ask what time it is in the database."""
        ...


class Database(Protocol):
    """Where the jobs of one test are."""

    @property
    def url(self) -> str: ...

    @property
    def clock(self) -> DatabaseClock: ...

    def new_store(self) -> Store:
        """Make a store with connections of its own, as another process would have it."""
        ...


@dataclass
class FakeClock:
    """A clock that moves when the test moves it, and a microsecond whenever it is read."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        self.at += timedelta(microseconds=1)
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@dataclass
class SqliteTime:
    """Moves the clock that is given to every store of the file."""

    fake: FakeClock

    async def advance(self, length: timedelta) -> None:
        self.fake.at += length

    async def now(self) -> datetime:
        return self.fake.now()


@dataclass
class PostgresTime:
    """Moves the offset that the database adds to its own clock."""

    dsn: str

    async def advance(self, length: timedelta) -> None:
        await self._ask("UPDATE holdfast.meta SET clock_offset = clock_offset + $1 RETURNING 1", length)

    async def now(self) -> datetime:
        now = await self._ask("SELECT holdfast.holdfast_now()")
        assert isinstance(now, datetime)
        return now

    async def _ask(self, sql: str, *values: Any) -> Any:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(sql, *values)
        finally:
            await connection.close()


@dataclass
class SqliteFile:
    """A SQLite file that only this test uses."""

    path: str
    fake: FakeClock = field(default_factory=FakeClock)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def clock(self) -> DatabaseClock:
        return SqliteTime(self.fake)

    def new_store(self) -> Store:
        writing, reading = Threads("test-writer", limit=1), Threads("test-reader", limit=1)
        return SqliteStore(self.path, clock=self.fake, writing=writing, reading=reading)


@dataclass
class PostgresDatabase:
    """A PostgreSQL database that only this test uses."""

    url: str

    @property
    def clock(self) -> DatabaseClock:
        return PostgresTime(self.url)

    def new_store(self) -> Store:
        return PostgresStore(self.url)


async def apply_schema(dsn: str) -> None:
    store = PostgresStore(dsn)
    try:
        await store.apply_schema()
    finally:
        await store.close()


async def create_file(path: Path) -> None:
    store = SqliteFile(str(path)).new_store()
    await store.open()
    await store.close()


class Wiper:
    """Makes the shared database as it was, whatever a test left in it: rows, tables of its own, connections.

    It keeps one connection, on a loop and a thread of its own: to connect takes ten times as long as to wipe.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="test-wiper")

    def wipe(self) -> None:
        self._run(self._wipe())

    def close(self) -> None:
        self._run(self._disconnect())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._thread.submit(self._runner.run, work).result()

    async def _wipe(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._dsn)
        await self._connection.execute(WIPE)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()


WIPE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
UPDATE holdfast.meta SET clock_offset = '0';
DO $$
DECLARE found regclass;
BEGIN
    FOR found IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE 'DROP TABLE ' || found;
    END LOOP;
    FOR found IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'holdfast'::regnamespace
                    AND relname NOT IN ('meta', 'outbox_partitions') LOOP
        EXECUTE 'DELETE FROM ' || found;
    END LOOP;
    UPDATE holdfast.outbox_partitions SET leased_by = NULL, lease_expires_at = NULL WHERE leased_by IS NOT NULL;
END $$;
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the database of this folder the schema."""
    return apply_schema


@pytest.fixture(scope="session")
def shared_dsn(postgres_server: PostgresServer, prepare_postgres: Prepare) -> str:
    """One database for all tests of this folder: making hundreds of them takes longer than the tests."""
    return postgres_server.create_database(prepare_postgres)


@pytest.fixture(scope="session")
def wiper(shared_dsn: str) -> Iterator[Wiper]:
    """What empties that database after each test."""
    made = Wiper(shared_dsn)
    yield made
    made.close()


@pytest.fixture
def postgres_dsn(shared_dsn: str, wiper: Wiper) -> Iterator[str]:
    """The address of a database that is empty but for the schema, and that only this test uses meanwhile."""
    yield shared_dsn
    wiper.wipe()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema: copies of it take a quarter of the time of new files."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, create_file(path)).result()
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """The place where a test's jobs are, once for each store."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), tmp_path / "jobs.db")
        return SqliteFile(str(tmp_path / "jobs.db"))
    return PostgresDatabase(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
def clock(database: Database) -> DatabaseClock:
    """The database's own clock. With `hold` on SQLite it moves for `store` alone: two processes that disagree."""
    return database.clock


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    """A store, open."""
    made = database.new_store()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def other_store(database: Database, store: Store) -> AsyncIterator[Store]:
    """A second store on the same database, with connections of its own."""
    made = database.new_store()
    await made.open()
    yield made
    await made.close()


class Logger:
    """A logger whose lines a test can read."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.writer = StructuredLogger(level="DEBUG", stream=self.stream)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Give what was logged, as JSON objects: all of it, or the lines of one *event*."""
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if event in (None, line["event"])]


@pytest.fixture
def logger() -> Logger:
    """What `hold` logs, from DEBUG upwards."""
    return Logger()


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    """A whole Holdfast whose retries are due at once, three attempts unless a test says otherwise."""
    made = Holdfast(database.url, attempts=3, backoff=Backoff.none(), logger=logger.writer)
    async with made:
        yield made


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """An outside service, which is well. Calls that still wait for it are answered in the end."""
    made = Service()
    yield made
    made.answering.set()
