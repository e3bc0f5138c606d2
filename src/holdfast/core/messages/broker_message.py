"""A message as a broker carries it: outgoing, with its route, and incoming, as it was received."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

JSON = "application/json"
"""The only content type that is published, and that is accepted."""

VERSION_HEADER = "x-message-version"
"""The header with the version of a message's schema. Absent means 1."""

TRACE_HEADER = "traceparent"
"""The header with the W3C trace context."""


class Route(NamedTuple):
    """Where a message goes: a broker by its name, an exchange, and a routing key.

    On Redis, the routing key is the stream; there is no exchange.
    """

    broker: str
    exchange: str
    routing_key: str

    def __str__(self) -> str:
        """Return the route as it is displayed and stored.

        >>> str(Route("rabbitmq", "vstep.exchange", "grading.request"))
        'rabbitmq/vstep.exchange/grading.request'
        """
        return "/".join(self)


class OutgoingMessage(NamedTuple):
    """A message to publish. The same *id* is sent with every try, so that a consumer recognises a repetition."""

    id: str
    type: str
    route: Route
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message as it was received. Everything but *queue* is the sender's, and not to be trusted."""

    queue: str
    body: bytes
    id: str | None = None
    type: str | None = None
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    redelivered: bool = False
    tag: Any = None
    """What the broker's client needs to acknowledge it."""
