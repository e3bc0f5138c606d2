"""Parses and formats durations on the command line."""

from datetime import datetime, timedelta

import typer

from holdfast.core.durations import duration

UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
ONE_UNIT_FROM = 10
"""From this number on, the next smaller unit is omitted."""


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `1m30s`, or a bare number of seconds.

    >>> parse_duration("90") == parse_duration("1m30s")
    True
    """
    try:
        return duration(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_positive_duration(text: str) -> timedelta:
    """Parse a positive duration."""
    found = parse_duration(text)
    if not found:
        raise typer.BadParameter(f"{text!r} must be positive; write for example 90s")
    return found


def format_duration(value: timedelta) -> str:
    """Format a duration with its two largest units.

    >>> [format_duration(timedelta(seconds=seconds)) for seconds in (0, 42, 250, 5_400, 36_100, 300_000)]
    ['0s', '42s', '4m10s', '1h30m', '10h', '3d11h']
    """
    left = max(int(value.total_seconds()), 0)
    words = ""
    for unit, size in UNITS:
        number, left = divmod(left, size)
        if words:
            return f"{words}{number}{unit}" if number else words
        if number >= ONE_UNIT_FROM:
            return f"{number}{unit}"
        words = f"{number}{unit}" if number else ""
    return words or "0s"


def format_relative(moment: datetime, now: datetime) -> str:
    """Format the distance of *moment* from *now*.

    >>> noon = datetime(2026, 3, 2, 12)
    >>> format_relative(noon, noon - timedelta(seconds=250)), format_relative(noon, noon + timedelta(days=12))
    ('in 4m10s', '12d ago')
    """
    return f"in {format_duration(moment - now)}" if moment > now else f"{format_duration(now - moment)} ago"
