"""Converts rows of a SQLite file to values."""

from typing import Any

from holdfast.core.jobs.job import Job
from holdfast.stores import rows
from holdfast.stores.letter_rows import is_instant
from holdfast.stores.rows import Row
from holdfast.stores.sqlite.times import instant

_INSTANTS = [
    "created_at",
    "queued_at",
    "updated_at",
    "started_at",
    "last_attempt_at",
    "retry_after",
    "lease_expires_at",
    "finished_at",
    "deadline_at",
    "timed_out_at",
    "late_at",
    "purged_at",
]


def job_from(row: Row) -> Job:
    """Read a job from the columns of `get` and `find`."""
    fields = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    return rows.job_from(fields | {name: instant(fields[name]) for name in _INSTANTS if name in fields})


def with_instants(row: Row) -> dict[str, Any]:
    """Return a row with its instants as `datetime`, and bytes as text."""
    return {
        name: instant(row[name]) if is_instant(name) else _text(row[name])
        for name in row.keys()  # noqa: SIM118 - a driver's row is no mapping
    }


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
