"""Turns a message of the application into a message of the outbox."""

import json
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID, uuid5

from pydantic import BaseModel

from holdfast.core.errors import PayloadInvalid
from holdfast.core.jobs.traces import ids
from holdfast.core.messages.broker_message import TRACE_HEADER, VERSION_HEADER
from holdfast.core.messages.outbox import LONGEST_FIELD, NewMessage
from holdfast.core.strict_json import encode, ensure_storable, fingerprint
from holdfast.engine.messages.message_type import MessageType, Payload

LARGEST_HEADERS = 16_000
"""Bytes of all headers of a message: brokers accept little more."""

_KEYED = UUID("8c6d1a43-9d5c-4c0f-9e0b-6f3a5a1f7c11")
"""The namespace of the ids of messages that have a key: another attempt makes the same id of it."""


class Aggregate(NamedTuple):
    """What messages are about: those of one aggregate are published in order."""

    type: str
    id: str


class Reply(NamedTuple):
    """A message that answers a request, with the routing key that the request names for it."""

    message: BaseModel
    to: str | None


def new_message(
    message_type: MessageType,
    message: BaseModel,
    *,
    id: str,  # noqa: A002 - as in the outbox
    aggregate: str | None = None,
    otherwise: Aggregate | None = None,
    headers: Mapping[str, str] | None = None,
    reply_to: str | None = None,
    key: str | None = None,
    job_id: str | None = None,
    trace: str | None = None,
) -> NewMessage:
    """Return *message* as it is stored in the outbox. Raises `PayloadInvalid`, `PayloadTooLarge`.

    Its aggregate is the given one, or the value of the field that its type declares, or else *otherwise*; with none of
    them, the message is an aggregate of its own. The routing key *reply_to* is followed only if its type allows it.
    """
    payload, fields = message_type.dump_with_fields(message)
    what = f"message {message_type.name!r}"
    about = (
        _aggregate(message_type, fields, aggregate, what)
        or otherwise
        or Aggregate(message_type.aggregate_type, id)
    )
    for part, text in (("type", about.type), ("id", about.id)):
        if not 1 <= len(text) <= LONGEST_FIELD:
            raise PayloadInvalid(
                f"{what} has an aggregate {part} of {len(text)} characters; it must have 1 to {LONGEST_FIELD}"
            )
    return NewMessage(
        id=id,
        aggregate_type=about.type,
        aggregate_id=about.id,
        message_type=message_type.name,
        payload=payload,
        message_id=message_type.message_id(fields),
        headers=_headers(message_type, headers or {}, trace, what),
        routing_key=reply_to if reply_to in message_type.reply_to else None,
        key=key,
        job_id=job_id,
        trace=trace,
    )


def _aggregate(message_type: MessageType, payload: Payload, given: str | None, what: str) -> Aggregate | None:
    """Return the aggregate that was given, or that the message names in its declared field."""
    found = message_type.aggregate_id(payload) if given is None else given
    if found is None:
        return None
    if not isinstance(found, str):
        raise PayloadInvalid(f"aggregate={found!r} of {what} must be text")
    ensure_storable(aggregate=found)
    return Aggregate(message_type.aggregate_type, found)


def keyed(message: NewMessage, key: str, *, job_id: str) -> NewMessage:
    """Return a message that a job publishes once under this *key*, in however many attempts."""
    again = str(uuid5(_KEYED, key))
    return message._replace(
        id=again,
        # Without an aggregate, its own id is in its place.
        aggregate_id=again if message.aggregate_id == message.id else message.aggregate_id,
        key=key,
        job_id=job_id,
    )


def identity_of(message_type: MessageType, message: NewMessage) -> str:
    """Return a fingerprint of what tells a message from others that a job publishes: its identity, or all that it says."""
    if message.message_id is None:
        return message_type.fingerprint(message.payload)
    return fingerprint(json.dumps(message.message_id))


def _headers(message_type: MessageType, given: Mapping[str, str], trace: str | None, what: str) -> str:
    """Return the given headers, with the version of the schema and the trace that the message belongs to."""
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise PayloadInvalid(f"header {name!r} of {what} must be a text with a text as its value")
    headers = dict(given)
    # A trace context that is not W3C's would be refused, or followed wrongly, by those who read this header.
    if trace is not None and ids(trace):
        headers.setdefault(TRACE_HEADER, trace)
    if message_type.version > 1:
        headers[VERSION_HEADER] = str(message_type.version)
    if not headers:
        return "{}"  # of most messages, and quicker
    return encode(headers, what=f"headers of {what}", limit=LARGEST_HEADERS)
