"""What can go wrong with one call: each fault is a value, and says when it strikes.

A fault strikes at a `Moment`. What matters to a client is on which side of the effect that
moment lies: a connection that is lost after the effect looks just like one lost before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar


class Moment(StrEnum):
    """How far the provider gets with a call before its fault strikes."""

    BEFORE_READING = "before_reading"
    BEFORE_EFFECT = "before_effect"
    AFTER_EFFECT = "after_effect"


class Hint(StrEnum):
    """The ways in which providers say how long to wait."""

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
        # drop the answer: a fault that is sometimes another fault is no use in a script.
        if self.at is Moment.BEFORE_READING:
            raise ValueError(
                f"{self.kind} cannot strike before_reading: choose before_effect or after_effect"
            )


@dataclass(frozen=True, slots=True)
class Status(_Answering):
    """Answer with this status. A text *body* is sent as it stands, any other as JSON."""

    kind: ClassVar[str] = "status"
    status: int = 503
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class RateLimit(_Answering):
    """Answer 429, with *wait* told in the form that *hint* names.

    *text* is the `Retry-After` of a nonsense hint, such as `soon`, `-5` or `NaN`. *clock_skew*
    is how far the provider's clock runs ahead; it moves the `Date` header and every date alike.
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
    """Answer as usual, but wait first. The effect takes place even if the client has left."""

    kind: ClassVar[str] = "slow"
    delay: timedelta = timedelta(seconds=1)
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer; keep the connection until the client leaves."""

    kind: ClassVar[str] = "hang"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection: the client sees a TCP RST in place of an answer.

    Before reading means with the body unread, so a long upload breaks in the middle; a script
    with a rule that looks into bodies has to read them first.
    """

    kind: ClassVar[str] = "reset"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection in good order, without an answer."""

    kind: ClassVar[str] = "close"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Truncate:
    """Do the effect, announce the whole answer, send *keep* bytes of its body (or half) and close."""

    kind: ClassVar[str] = "truncate"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Drip:
    """Do the effect, send the head of the answer at once, and its body byte by byte with a *pause* before each.

    No single wait is long, so a client that only limits each of them waits for all.
    """

    kind: ClassVar[str] = "drip"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT
    pause: timedelta = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Flood:
    """Do the effect, answer 200, call it JSON, and send more and more of it until the client leaves."""

    kind: ClassVar[str] = "flood"
    at: ClassVar[Moment] = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class WrongSchema(_Answering):
    """Answer 200 with JSON of a shape that nobody expects."""

    kind: ClassVar[str] = "wrong_schema"
    body: object = field(default_factory=lambda: {"unexpected": True})
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class InvalidJson(_Answering):
    """Answer 200, call it JSON, and send *text*, which is not."""

    kind: ClassVar[str] = "invalid_json"
    text: str = '{"id": "eff_'
    at: Moment = Moment.AFTER_EFFECT


@dataclass(frozen=True, slots=True)
class OverloadedStream(_Answering):
    """Answer 200, begin a stream of events, and break it off with an `overloaded_error`."""

    kind: ClassVar[str] = "overloaded_stream"
    at: Moment = Moment.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Refuse:
    """Cut every connection and refuse new ones for *duration*; then listen on the same port again."""

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
