"""Answers with status 429, in the formats in which providers say how long to wait."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import assert_never

from holdfast_simulator.faults import Hint, RateLimit
from holdfast_simulator.http import Answer

# The reset of a limit that is not exhausted is irrelevant for the wait; clients must ignore it.
_OTHER_DIMENSION = timedelta(minutes=6)


def rate_limit_answer(fault: RateLimit, *, now: datetime) -> Answer:
    """Build the answer; *now* is the true time, to which the skew of the provider's clock is added.

    >>> now = datetime(2030, 1, 1, tzinfo=UTC)
    >>> dict(rate_limit_answer(RateLimit(Hint.MILLISECONDS), now=now).headers)["retry-after-ms"]
    '1000'
    """
    provider_now = now.astimezone(UTC) + fault.clock_skew
    headers = {"Date": _http_date(provider_now), **_headers(fault, provider_now), **fault.headers}
    return Answer(429, json.dumps(_body(fault)).encode(), headers=headers)


def _headers(fault: RateLimit, now: datetime) -> Mapping[str, str]:  # noqa: PLR0911 - one return for each hint
    seconds = fault.wait.total_seconds()
    match fault.hint:
        case Hint.NONE | Hint.RETRY_INFO:
            return {}
        case Hint.SECONDS:
            return {"Retry-After": str(math.ceil(seconds))}
        case Hint.FLOAT:
            return {"Retry-After": f"{seconds:.3f}"}
        case Hint.HTTP_DATE:
            return {"Retry-After": _http_date(now + timedelta(seconds=math.ceil(seconds)))}
        case Hint.MILLISECONDS:
            return {"retry-after-ms": str(round(seconds * 1000))}
        case Hint.RATELIMIT:
            return _openai_headers(fault.wait)
        case Hint.ANTHROPIC:
            return _anthropic_headers(now, fault.wait)
        case Hint.NONSENSE:
            return {"Retry-After": fault.text}
        case _:
            assert_never(fault.hint)


def _openai_headers(wait: timedelta) -> Mapping[str, str]:
    return {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": short_duration(wait),
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-tokens": short_duration(_OTHER_DIMENSION),
    }


def _anthropic_headers(now: datetime, wait: timedelta) -> Mapping[str, str]:
    return {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": _rfc3339(now + wait),
        "anthropic-ratelimit-tokens-limit": "150000",
        "anthropic-ratelimit-tokens-remaining": "149984",
        "anthropic-ratelimit-tokens-reset": _rfc3339(now + _OTHER_DIMENSION),
    }


def _body(fault: RateLimit) -> Mapping[str, object]:
    if fault.hint is not Hint.RETRY_INFO:
        return {"error": {"type": fault.code, "code": fault.code, "message": "Too many requests"}}
    delay = f"{fault.wait.total_seconds():.9f}s"
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [info]}}


def short_duration(duration: timedelta) -> str:
    """Format a duration as providers do.

    >>> [short_duration(timedelta(seconds=s)) for s in (0.012, 1.5, 360, 3661)]
    ['12ms', '1.5s', '6m0s', '1h1m1s']
    """
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _http_date(instant: datetime) -> str:
    return format_datetime(instant, usegmt=True)


def _rfc3339(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")
