"""Instants and durations as whole microseconds, which SQLite compares and adds exactly."""

from datetime import UTC, datetime, timedelta
from typing import overload

from holdfast.core.durations import FIRST, LAST

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def micros(instant: datetime) -> int:
    """Return the microseconds from the epoch to *instant*."""
    return (instant - EPOCH) // MICROSECOND


def micros_of(length: timedelta) -> int:
    """Return the microseconds in *length*."""
    return length // MICROSECOND


@overload
def instant(count: int) -> datetime: ...
@overload
def instant(count: None) -> None: ...
def instant(count: int | None) -> datetime | None:
    """Read an instant; one that earlier versions stored beyond the range of `datetime` becomes its maximum."""
    if count is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=count)
    except OverflowError:
        return LAST if count > 0 else FIRST
