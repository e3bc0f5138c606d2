"""Users' own connections, of every kind that `within=` takes, driven alike.

A plain one lives in a thread of its own, as in a web server's request, and submits with `submit_sync`; an
async one is used on the loop. Each kind begins, commits and makes savepoints as its driver does.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import django.conf
import django.db
import psycopg
import psycopg2
from django.db import transaction
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast import Holdfast, JobFunction, JobHandle

INSERT = "INSERT INTO orders VALUES ({})"
SAVEPOINT, RELEASE, ROLLBACK_TO = "SAVEPOINT here", "RELEASE SAVEPOINT here", "ROLLBACK TO SAVEPOINT here"


class Caller(ABC):
    """An application with a transaction, in which it inserts rows of its own. The address is that of the jobs."""

    within: Any

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def run(self, sql: str) -> None: ...

    async def begin(self) -> None:  # noqa: B027 - most drivers begin by themselves
        """Begin a transaction."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    async def insert(self, number: int) -> None:
        await self.run(INSERT.format(number))

    async def savepoint(self) -> None:
        await self.run(SAVEPOINT)

    async def release(self) -> None:
        await self.run(RELEASE)

    async def rollback_to(self) -> None:
        await self.run(ROLLBACK_TO)

    async def submit(self, job: JobFunction[..., Any], *args: Any) -> JobHandle[Any]:
        return await job.options(within=self.within).submit(*args)

    async def submit_many(self, job: JobFunction[..., Any], calls: list[Any]) -> list[JobHandle[Any]]:
        return await job.options(within=self.within).submit_many(calls)

    async def publish(self, hold: Holdfast, message: BaseModel) -> str:
        return await hold.publish(message, within=self.within)


class Plain(ABC):
    """The same for drivers that block; all of it is called in one thread."""

    within: Any

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def open(self) -> None: ...

    def close(self) -> None:
        self.within.close()

    def run(self, sql: str) -> None:
        self.within.execute(sql)

    def begin(self) -> None:  # noqa: B027 - most drivers begin by themselves
        """Begin a transaction."""

    def commit(self) -> None:
        self.within.commit()

    def rollback(self) -> None:
        self.within.rollback()

    def insert(self, number: int) -> None:
        self.run(INSERT.format(number))

    def savepoint(self) -> None:
        self.run(SAVEPOINT)

    def release(self) -> None:
        self.run(RELEASE)

    def rollback_to(self) -> None:
        self.run(ROLLBACK_TO)


class InThread(Caller):
    """A plain caller as the tests see it, in a thread where no loop runs."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain.address)
        self.plain = plain
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="caller")

    async def _do(self, what: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, *args)

    async def open(self) -> None:
        await self._do(self.plain.open)

    async def close(self) -> None:
        await self._do(self.plain.close)
        self._thread.shutdown()

    async def run(self, sql: str) -> None:
        await self._do(self.plain.run, sql)

    async def begin(self) -> None:
        await self._do(self.plain.begin)

    async def commit(self) -> None:
        await self._do(self.plain.commit)

    async def rollback(self) -> None:
        await self._do(self.plain.rollback)

    async def savepoint(self) -> None:
        await self._do(self.plain.savepoint)

    async def release(self) -> None:
        await self._do(self.plain.release)

    async def rollback_to(self) -> None:
        await self._do(self.plain.rollback_to)

    async def submit(self, job: JobFunction[..., Any], *args: Any) -> JobHandle[Any]:
        made: JobHandle[Any] = await self._do(job.options(within=self.plain.within).submit_sync, *args)
        return made

    async def submit_many(self, job: JobFunction[..., Any], calls: list[Any]) -> list[JobHandle[Any]]:
        made: list[JobHandle[Any]] = await self._do(
            job.options(within=self.plain.within).submit_many_sync, calls
        )
        return made

    async def publish(self, hold: Holdfast, message: BaseModel) -> str:
        made: str = await self._do(lambda: hold.publish_sync(message, within=self.plain.within))
        return made


class Sqlite3(Plain):
    """The standard library's driver, which begins a transaction without being asked."""

    def open(self) -> None:
        self.within = sqlite3.connect(self.address)


