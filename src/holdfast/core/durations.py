"""Durations as users write them: `90`, `"90s"`, `"1m30s"`, `timedelta(seconds=90)`, and instants.

What passes here can be added to the present time, stored by every store, and read back.
"""

import re
from datetime import UTC, datetime, timedelta

Duration = timedelta | float | str
"""The types that the library accepts as a duration: a number means seconds."""

LONGEST = timedelta(days=36_500)
"""The longest duration: with it, no sum with the present time leaves the range of a store."""

FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""The range of instants: within that of `datetime`, in any time zone."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|µs|ms|s|m|h|d)")


def duration(value: Duration) -> timedelta:
    """Return *value* as a duration, zero or longer.

    A number counts seconds. Text is one number with its unit (`ms`, `s`, `m`, `h`, `d`) or several
    in a row. Raises `ValueError` for anything else, a negative duration and one above 36,500 days included.

    >>> duration("1h30m")
    datetime.timedelta(seconds=5400)
    >>> duration(0.25) == duration("250ms")
    True
    """
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, str):
        result = _from_seconds(_parse(value), value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = _from_seconds(value, value)
    else:
        raise ValueError(_unclear(value))  # noqa: TRY004 - one exception for everything that is no duration

    if result < timedelta(0):
        raise ValueError(f"A duration must not be negative, but {value!r} is")
    if result > LONGEST:
        raise ValueError(f"A duration is at most {LONGEST.days:,} days, but {value!r} is more")
    return result


def parse_durations(fields: object, *names: str) -> None:
    """Replace these fields of a frozen dataclass, given in any form, by their `timedelta`; `None` stays.

    Raises `ValueError` as `duration` does.
    """
    for name in names:
        given = getattr(fields, name)
        if given is not None:
            object.__setattr__(fields, name, duration(given))


def instant_in_utc(instant: datetime) -> datetime:
    """Return *instant* in UTC. Raises `ValueError` for one without a time zone, or at an end of the calendar.

    >>> instant_in_utc(datetime.fromisoformat("2030-01-01T12:00:00+02:00"))
    datetime.datetime(2030, 1, 1, 10, 0, tzinfo=datetime.timezone.utc)
    """
    if instant.utcoffset() is None:
        raise ValueError("must have a time zone; use an aware datetime")
    # Compared first: near the ends of the calendar the conversion itself would overflow.
    if not FIRST <= instant <= LAST:
        raise ValueError(
            f"must lie between {FIRST.date()} and {LAST.date()} in UTC, not at {instant.isoformat()}"
        )
    return instant.astimezone(UTC)


def _parse(text: str) -> float:
    compact = text.strip().lower().replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(_unclear(text))
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _from_seconds(seconds: float, value: object) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise ValueError(f"A duration must be finite, but {value!r} is not") from None


def _unclear(value: object) -> str:
    return f"Not a duration: {value!r}. Write seconds as a number, or text such as '250ms', '30s', '5m', '1h30m', '3d'"
