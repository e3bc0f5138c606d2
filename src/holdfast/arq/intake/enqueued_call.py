"""What a program has enqueued: the raw body until it is examined, then the call of an exposed job."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from arq.utils import timestamp_ms
from pydantic import BaseModel, ConfigDict, Field, StrictStr, model_validator

from holdfast.app.job_function import JobCall, JobFunction
from holdfast.arq.protocol import DAY_MS, TAKE
from holdfast.core.errors import PayloadInvalid
from holdfast.core.messages.broker_message import JSON, IncomingMessage

PICKLE = "application/x-python-pickle"
"""The content type of a body that arq's default serialiser has written."""

LATEST_MS = 32_503_680_000_000
"""The year 3000: a time of enqueueing after it is not to be believed."""

DEADLINE_TOLERANCE_MS = 600_000
"""How much a time to live may differ from arq's default and still be no choice of the producer: clocks differ."""


class EnqueuedBody:
    """A body as Redis had it. Its representation, which arq logs, shows nothing of it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __repr__(self) -> str:
        return f"{len(self.raw)} bytes"


def load_body(raw: bytes) -> dict[str, Any]:
    """Return a call of `holdfast.take` with the body; the `job_deserializer` of an intake. It never raises.

    arq deletes what its deserialiser refuses, and what names a function that it does not know. So every body is a call
    of the one function that it does know, and nothing in the body reaches arq's own code.
    """
    return {"t": None, "f": TAKE, "a": (EnqueuedBody(raw),), "k": {}, "et": enqueued_at_ms(raw)}


def enqueued_at_ms(raw: bytes) -> int:
    """Return when a call was enqueued, by its own account; now if it does not say so.

    >>> enqueued_at_ms(b'{"et": 1700000000000}')
    1700000000000
    """
    try:
        found = json.loads(raw)["et"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return timestamp_ms()
    return found if type(found) is int and 0 < found < LATEST_MS else timestamp_ms()


def incoming(
    queue: str, arq_id: str, raw: bytes, headers: Mapping[str, Any] | None = None
) -> IncomingMessage:
    """Return a body as a message of the inbox. A pickle is declared as such, and so it is never decoded."""
    content_type = PICKLE if raw.startswith(b"\x80") else JSON
    return IncomingMessage(queue, raw, id=arq_id, content_type=content_type, headers=dict(headers or {}))


def chosen_lifetime_ms(lifetime_ms: int, *, score_ms: int, enqueued_ms: int, now_ms: int) -> int | None:
    """Return how long a call is worth running, if its producer chose that with `_expires`; `None` for arq's default.

    *lifetime_ms* is what is left of the time to live of its key; negative if it has none. *enqueued_ms* is what the
    producer says; if that is wrong, a lifetime of about a day still counts as the default.

    >>> chosen_lifetime_ms(86_399_000, score_ms=1_000, enqueued_ms=1_000, now_ms=2_000)
    >>> chosen_lifetime_ms(59_000, score_ms=1_000, enqueued_ms=1_000, now_ms=2_000)
    59000
    """
    if lifetime_ms < 0:
        return None
    latest = now_ms + lifetime_ms
    defaults = (DAY_MS + max(score_ms, start) for start in (enqueued_ms, now_ms))
    return None if any(abs(latest - each) <= DEADLINE_TOLERANCE_MS for each in defaults) else lifetime_ms


class EnqueuedCall(BaseModel):
    """A call in arq's protocol. Reading it checks that the function is exposed, and takes these arguments."""

    model_config = ConfigDict(extra="ignore")
    exposed: ClassVar[Mapping[str, JobFunction[..., Any]]] = {}

    f: StrictStr
    a: list[Any] = Field(default_factory=list)
    k: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ensure_callable(self) -> "EnqueuedCall":
        self.call()
        return self

    def call(self) -> JobCall[Any]:
        """Return the call of the job. Raises `PayloadInvalid`, which quotes no argument."""
        job = self.exposed.get(self.f)
        if job is None:
            known = ", ".join(self.exposed)
            raise PayloadInvalid(
                f"no function of this name is exposed; those that are: {known}. Correct `f`, or expose the job"
            )
        return job.call(*self.a, **self.k)


def enqueued_calls_of(jobs: Mapping[str, JobFunction[..., Any]]) -> type[EnqueuedCall]:
    """Return the model of calls of *jobs*, by the names under which they are exposed."""
    return type("EnqueuedCall", (EnqueuedCall,), {"exposed": dict(jobs), "__module__": __name__})
