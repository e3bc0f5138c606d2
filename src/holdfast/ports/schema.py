"""The schema of a store's database, and the locks that block its migration."""

from datetime import datetime, timedelta
from typing import NamedTuple


class SchemaState(NamedTuple):
    """The schema that is in the database, beside the one that this code expects."""

    found: int
    expected: int
    min_compatible: int

    @property
    def current(self) -> bool:
        """Whether nothing is left to apply."""
        return self.found >= self.expected


APPLY_LIMIT = timedelta(minutes=10)
"""How long applying the schema is retried while other sessions hold locks on its tables."""


class LockHolder(NamedTuple):
    """A session that holds a lock, as far as the database shows it."""

    pid: int
    application: str
    user: str
    state: str
    since: datetime | None

    def __str__(self) -> str:
        """Describe the session for display.

        >>> str(LockHolder(4711, "pg_dump", "backup", "active", datetime.fromisoformat("2030-01-01T12:00:00Z")))
        "session 4711 ('pg_dump', user backup, active, transaction since 2030-01-01T12:00:00+00:00)"
        """
        known = [repr(self.application)]
        if self.user:
            known.append(f"user {self.user}")
        if self.state:
            known.append(self.state)
        if self.since is not None:
            known.append(f"transaction since {self.since.isoformat(timespec='seconds')}")
        return f"session {self.pid} ({', '.join(known)})"


class LockWait(NamedTuple):
    """Another session holds a lock that applying the schema needs: nothing was changed, and it is retried."""

    holders: tuple[LockHolder, ...]
    waited: timedelta

    def __str__(self) -> str:
        """Describe the locks for display.

        >>> str(LockWait((), timedelta(seconds=3)))
        'a lock that another session holds'
        """
        if not self.holders:
            return "a lock that another session holds"
        return f"a lock that is held by {' and '.join(map(str, self.holders))}"
