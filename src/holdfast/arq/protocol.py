"""arq's protocol in Redis: the keys, and the JSON of a call. No pickle is ever written or read."""

import json
from typing import Any

from arq.constants import default_queue_name, in_progress_key_prefix, job_key_prefix, retry_key_prefix

RUN = "holdfast.run"
"""The function that runs a dispatched job."""

TAKE = "holdfast.take"
"""The function that makes a durable job of what a program has enqueued."""

DISPATCH_QUEUE = "holdfast:queue"
"""The sorted set with dispatches, unless a transport names another."""

ENQUEUE_QUEUE = default_queue_name
"""The sorted set in which programs enqueue calls, unless an intake names another."""

DAY_MS = 86_400_000
"""How long Redis keeps a call by default, in milliseconds."""


def job_key(arq_id: str) -> str:
    """Return the key of an enqueued call."""
    return job_key_prefix + arq_id


def retry_key(arq_id: str) -> str:
    """Return the key with the number of tries of a call."""
    return retry_key_prefix + arq_id


def in_progress_key(arq_id: str) -> str:
    """Return the key that exists while a worker runs a call."""
    return in_progress_key_prefix + arq_id


def dump_call(function: str, *args: Any, enqueued_ms: int) -> bytes:
    """Write a call as arq's workers read it with `load_json`.

    >>> dump_call("holdfast.run", "01900000-0000-7000-8000-000000000000", enqueued_ms=1)
    b'{"t":null,"f":"holdfast.run","a":["01900000-0000-7000-8000-000000000000"],"k":{},"et":1}'
    """
    return dump_json({"t": None, "f": function, "a": args, "k": {}, "et": enqueued_ms})


def dump_json(call: dict[str, Any]) -> bytes:
    """Write a call, or its result, as JSON; the `job_serializer` of arq. Raises `TypeError` for what is no JSON."""
    return json.dumps(call, separators=(",", ":"), ensure_ascii=False, default=_describe_error).encode()


def load_json(body: bytes) -> dict[str, Any]:
    """Read a call; the `job_deserializer` of arq. Raises `ValueError` for what is no JSON object."""
    call = json.loads(body)
    if not isinstance(call, dict):
        raise ValueError("an enqueued call must be a JSON object")  # noqa: TRY004 - as for other text that is no call
    return call


def _describe_error(value: object) -> str:
    """Write an exception, which arq stores as the result of a call that failed, as its text."""
    if isinstance(value, BaseException):
        return repr(value)
    raise TypeError(
        f"{type(value).__name__} cannot be written as JSON; pass texts, numbers, lists and mappings"
    )
