"""The inbox: messages of other systems, from their reception to the job that they ask for.

A message is new, or was received before, or is refused. What is refused becomes a dead letter with its raw body, which
is stored in the arguments of a job that hands it to its consumer again.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.failures.failure import ErrorClass, Failure, fingerprint_of
from holdfast.core.jobs import traces
from holdfast.core.jobs.job import Submission
from holdfast.core.jobs.states import Status
from holdfast.core.messages.broker_message import JSON, TRACE_HEADER, VERSION_HEADER, IncomingMessage
from holdfast.core.messages.dead_message import CONSUME, DeadMessage
from holdfast.core.names import LONGEST_NAME
from holdfast.core.strict_json import DEFAULT_LIMIT, encode

LARGEST_BODY = 1_000_000
"""Bytes of a message's body; a larger one is refused."""

LARGEST_STORED = 256_000
"""Bytes of a refused message's body that are stored with its dead letter."""

FIRST_DEATH_REASON = "x-first-death-reason"
FIRST_DEATH_QUEUE = "x-first-death-queue"
FIRST_DEATH_EXCHANGE = "x-first-death-exchange"
"""What RabbitMQ says about a message in a dead-letter queue: why, from which queue, and to which exchange it was sent."""

MOST_HEADERS = 50
LONGEST_HEADER = 500
"""Characters of a header's value that are stored with a refused message."""


class RefusalReason(StrEnum):
    """Why a message was refused. The codes are stored, and never change their meaning."""

    CONTENT_TYPE = "content_type"
    """It is not JSON by its own account. It is never decoded."""
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    """Its body is not strict JSON: no UTF-8, a key twice, a number that is none."""
    VERSION = "version"
    SCHEMA = "schema"
    IDENTITY = "identity"
    """What should identify it is missing, or too long."""
    CONFLICT = "conflict"
    """A message with its id was received before, and said something else. The original stands."""
    CONSUMER_FAILED = "consumer_failed"
    """The consumer's function raised, or its job was refused."""
    DEAD_LETTERED = "dead_lettered"
    """The broker had moved it to a dead-letter queue."""


_CLASSES = {
    RefusalReason.TOO_LARGE: ErrorClass.TOO_LARGE,
    RefusalReason.CONFLICT: ErrorClass.CONFLICT,
    RefusalReason.DEAD_LETTERED: ErrorClass.UNKNOWN,
}


class Refusal(NamedTuple):
    """A message that cannot be accepted: why, and what its dead letter says."""

    reason: RefusalReason
    failure: Failure


class InboxItem(NamedTuple):
    """A message to record: its id, what it says as a fingerprint, and what to write with it.

    *work* is the job that it asks for, a dead letter if it was refused, or nothing.
    """

    message_id: str
    fingerprint: str
    work: Submission | DeadMessage | None = None

    @property
    def job_id(self) -> str | None:
        """The id of the job or of the dead letter's job."""
        return None if self.work is None else self.work.id


class InboxOutcome(StrEnum):
    """What the inbox made of a message."""

    NEW = "new"
    REPEATED = "repeated"
    CONFLICT = "conflict"
    FAILED = "failed"
    """Its function raised, or its job was refused: nothing of it is stored."""


class InboxAnswer(NamedTuple):
    """The store's answer to a message. Of a repeated one, the job and its state; a job that was deleted has none."""

    outcome: InboxOutcome
    job_id: str | None = None
    status: Status | None = None
    error: Exception | None = None


class ReceivedAs(StrEnum):
    """What became of a delivered message."""

    NEW = "new"
    """Its job was stored, or it was recorded, and asks for none."""
    REPEATED = "repeated"
    """It was received before."""
    REFUSED = "refused"
    """It is a dead letter."""
    POSTPONED = "postponed"
    """Its consumer's function raised what may not be raised again: it is received again later."""