class Sqlite3ByHand(Plain):
    """The same in autocommit: every BEGIN is the user's own."""

    def open(self) -> None:
        self.within = sqlite3.connect(self.address, isolation_level=None)

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")


class Psycopg(Plain):
    def open(self) -> None:
        self.within = psycopg.connect(self.address)


class PsycopgWithRowsOfItsOwn(Plain):
    """A connection whose cursors take other placeholders and give other rows than the default ones."""

    def open(self) -> None:
        self.within = psycopg.connect(
            self.address,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            row_factory=psycopg.rows.scalar_row,
        )

    def begin(self) -> None:
        self.run("BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")


class Psycopg2(Plain):
    def open(self) -> None:
        self.within = psycopg2.connect(self.address)

    def run(self, sql: str) -> None:
        with self.within.cursor() as cursor:
            cursor.execute(sql)


class SqlAlchemyConnection(Plain):
    """SQLAlchemy's Core; *address* names the driver."""

    def open(self) -> None:
        self.engine = create_engine(self.address, poolclass=NullPool)
        self.within = self.engine.connect()

    def close(self) -> None:
        self.within.close()
        self.engine.dispose()

    def run(self, sql: str) -> None:
        self.within.execute(text(sql))

    def savepoint(self) -> None:
        self.nested = self.within.begin_nested()

    def release(self) -> None:
        self.nested.commit()

    def rollback_to(self) -> None:
        self.nested.rollback()


class SqlAlchemySession(SqlAlchemyConnection):
    """SQLAlchemy's ORM."""

    def open(self) -> None:
        self.engine = create_engine(self.address, poolclass=NullPool)
        self.within = Session(self.engine)


class Django(Plain):
    """Django's `connection`, inside `transaction.atomic`."""

    def open(self) -> None:
        if not django.conf.settings.configured:
            django.conf.settings.configure(USE_TZ=True)
            django.setup()
        handler: Any = django.db.connections
        handler.settings = handler.configure_settings({"default": _django_database(self.address)})
        self.within = django.db.connection

    def close(self) -> None:
        django.db.connection.close()
        del django.db.connections["default"]

    def run(self, sql: str) -> None:
        with django.db.connection.cursor() as cursor:
            cursor.execute(sql)

    def begin(self) -> None:
        self.atomic = transaction.atomic()
        self.atomic.__enter__()

    def commit(self) -> None:
        self.atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    def savepoint(self) -> None:
        self.nested = transaction.savepoint()

    def release(self) -> None:
        transaction.savepoint_commit(self.nested)

    def rollback_to(self) -> None:
        transaction.savepoint_rollback(self.nested)


class DjangoByAlias(Django):
    """One of Django's connections, by its alias."""

    def open(self) -> None:
        super().open()
        self.within = django.db.connections["default"]


def _django_database(address: str) -> dict[str, Any]:
    if not address.startswith("postgresql://"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": address}
    split = urlsplit(address)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": split.path.lstrip("/"),
        "USER": split.username,
        "PASSWORD": split.password,
        "HOST": split.hostname,
        "PORT": split.port,
    }


class Asyncpg(Caller):
    async def open(self) -> None:
        self.within = await asyncpg.connect(self.address)

    async def close(self) -> None:
        await self.within.close()

    async def run(self, sql: str) -> None:
        await self.within.execute(sql)

    async def begin(self) -> None:
        self.transaction = self.within.transaction()
        await self.transaction.start()

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()

    async def savepoint(self) -> None:
        self.nested = self.within.transaction()
        await self.nested.start()

    async def release(self) -> None:
        await self.nested.commit()

    async def rollback_to(self) -> None:
        await self.nested.rollback()


class AsyncpgPool(Asyncpg):
    """A connection that a pool lends."""

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.address, min_size=1, max_size=1)
        self.within = await self.pool.acquire()

    async def close(self) -> None:
        await self.pool.release(self.within)
        await self.pool.close()


