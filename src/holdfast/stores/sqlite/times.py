"""Instants and lengths as whole microseconds, which SQLite compares and adds exactly."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def micros(instant: datetime) -> int:
    """Count the microseconds from the epoch to *instant*."""
    return (instant - EPOCH) // MICROSECOND


def micros_of(length: timedelta) -> int:
    """Count the microseconds in *length*."""
    return length // MICROSECOND


def instant(count: int | None) -> datetime | None:
    """Read an instant back."""
    return None if count is None else EPOCH + timedelta(microseconds=count)