class Received(NamedTuple):
    """What became of a delivered message: which job stands for it, or why it was refused or postponed."""

    outcome: ReceivedAs
    message_id: str | None = None
    job_id: str | None = None
    status: Status | None = None
    """The state of the job of a repeated message."""
    refusal: Refusal | None = None
    failure: Failure | None = None
    """Why the consumer's function failed, if it did."""

    @property
    def reason(self) -> RefusalReason | None:
        """Why the message was refused."""
        return None if self.refusal is None else self.refusal.reason


class EarlierMessage(NamedTuple):
    """What the inbox has of a message that was received before."""

    fingerprint: str
    job_id: str | None = None


def compare(item: InboxItem, earlier: EarlierMessage) -> InboxAnswer:
    """Decide on a message whose id is in the inbox.

    One with the very job of *item* was written by an earlier try whose answer was lost, so it is new.
    """
    if earlier.job_id is not None and earlier.job_id == item.job_id:
        return InboxAnswer(InboxOutcome.NEW, earlier.job_id)
    same = earlier.fingerprint == item.fingerprint
    return InboxAnswer(InboxOutcome.REPEATED if same else InboxOutcome.CONFLICT, earlier.job_id)


def refusal_of_envelope(
    message: IncomingMessage, *, version: int, limit: int = LARGEST_BODY
) -> Refusal | None:
    """Refuse a message by what surrounds its body: content type, size, version. `None` means that it may be decoded."""
    if not _is_json(message.content_type):
        return refuse(
            RefusalReason.CONTENT_TYPE,
            message,
            f"the content type is {str(message.content_type)[:50]!r}; publish messages as {JSON}",
        )
    if len(message.body) > limit:
        return refuse(
            RefusalReason.TOO_LARGE,
            message,
            f"the body has {len(message.body):,} bytes, the limit is {limit:,}; "
            "store the data elsewhere and send a reference",
        )
    found = _version(message.headers.get(VERSION_HEADER))
    if found != version:
        return refuse(
            RefusalReason.VERSION,
            message,
            f"the version of its schema is {found or 'unreadable'}, and this consumer knows {version}",
        )
    return None


def refuse(reason: RefusalReason, message: IncomingMessage, why: str) -> Refusal:
    """Refuse a message: *why* quotes no value of its body. A retry without a correction would be refused again.

    >>> refuse(RefusalReason.MALFORMED, IncomingMessage("orders", b"{"), "it is not JSON").failure.retryable
    False
    """
    failure = Failure.of(
        _CLASSES.get(reason, ErrorClass.SCHEMA_INVALID), f"message refused ({reason}): {why}"
    )
    return refusal_from(reason, message, replace(failure, retryable=False))


def refusal_from(reason: RefusalReason, message: IncomingMessage, failure: Failure) -> Refusal:
    """Refuse a message because of *failure*; letters of one reason and one queue are a group."""
    location = str(failure.context.get("place") or reason)
    return Refusal(
        reason,
        replace(
            failure,
            fingerprint=fingerprint_of(failure.error_class, location, job=CONSUME, stage=message.queue),
            context={**failure.context, "reason": str(reason), "queue": message.queue},
        ),
    )


def refused_id(message: IncomingMessage) -> str:
    """Return what identifies a refused message, of whose own id nothing is known: the same bytes are one message."""
    return f"refused:{hashlib.sha256(message.body).hexdigest()}"


def storable_id(message_id: object) -> str | None:
    """Return the id that the sender gave the message; `None` if it gave none that can be stored."""
    fits = isinstance(message_id, str) and 0 < len(message_id) <= LONGEST_NAME and message_id.isprintable()
    return message_id if isinstance(message_id, str) and fits else None


def trace_of(message: IncomingMessage) -> str | None:
    """Return the W3C trace context of a message, which its job continues; any other trace id is the payload's."""
    trace = message.headers.get(TRACE_HEADER)
    text = trace.decode("ascii", "replace") if isinstance(trace, bytes) else trace
    return text if isinstance(text, str) and traces.ids(text) else None


