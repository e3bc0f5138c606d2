"""Lengths of time on the command line, read and written."""

from datetime import datetime, timedelta

import typer

from holdfast.core.durations import duration

UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
A_FEW = 10
"""From so many on, the next smaller unit is not worth its room."""


def length(text: str) -> timedelta:
    """Read `90s`, `1m30s`, or a bare number of seconds.

    >>> length("90") == length("1m30s")
    True
    """
    try:
        return duration(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def positive_length(text: str) -> timedelta:
    """Read a length that is more than nothing."""
    found = length(text)
    if not found:
        raise typer.BadParameter(f"{text!r} is no time at all; write for example 90s")
    return found


def brief(length: timedelta) -> str:
    """Write a length as people say it.

    >>> [brief(timedelta(seconds=seconds)) for seconds in (0, 42, 250, 5_400, 36_100, 300_000)]
    ['0s', '42s', '4m10s', '1h30m', '10h', '3d11h']
    """
    left = max(int(length.total_seconds()), 0)
    words = ""
    for unit, size in UNITS:
        number, left = divmod(left, size)
        if words:
            return f"{words}{number}{unit}" if number else words
        if number >= A_FEW:
            return f"{number}{unit}"
        words = f"{number}{unit}" if number else ""
    return words or "0s"


def from_now(moment: datetime, now: datetime) -> str:
    """Write how far away *moment* is.

    >>> noon = datetime(2026, 3, 2, 12)
    >>> from_now(noon, noon - timedelta(seconds=250)), from_now(noon, noon + timedelta(days=12))
    ('in 4m10s', '12d ago')
    """
    return f"in {brief(moment - now)}" if moment > now else f"{brief(now - moment)} ago"
