"""Connections to a SQLite file, and what their errors mean to a caller."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import TypeVar

from holdfast.core.errors import ConfigError, SchemaMissing, StoreReadOnly, StoreUnavailable
from holdfast.ports import Executor

T = TypeVar("T")

BUSY_MS = 10_000
OLDEST = (3, 38)
LOG_TRIES = 100
LOG_PAUSE = 0.02
"""Seconds between two attempts to enable the WAL; together they take no longer than the busy timeout."""
NO_SCHEMA = "the file has no Holdfast schema; run `holdfast schema apply`, or call apply_schema()"


def connect(path: str, *, writes: bool) -> sqlite3.Connection:
    """Open the file; every acknowledged write survives a loss of power."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigError(
            f"Python's SQLite is {sqlite3.sqlite_version}, Holdfast needs 3.38 or later; use a newer Python build"
        )
    with translated(path):
        _ensure_folder(path)
        _create_private(path)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        _enable_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if not writes:
            connection.execute("PRAGMA query_only = ON")
    return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, in which writes go to a log beside it.

    Only one connection at a time can do so, and SQLite does not wait here: two connections would deadlock.
    """
    for _ in range(LOG_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            sleep(LOG_PAUSE)
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


async def run_in(executor: Executor, function: Callable[[], T]) -> T:
    """Run *function* in *executor*. Raises `StoreUnavailable` if the machine cannot start a thread."""
    try:
        return await executor.run(function)
    except RuntimeError as error:
        raise StoreUnavailable(f"the SQLite file cannot be reached: {error}") from error


def _ensure_folder(path: str) -> None:
    folder = Path(path).parent
    if not folder.is_dir():
        raise StoreUnavailable(
            f"the folder {str(folder)!r} for the SQLite file does not exist; create it first"
        )


def _create_private(path: str) -> None:
    """Create a missing file with mode 0600: it holds arguments, results and the redaction key.

    SQLite gives its log beside the file the same mode. O_EXCL follows no symbolic link, so a dangling link cannot
    have the file created at a place that an attacker chose. A link to an existing file is the operator's choice.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except FileExistsError:
        if Path(path).is_symlink() and not Path(path).exists():
            raise StoreUnavailable(
                f"{path!r} is a symbolic link to a file that does not exist; create that file, or remove the link"
            ) from None
    except OSError:
        return  # SQLite fails in the same way, and its error is translated


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn the driver's errors into Holdfast's, which say what to do next."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _meaning(error, path) from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise StoreUnavailable(f"{path!r} is not a usable SQLite file: {error}") from error
        raise


def _meaning(error: sqlite3.OperationalError, path: str) -> Exception:
    text = str(error)
    if "no such table" in text:
        return SchemaMissing(NO_SCHEMA)
    if "readonly" in text:
        return StoreReadOnly(f"the SQLite file {path!r} is read-only; make the file and its folder writable")
    if "locked" in text or "busy" in text:
        return StoreUnavailable(
            f"another process holds the write lock of {path!r}; try again when it is done"
        )
    if "is full" in text:
        return StoreUnavailable(
            f"the disk is full that holds the SQLite file {path!r}; free some space on it"
        )
    if "unable to open" in text:
        return StoreUnavailable(f"cannot open the SQLite file {path!r}; check that its folder can be written")
    return StoreUnavailable(f"SQLite cannot go on with {path!r}: {text}")
