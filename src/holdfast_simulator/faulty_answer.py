"""The answers of calls with a fault."""

import json
from datetime import datetime
from http import HTTPStatus
from typing import assert_never

from holdfast_simulator.faults import (
    Close,
    Drip,
    Fault,
    Flood,
    Hang,
    InvalidJson,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Slow,
    Status,
    Truncate,
    WrongSchema,
)
from holdfast_simulator.http import Answer, error_answer, event, events_answer, json_answer
from holdfast_simulator.rate_limits import rate_limit_answer


def faulty_answer(fault: Fault, answer: Answer | None, *, now: datetime) -> Answer | None:  # noqa: PLR0911 - one return for each fault
    """Return the answer that is sent instead of *answer*, or None if none is sent."""
    match fault:
        case Hang() | Reset() | Close() | Refuse():
            return None
        case Slow() | Truncate() | Drip():
            return answer
        case Flood():
            return Answer(200)
        case Status():
            return _status_answer(fault)
        case RateLimit():
            return rate_limit_answer(fault, now=now)
        case WrongSchema():
            return json_answer(200, fault.body)
        case InvalidJson():
            return Answer(200, fault.text.encode())
        case OverloadedStream():
            return _overloaded_stream()
        case _:
            assert_never(fault)


def _status_answer(fault: Status) -> Answer:
    match fault.body:
        case None:
            plain = error_answer(fault.status, _error_code(fault.status), f"scripted {fault.status}")
            return Answer(fault.status, plain.body, headers=fault.headers)
        case str() as text:
            return Answer(fault.status, text.encode(), content_type="text/plain", headers=fault.headers)
        case value:
            return Answer(fault.status, json.dumps(value).encode(), headers=fault.headers)


def _error_code(status: int) -> str:
    try:
        return HTTPStatus(status).name.lower()
    except ValueError:
        return "overloaded_error" if status == 529 else "error"


def _overloaded_stream() -> Answer:
    choice = {"index": 0, "delta": {"content": "Answer "}, "finish_reason": None}
    first = {"id": "chatcmpl-overloaded", "object": "chat.completion.chunk", "choices": [choice]}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return events_answer(event(first), event(error, name="error"))
