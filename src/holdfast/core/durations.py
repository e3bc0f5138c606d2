"""Lengths of time as people write them: `90`, `"90s"`, `"1m30s"`, `timedelta(seconds=90)`."""

import re
from datetime import timedelta

Length = timedelta | float | str
"""What the library accepts wherever it asks for a length: a number means seconds."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|µs|ms|s|m|h|d)")


def duration(value: Length) -> timedelta:
    """Return *value* as a length of time, zero or longer.

    A number counts seconds. Text is one number with its unit (`ms`, `s`, `m`, `h`, `d`) or several
    in a row. Raises `ValueError` for anything else, a negative or endless length included.

    >>> duration("1h30m")
    datetime.timedelta(seconds=5400)
    >>> duration(0.25) == duration("250ms")
    True
    """
    if isinstance(value, timedelta):
        length = value
    elif isinstance(value, str):
        length = _from_seconds(_spelled(value), value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        length = _from_seconds(value, value)
    else:
        raise ValueError(_unclear(value))  # noqa: TRY004 - one exception for everything that is no length

    if length < timedelta(0):
        raise ValueError(f"A length of time cannot be negative, but {value!r} is")
    return length


def _spelled(text: str) -> float:
    compact = text.strip().lower().replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(_unclear(text))
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _from_seconds(seconds: float, value: object) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise ValueError(f"A length of time has to be a number with an end, but {value!r} is not") from None


def _unclear(value: object) -> str:
    return f"Not a length of time: {value!r}. Write seconds as a number, or text such as '250ms', '30s', '5m', '1h30m', '3d'"
