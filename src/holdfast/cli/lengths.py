"""Lengths of time on the command line."""

from datetime import timedelta

import typer

from holdfast.core.durations import duration


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
