"""Which objects `within=` takes: recognised by the names of their classes, so that no driver has to be installed."""

from enum import Enum
from typing import Any

from holdfast.core.errors import WithinUnsupported

ACCEPTED = (
    "a connection of asyncpg, psycopg, psycopg2, sqlite3 or aiosqlite, "
    "a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, or Django's connection"
)


class Kind(Enum):
    """Whose connection it is."""

    ASYNCPG = "an asyncpg connection"
    PSYCOPG = "a psycopg connection"
    PSYCOPG_ASYNC = "an async psycopg connection"
    PSYCOPG2 = "a psycopg2 connection"
    SQLITE3 = "a sqlite3 connection"
    AIOSQLITE = "an aiosqlite connection"
    SQLALCHEMY_SESSION = "a session of SQLAlchemy"
    SQLALCHEMY_CONNECTION = "a connection of SQLAlchemy"
    SQLALCHEMY_ASYNC_SESSION = "an async session of SQLAlchemy"
    SQLALCHEMY_ASYNC_CONNECTION = "an async connection of SQLAlchemy"
    DJANGO = "Django's connection"

    @property
    def awaits(self) -> bool:
        """Whether it can only be used with an event loop."""
        return self in _ASYNC


_ASYNC = {
    Kind.ASYNCPG,
    Kind.PSYCOPG_ASYNC,
    Kind.AIOSQLITE,
    Kind.SQLALCHEMY_ASYNC_SESSION,
    Kind.SQLALCHEMY_ASYNC_CONNECTION,
}

_KINDS = {
    "asyncpg.Connection": Kind.ASYNCPG,
    "asyncpg.PoolConnectionProxy": Kind.ASYNCPG,
    "psycopg.Connection": Kind.PSYCOPG,
    "psycopg.AsyncConnection": Kind.PSYCOPG_ASYNC,
    "psycopg2.connection": Kind.PSYCOPG2,
    "sqlite3.Connection": Kind.SQLITE3,
    "aiosqlite.Connection": Kind.AIOSQLITE,
    "sqlalchemy.Session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.scoped_session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.Connection": Kind.SQLALCHEMY_CONNECTION,
    "sqlalchemy.AsyncSession": Kind.SQLALCHEMY_ASYNC_SESSION,
    "sqlalchemy.async_scoped_session": Kind.SQLALCHEMY_ASYNC_SESSION,
    "sqlalchemy.AsyncConnection": Kind.SQLALCHEMY_ASYNC_CONNECTION,
    "django.ConnectionProxy": Kind.DJANGO,
    "django.BaseDatabaseWrapper": Kind.DJANGO,
}


def kind_of(connection: Any) -> Kind:
    """Return the kind of *connection*, subclasses included. Raises `WithinUnsupported` for anything else.

    >>> import sqlite3
    >>> kind_of(sqlite3.connect(":memory:"))
    <Kind.SQLITE3: 'a sqlite3 connection'>
    """
    for base in type(connection).__mro__:
        kind = _KINDS.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if kind is not None:
            return kind
    raise WithinUnsupported(f"within= got {type(connection).__name__}; it takes {ACCEPTED}")


def wrong_database(kind: Kind, expected: str) -> WithinUnsupported:
    """Return the error for a connection to another kind of database than the one with the jobs."""
    return WithinUnsupported(
        f"within= got {kind.value}, and the jobs are in {expected}; pass a connection to the database of the jobs"
    )


def no_transaction(how: str) -> WithinUnsupported:
    """Return the error for a connection without a transaction, with *how* to open one."""
    return WithinUnsupported(f"within= got a connection that is in no transaction; {how}")


def ensure_blocking(connection: Any, method: str) -> None:
    """Raise `WithinUnsupported` if *connection* needs an event loop, and was given to the `_sync` twin of *method*."""
    kind = kind_of(connection)
    if kind.awaits:
        raise WithinUnsupported(
            f"{method}_sync() got {kind.value}, which can be used on its event loop only; "
            f"write `await {method}(...)` there"
        )
