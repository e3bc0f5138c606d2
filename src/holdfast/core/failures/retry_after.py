"""How long a service asks callers to wait, read from its answer.

Services state it in many forms, some of them invalid. The first valid source counts; a hint that is
unreadable, infinite, zero or in the past is ignored, and nothing here ever raises.
"""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from holdfast.core.durations import duration

LONGEST = timedelta(days=10_000)
"""Hints beyond this are read as this, so that no sum of an instant and a hint overflows."""


def wait_hint(
    headers: Mapping[str, str] | None = None, body: object = None, *, now: datetime | None = None
) -> timedelta | None:
    """Return the wait that an answer asks for, always positive, or None.

    In this order: `retry-after-ms`; `retry-after` in seconds or as a date; the reset of those
    rate limits whose remainder is zero; the `RetryInfo` of a decoded JSON *body*. Dates count from the answer's
    own `Date` header, so that a skewed clock on either side does no harm; *now* is used where it is missing.

    >>> wait_hint({"Retry-After": "120", "retry-after-ms": "1500"})
    datetime.timedelta(seconds=1, microseconds=500000)
    >>> wait_hint({"Retry-After": "soon"}) is None
    True
    """
    try:
        fields = lowered(headers)
        sent_at = _instant(fields.get("date")) or now
        return next((hint for hint in _hints(fields, body, sent_at) if hint is not None), None)
    except Exception:  # noqa: BLE001 - an invalid hint must not hide the failure it came with
        return None


def should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """Return what the service itself says about a retry in `x-should-retry`, None if the header is absent.

    >>> should_retry({"X-Should-Retry": "false"})
    False
    """
    word = lowered(headers).get("x-should-retry", "").strip().lower()
    return {"true": True, "false": False}.get(word)


def positive(value: timedelta | float | str | None) -> timedelta | None:
    """Return *value* as a positive duration, or None if it is not one.

    >>> [positive(value) for value in (0, -5, float("nan"), "soon", None)]
    [None, None, None, None, None]
    """
    if isinstance(value, timedelta):
        return min(value, LONGEST) if value > timedelta(0) else None
    try:
        seconds = math.nan if value is None or "_" in str(value) else float(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if not math.isfinite(seconds):
        return None
    return positive(timedelta(seconds=max(0.0, min(seconds, LONGEST.total_seconds()))))


def lowered(headers: object) -> dict[str, str]:
    """Return *headers* with names in lower case and plain text values; the first of a repeated name counts."""
    fields: dict[str, str] = {}
    try:
        for name, value in headers.items():  # type: ignore[attr-defined]  # the headers of any client library
            fields.setdefault(_text(name).lower(), _text(value))
    except Exception:  # noqa: BLE001 - headers that cannot be read are ignored
        return fields
    return fields


def _hints(fields: Mapping[str, str], body: object, sent_at: datetime | None) -> Iterator[timedelta | None]:
    milliseconds = positive(fields.get("retry-after-ms"))
    yield None if milliseconds is None else positive(milliseconds / 1000)
    yield positive(fields.get("retry-after"))
    yield _until(_instant(fields.get("retry-after")), sent_at)
    yield max(_exhausted_limits(fields, sent_at), default=None)
    yield _retry_info(_decoded(body))


def _exhausted_limits(fields: Mapping[str, str], sent_at: datetime | None) -> Iterator[timedelta]:
    """Yield when each limit that is used up is filled again; one with something left delays no call."""
    for name, value in fields.items():
        hint = None
        if name.startswith("x-ratelimit-reset-"):
            left = fields.get(name.replace("-reset-", "-remaining-"))
            hint = _parse_duration(value) if _is_zero(left) else None
        elif name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            left = fields.get(name.removesuffix("-reset") + "-remaining")
            hint = _until(_instant(value), sent_at) if _is_zero(left) else None
        if hint is not None:
            yield hint


def _retry_info(body: object, depth: int = 0) -> timedelta | None:
    if depth > 6 or not isinstance(body, Mapping | list):
        return None
    if isinstance(body, Mapping) and str(body.get("@type")).endswith("RetryInfo"):
        return _parse_duration(body.get("retryDelay"))
    inner = body.values() if isinstance(body, Mapping) else body
    return next((hint for part in inner if (hint := _retry_info(part, depth + 1)) is not None), None)


def _decoded(body: object) -> object:
    if not isinstance(body, str | bytes):
        return body
    try:
        decoded: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return decoded


def _parse_duration(text: object) -> timedelta | None:
    try:
        return positive(duration(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _is_zero(text: str | None) -> bool:
    try:
        return text is not None and float(text) == 0
    except ValueError:
        return False


def _until(instant: datetime | None, start: datetime | None) -> timedelta | None:
    return None if instant is None or start is None else positive(instant - start)


def _instant(text: str | None) -> datetime | None:
    """Read an HTTP date or an RFC 3339 instant; one without a zone is UTC."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = read(text or "")
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple) and value:
        return _text(value[0])
    return str(value)