class AsyncPsycopg(Caller):
    async def open(self) -> None:
        self.within = await psycopg.AsyncConnection.connect(self.address)

    async def close(self) -> None:
        await self.within.close()

    async def run(self, sql: str) -> None:
        await self.within.execute(sql)

    async def commit(self) -> None:
        await self.within.commit()

    async def rollback(self) -> None:
        await self.within.rollback()


class Aiosqlite(AsyncPsycopg):
    async def open(self) -> None:
        self.within = await aiosqlite.connect(self.address)


class AsyncSqlAlchemyConnection(AsyncPsycopg):
    async def open(self) -> None:
        self.engine = create_async_engine(self.address, poolclass=NullPool)
        self.within = await self.engine.connect()

    async def close(self) -> None:
        await self.within.close()
        await self.engine.dispose()

    async def run(self, sql: str) -> None:
        await self.within.execute(text(sql))

    async def savepoint(self) -> None:
        self.nested = await self.within.begin_nested()

    async def release(self) -> None:
        await self.nested.commit()

    async def rollback_to(self) -> None:
        await self.nested.rollback()


class AsyncSqlAlchemySession(AsyncSqlAlchemyConnection):
    async def open(self) -> None:
        self.engine = create_async_engine(self.address, poolclass=NullPool)
        self.within = AsyncSession(self.engine)


POSTGRES: dict[str, tuple[type[Caller] | type[Plain], str]] = {
    "asyncpg": (Asyncpg, "postgresql"),
    "asyncpg pool": (AsyncpgPool, "postgresql"),
    "psycopg": (Psycopg, "postgresql"),
    "psycopg with rows of its own": (PsycopgWithRowsOfItsOwn, "postgresql"),
    "async psycopg": (AsyncPsycopg, "postgresql"),
    "psycopg2": (Psycopg2, "postgresql"),
    "Session on psycopg": (SqlAlchemySession, "postgresql+psycopg"),
    "Session on psycopg2": (SqlAlchemySession, "postgresql+psycopg2"),
    "Connection on psycopg": (SqlAlchemyConnection, "postgresql+psycopg"),
    "Connection on psycopg2": (SqlAlchemyConnection, "postgresql+psycopg2"),
    "AsyncSession on asyncpg": (AsyncSqlAlchemySession, "postgresql+asyncpg"),
    "AsyncSession on psycopg": (AsyncSqlAlchemySession, "postgresql+psycopg"),
    "AsyncConnection on asyncpg": (AsyncSqlAlchemyConnection, "postgresql+asyncpg"),
    "AsyncConnection on psycopg": (AsyncSqlAlchemyConnection, "postgresql+psycopg"),
    "Django": (Django, "postgresql"),
    "Django by alias": (DjangoByAlias, "postgresql"),
}
"""By name: the caller, and the scheme that it wants its address to have."""

SQLITE: dict[str, tuple[type[Caller] | type[Plain], str]] = {
    "sqlite3": (Sqlite3, ""),
    "sqlite3 by hand": (Sqlite3ByHand, ""),
    "aiosqlite": (Aiosqlite, ""),
    "Session on sqlite3": (SqlAlchemySession, "sqlite:///"),
    "Connection on sqlite3": (SqlAlchemyConnection, "sqlite:///"),
    "AsyncSession on aiosqlite": (AsyncSqlAlchemySession, "sqlite+aiosqlite:///"),
    "AsyncConnection on aiosqlite": (AsyncSqlAlchemyConnection, "sqlite+aiosqlite:///"),
    "Django": (Django, ""),
}


def a_caller(name: str, *, dsn: str | None = None, path: str | None = None) -> Caller:
    """Make the caller of that name for a database: that of *dsn*, or the file at *path*."""
    if dsn is not None:
        kind, scheme = POSTGRES[name]
        address = dsn.replace("postgresql", scheme, 1)
    else:
        kind, scheme = SQLITE[name]
        address = f"{scheme}{path}"
    made = kind(address)
    return InThread(made) if isinstance(made, Plain) else made
