"""The database file of a simulated world: its disk may fail, and its connections know which tables were written."""

from __future__ import annotations

import re
import sqlite3
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from unittest import mock

from tests.simulation.processes import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE|CREATE|ALTER|DROP)\b", re.IGNORECASE)
_TABLE = re.compile(r"\bholdfast_\w+", re.IGNORECASE)


class File(sqlite3.Connection):
    """A connection to a file on a disk that may fail, in the middle of a transaction or at its end.

    Once closed, or when its process is dead, another process gets it that opens the same file: to read the schema and
    to prepare all statements again would take a fifth of a world's time.
    """

    good_statements: ClassVar[int | None] = None
    """How many statements the disk still takes before one fails; `None` if none does."""
    written: ClassVar[set[str]] = set()
    """The tables that statements may have written since this was last emptied."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._closed = False
        self._process = PROCESS.get()

    @property
    def is_free(self) -> bool:
        """Whether nothing will use it any more."""
        unused = self._closed or (self._process is not None and not self._process.alive)
        return unused and not self.in_transaction

    def reopen(self) -> File:
        """Be as new, for the process that opens it now."""
        self._closed, self._process, self.row_factory = False, PROCESS.get(), None
        super().execute("PRAGMA query_only = OFF")
        return self

    def close(self) -> None:
        """Let another process have it."""
        self._closed = True

    def close_for_good(self) -> None:
        """Let go of the file."""
        super().close()

    def execute(self, *args: Any) -> sqlite3.Cursor:
        """Run a statement, unless this is the one that fails."""
        self._wear(args[0])
        return super().execute(*args)

    def cursor(self, *_: Any) -> FileCursor:  # type: ignore[override]  # no caller asks for another kind
        """Give a cursor, as code has it that runs statements on a caller's connection."""
        return super().cursor(FileCursor)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        """Run a statement for many rows, unless this is the one that fails."""
        self._wear(args[0])
        return super().executemany(*args)

    @staticmethod
    def _wear(sql: str) -> None:
        if File.good_statements is not None:
            File.good_statements -= 1
            if File.good_statements < 0:
                File.good_statements = None
                raise sqlite3.OperationalError("disk I/O error")
        File.written |= _written_by(sql)


class FileCursor(sqlite3.Cursor):
    """A cursor whose writes are known as well; no disk fails under it."""

    def execute(self, *args: Any) -> FileCursor:
        """Run a statement."""
        File.written |= _written_by(args[0])
        return super().execute(*args)


@cache
def _written_by(sql: str) -> frozenset[str]:
    """Name the tables that a statement may write: all that it mentions, unless it only reads."""
    return _tables_in(sql) if _WRITES.search(sql) else frozenset()


@cache
def _tables_in(sql: str) -> frozenset[str]:
    return frozenset(_TABLE.findall(sql.lower()))


class Tables:
    """The tables of a file as they stand. Only those are read again that may have been written since the last look.

    A world commits thousands of times, and most commits write one table of a dozen. What a statement may write is
    taken from its text, and from the triggers on the tables that it mentions: too much rather than too little.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = 0
        self._written: frozenset[str] = frozenset()
        self._triggers: dict[str, frozenset[str]] = {}
        self._kept: dict[str, Any] = {}

    def changed(self) -> bool:
        """Whether anything was committed since this was last asked; from now on, that is what is read."""
        [version] = self._connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return False
        self._version = version
        if not File.written:
            self._kept.clear()  # written without having been seen
        self._written = self._with_triggers(File.written)
        File.written = set()
        return True

    def may_differ(self, table: str) -> bool:
        """Whether a table may have been written between the last two commits that were looked at."""
        return not self._written or table in self._written

    def read(self, sql: str, collect: Callable[[sqlite3.Cursor], T]) -> T:
        """Give what *collect* makes of the rows: the same object as before, if no row can have changed."""
        if sql not in self._kept or not self._written.isdisjoint(_tables_in(sql)):
            self._kept[sql] = collect(self._connection.execute(sql))
        kept: T = self._kept[sql]
        return kept

    def _with_triggers(self, tables: set[str]) -> frozenset[str]:
        """Add the tables that triggers write when *tables* are written."""
        if not self._triggers:
            found = self._connection.execute("SELECT tbl_name, sql FROM sqlite_master WHERE type = 'trigger'")
            for table, sql in found:
                self._triggers[table] = self._triggers.get(table, frozenset()) | _tables_in(sql)
        reached, left = set(tables), list(tables)
        while left:
            new = self._triggers.get(left.pop(), frozenset()) - reached
            reached |= new
            left += new
        return frozenset(reached)


@contextmanager
def failing_files() -> Iterator[None]:
    """Let every connection that is opened be a `File`."""
    connect, opened = sqlite3.connect, list[tuple[Any, File]]()

    def open_file(*args: Any, **kwargs: Any) -> File:
        asked = (args, kwargs)
        free = next((file for how, file in opened if file.is_free and how == asked), None)
        if free is not None:
            return free.reopen()
        opened.append((asked, connect(*args, **kwargs, factory=File)))
        return opened[-1][1]

    with mock.patch("sqlite3.connect", open_file):
        try:
            yield
        finally:
            for _, file in opened:
                file.close_for_good()
            File.written = set()