def refusal_of_broker(message: IncomingMessage) -> Refusal:
    """Refuse a message that the broker has moved to a dead-letter queue, for the reason that it names.

    >>> moved = IncomingMessage("grading.dlq", b"{}", headers={"x-first-death-reason": "expired"})
    >>> refusal_of_broker(moved).failure.message
    'message refused (dead_lettered): the broker moved it to a dead-letter queue: expired'
    >>> refusal_of_broker(IncomingMessage("grading.dlq", b"{}")).failure.context["first_death_reason"]
    'unknown'
    """
    why = stored_headers(message.headers).get(FIRST_DEATH_REASON) or "unknown"
    refusal = refuse(
        RefusalReason.DEAD_LETTERED, message, f"the broker moved it to a dead-letter queue: {why}"
    )
    context = {**refusal.failure.context, "first_death_reason": why}
    return refusal._replace(failure=replace(refusal.failure, context=context))


def first_routing_key(headers: Mapping[str, Any]) -> str:
    """Return the routing key with which a dead-lettered message was published; empty if the broker does not say it."""
    deaths = headers.get("x-death")
    keys = (
        deaths[-1].get("routing-keys")
        if isinstance(deaths, list) and deaths and isinstance(deaths[-1], dict)
        else None
    )
    key = keys[0] if isinstance(keys, list) and keys else ""
    text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    return storable_id(text) or ""


def dead_message(job_id: str, consumer: str, message: IncomingMessage, refusal: Refusal) -> DeadMessage:
    """Return the dead letter of a refused message: its job has the raw body, so that it can be corrected and replayed."""
    body, encoding, truncated = stored_body(message.body)
    args = {
        "consumer": consumer,
        "body": body,
        "encoding": encoding,
        "truncated": truncated,
        "message_id": storable_id(message.id),
        "headers": stored_headers(message.headers),
        "routing_key": first_routing_key(message.headers),
    }
    text = encode(args, what="a refused message", limit=2 * DEFAULT_LIMIT)
    return DeadMessage(job_id, CONSUME, text, refusal.failure, trace_of(message))


def stored_body(body: bytes) -> tuple[str, str, bool]:
    r"""Return a body as text, how it is encoded, and whether it was cut.

    >>> stored_body(b'{"n":1}')
    ('{"n":1}', 'utf-8', False)
    >>> stored_body(b"\x80\x04")
    ('gAQ=', 'base64', False)
    """
    kept = body[:LARGEST_STORED]
    truncated = len(kept) < len(body)
    try:
        text = kept.decode()
    except UnicodeDecodeError as error:
        # The cut may have split a character of a text.
        if not (truncated and error.start >= len(kept) - 3):
            return base64.b64encode(kept).decode(), "base64", truncated
        text = kept[: error.start].decode()
    if "\0" in text:  # PostgreSQL cannot store it as text
        return base64.b64encode(kept).decode(), "base64", truncated
    return text, "utf-8", truncated


def body_from(body: str, encoding: str) -> bytes:
    r"""Return the bytes of a stored body. Raises `ValueError` if it is not what *encoding* says.

    >>> body_from("gAQ=", "base64")
    b'\x80\x04'
    """
    return base64.b64decode(body, validate=True) if encoding == "base64" else body.encode()


def stored_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that can be stored as short texts; tables and lists are left out."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if isinstance(text, str | int | float) and len(found) < MOST_HEADERS:
            kept = str(text)[:LONGEST_HEADER]
            if storable_id(str(name)) is not None and kept.isprintable():
                found[str(name)] = kept
    return found


def _is_json(content_type: str | None) -> bool:
    """Whether the sender says that it is JSON, or says nothing: then the body decides, and is decoded as JSON only."""
    return not content_type or str(content_type).partition(";")[0].strip().lower() == JSON


def _version(header: object) -> int | None:
    if header is None:
        return 1
    text = header.decode("ascii", "replace") if isinstance(header, bytes) else str(header)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
