"""The faults of a call: each is a value, and says at which `Moment` it is injected.

A client cannot see whether a fault was injected before or after the effect: a connection that is
lost after the effect looks like one that is lost before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar


class Moment(StrEnum):
    """How far the provider processes a call before the fault is injected."""

    BEFORE_READING = "before_reading"
    BEFORE_EFFECT = "before_effect"
    AFTER_EFFECT = "after_effect"


class Hint(StrEnum):
    """The formats in which providers say how long to wait."""

    NONE = "none"
    SECONDS = "seconds"
    FLOAT = "float"
    HTTP_DATE = "http_date"
    MILLISECONDS = "milliseconds"
    RATELIMIT = "ratelimit"
    ANTHROPIC = "anthropic"
    RETRY_INFO = "retry_info"
    NONSENSE = "nonsense"


class _Answering:
    """A fault that ends in an answer, and so has read the request."""

    __slots__ = ()
    kind: ClassVar[str]
    at: Moment

    def __post_init__(self) -> None:
        # An answer to an unread request must close the connection, and the kernel may then
        # drop the answer: the fault would sometimes be a different one.
        if self.at is Moment.BEFORE_READING:
            raise ValueError(
                f"{self.kind} cannot be injected before_reading: choose before_effect or after_effect"
            )


@dataclass(frozen=True, slots=True)
class Status(_Answering):
    """Answer with this status. A string *body* is sent unchanged, any other as JSON."""

    kind: ClassVar[str] = "status"
    status: int = 503
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class RateLimit(_Answering):
    """Answer 429, with *wait* in the format of *hint*.

    *text* is the `Retry-After` of a nonsense hint, such as `soon`, `-5` or `NaN`. *clock_skew*
    is how far the provider's clock is ahead; it shifts the `Date` header and all other dates.
    """

    kind: ClassVar[str] = "rate_limit"
    hint: Hint = Hint.SECONDS
    wait: timedelta = timedelta(seconds=1)
    text: str = "soon"
    code: str = "rate_limit_exceeded"
    clock_skew: timedelta = timedelta(0)
    headers: Mapping[str, str] = field(default_factory=dict)
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Slow(_Answering):
    """Answer normally, after *delay*. The effect takes place even if the client has disconnected."""

    kind: ClassVar[str] = "slow"
    delay: timedelta = timedelta(seconds=1)
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer; keep the connection until the client closes it."""

    kind: ClassVar[str] = "hang"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection: the client gets a TCP RST instead of an answer.

    Before reading means with the body unread, so a long upload fails in the middle; a script
    with a rule that matches bodies reads them first.
    """

    kind: ClassVar[str] = "reset"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection normally, without an answer."""

    kind: ClassVar[str] = "close"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Truncate:
    """Do the effect, announce the complete answer, send *keep* bytes of its body (or half) and close."""

    kind: ClassVar[str] = "truncate"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Drip:
    """Do the effect, send the head of the answer at once, and its body byte by byte with a *pause* before each.

    No single read takes long, so a timeout for each read does not bound the call.
    """

    kind: ClassVar[str] = "drip"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT
    pause: timedelta = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Flood:
    """Do the effect, answer 200 with the content type of JSON, and send an endless body until the client disconnects."""

    kind: ClassVar[str] = "flood"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class WrongSchema(_Answering):
    """Answer 200 with JSON of an unexpected schema."""

    kind: ClassVar[str] = "wrong_schema"
    body: object = field(default_factory=lambda: {"unexpected": True})
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class InvalidJson(_Answering):
    """Answer 200 with the content type of JSON, and send *text*, which is not JSON."""

    kind: ClassVar[str] = "invalid_json"
    text: str = '{"id": "eff_'
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class OverloadedStream(_Answering):
    """Answer 200, start a stream of events, and end it with an `overloaded_error`."""

    kind: ClassVar[str] = "overloaded_stream"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reset all connections and refuse new ones for *duration*; then listen on the same port again."""

    kind: ClassVar[str] = "refuse"
    at: ClassVar[Moment] = Moment.BEFORE_READING
    duration: timedelta = timedelta(seconds=1)


Fault = (
    Status
    | RateLimit
    | Slow
    | Hang
    | Reset
    | Close
    | Truncate
    | Drip
    | Flood
    | WrongSchema
    | InvalidJson
    | OverloadedStream
    | Refuse
)

FAULTS: Mapping[str, type[Fault]] = {
    fault.kind: fault
    for fault in (
        Status,
        RateLimit,
        Slow,
        Hang,
        Reset,
        Close,
        Truncate,
        Drip,
        Flood,
        WrongSchema,
        InvalidJson,
        OverloadedStream,
        Refuse,
    )
}

DOWN = Status(503)
