"""The outbox: messages to other systems, from their publication to the broker's confirmation.

A message is stored as `pending`. A relay, which has leased the message's partition, publishes it, and writes what
became of it as a `MessageTransition`. Messages of one aggregate are in one partition, and are published in the order
of their sequence: one that cannot be published yet holds back those behind it, and no others.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from holdfast.core.dead_letters.letter import LetterState, Step
from holdfast.core.dead_letters.ticket import TicketKind
from holdfast.core.errors import BrokerUnavailable, MessageNotFound, MessageRefused, RouteFull, RouteRefused
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.failure import Failure
from holdfast.core.messages.broker_message import OutgoingMessage, Route
from holdfast.core.messages.dead_message import PUBLISH, DeadMessage
from holdfast.core.strict_json import ensure_storable

LONGEST_FIELD = 64
"""Characters of an aggregate's id and type, and of a message type: the columns are a contract with other programs."""

BATCH = 100
"""Most messages that a relay reads at once."""

RETRIES = RetryPolicy(attempts=5, backoff=Backoff.exponential())
"""How often a message is published that the broker refuses for its own fault, and the waits between."""

PROBE = timedelta(seconds=60)
"""How long after a route was blocked, or was tried in vain, it is tried again."""

PROBE_WHEN_FULL = timedelta(seconds=5)
"""The same of a route that is full: its consumers make room at any time."""

QUIET = timedelta(seconds=60)
"""How long a route that was full has to take messages until its alarm is cleared: it may be full again in a moment."""

RELEASED = 1_000
"""Most messages that are released at once when a route is unblocked: each batch is a transaction of its own."""

_UNDECLARED = "undeclared"


class MessageStatus(StrEnum):
    """The state of a message in the outbox."""

    PENDING = "pending"
    PUBLISHED = "published"
    FAILED = "failed"
    """Its attempts are spent. It holds back the later messages of its aggregate, until it is retried or skipped."""
    SKIPPED = "skipped"
    """An operator decided that it is not published."""


class NewMessage(NamedTuple):
    """A message to store in the outbox.

    *payload* is strict JSON, and *headers* a JSON object of texts. *message_id* identifies the message for its
    consumers; without one, its *id* does. *exchange* and *routing_key* replace the route of its type. Of two messages
    with one *key*, the first is stored. *job_id* is the job that publishes it.
    """

    id: str
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    message_id: str | None = None
    headers: str = "{}"
    exchange: str | None = None
    routing_key: str | None = None
    key: str | None = None
    job_id: str | None = None
    trace: str | None = None


class PartitionLease(NamedTuple):
    """A relay's lease of a partition. Every change of its holder raises the *token*."""

    number: int
    token: int


class DueMessage(NamedTuple):
    """A message that a relay is to publish, unless it is *behind* another.

    *retry_count* counts the attempts that were spent. *waited* is how long it has been in the outbox. *behind* is the
    id of an earlier message of its aggregate that was not published, and is not due either.
    """

    id: str
    partition: int
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    message_id: str | None
    headers: str
    exchange: str | None
    routing_key: str | None
    trace: str | None
    retry_count: int
    waited: timedelta
    behind: str | None = None

    @property
    def aggregate(self) -> tuple[str, str]:
        """What the message is about: messages of one aggregate are published one after the other."""
        return self.aggregate_type, self.aggregate_id


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message of the outbox as operators see it.

    `held_by` is what it waits for: the text of a blocked `Route`, or `message:` and the id of an earlier message.
    `note` says which operator retried or skipped it, and why. `dead_job_id` is the job of the dead letter that it became
    when it failed last.
    """

    id: str
    sequence: int
    aggregate_type: str
    aggregate_id: str
    message_type: str
    payload: str
    status: MessageStatus
    created_at: datetime | None
    processed_at: datetime | None = None
    retry_count: int = 0
    error_message: str | None = None
    message_id: str | None = None
    headers: str = "{}"
    exchange: str | None = None
    routing_key: str | None = None
    job_id: str | None = None
    trace: str | None = None
    due_at: datetime | None = None
    held_by: str | None = None
    note: Mapping[str, str] | None = None
    dead_job_id: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages to list, the newest first: those older than *before*, the id of one. `None` means any."""

    status: MessageStatus | None = None
    message_type: str | None = None
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    held: bool | None = None
    limit: int = 50
    before: str | None = None

    def __post_init__(self) -> None:
        ensure_storable(
            message_type=self.message_type, aggregate_type=self.aggregate_type, aggregate_id=self.aggregate_id
        )
        if self.limit < 1:
            raise ValueError(f"limit={self.limit} shows nothing; ask for at least one message")
        if self.before is not None:
            outbox_id(self.before)  # raises MessageNotFound: a page ends at a message's id


class BlockedRoute(NamedTuple):
    """A route that the broker refuses. Its messages are held, and one of them is tried at *probe_at*."""

    route: str
    blocked_at: datetime
    probe_at: datetime
    error: str
    held: int


class MessageChange(StrEnum):
    """What a transition does with a message."""

    PUBLISHED = "published"
    """The broker has confirmed it. What was held behind it is released."""
    RETRIED = "retried"
    """An attempt is spent, and it is due again later."""
    FAILED = "failed"
    """The last attempt is spent, and it becomes a dead letter."""
    HELD = "held"
    """It waits for a blocked route, or behind an earlier message. Nothing is spent."""
    BLOCKED = "blocked"
    """The broker refuses its route: the route is blocked, and the message is held for it. Nothing is spent."""


class MessageTransition(NamedTuple):
    """What became of a message that a relay has read. Make it with one of the functions below."""

    id: str
    partition: int
    change: MessageChange
    spent: int
    """The attempts that were spent before: a transition that is sent again does not match, and spends no second one."""
    delay: timedelta | None = None
    """When it is due again; of a blocked route, when that is tried."""
    error: str | None = None
    held_by: str | None = None
    dead: DeadMessage | None = None
    full: bool = False
    """Of a blocked route: whether it is full, and not missing or forbidden."""


def published(message: DueMessage) -> MessageTransition:
    """Return the transition of a message that the broker has confirmed."""
    return _transition(message, MessageChange.PUBLISHED)


def held_behind(message: DueMessage) -> MessageTransition:
    """Return the transition of a message that is behind another: it is released when that one is published or skipped.

    The store writes it only if the other is still there.
    """
    return _transition(message, MessageChange.HELD)._replace(held_by=behind_holder(str(message.behind)))


def held_for(message: DueMessage, route: Route) -> MessageTransition:
    """Return the transition of a message whose route is blocked: it is released when the route works again.

    The store writes it only if the route is still blocked.
    """
    return _transition(message, MessageChange.HELD)._replace(held_by=str(route))


def after_refusal(
    message: DueMessage,
    route: Route,
    error: Exception,
    failure: Failure,
    *,
    dead_id: str,
    roll: float,
    policy: RetryPolicy = RETRIES,
) -> MessageTransition | None:
    """Decide what follows when a broker did not confirm a message; `None`: nothing is spent, publish it again.

    *failure* is what the classifier makes of *error*, without secrets. A broker that is unavailable costs the message
    nothing; a refused or full route is blocked, for all its messages; everything else is the fault of the message, which is
    retried until its attempts are spent, and then becomes the dead letter of the job *dead_id*.
    """
    if isinstance(error, BrokerUnavailable):
        return None
    if isinstance(error, RouteRefused):
        full = isinstance(error, RouteFull)
        change = _transition(message, MessageChange.BLOCKED)
        return change._replace(
            held_by=str(route), delay=PROBE_WHEN_FULL if full else PROBE, error=failure.message, full=full
        )
    attempt = message.retry_count + 1
    if attempt < policy.attempts:
        delay = policy.delay(attempt, failure, roll=roll)
        return _transition(message, MessageChange.RETRIED)._replace(delay=delay, error=failure.message)
    dead = DeadMessage(dead_id, PUBLISH, json.dumps({"outbox_id": message.id}), failure, message.trace)
    return _transition(message, MessageChange.FAILED)._replace(error=failure.message, dead=dead)


def letter_of_retried(note: Mapping[str, str]) -> Step:
    """Return the step that ends the dead letter of a message which an operator has retried, with that *note*.

    >>> letter_of_retried({"actor": "ada", "reason": "the limit was raised"}).notes
    'its message was retried: the limit was raised'
    """
    reason = _with_reason("its message was retried", note)
    return Step(LetterState.CLOSED, _actor(note), reason, notes=reason)


def letter_of_skipped(note: Mapping[str, str]) -> Step:
    """Return the step that ends the dead letter of a message which an operator has skipped, with that *note*."""
    return Step(LetterState.DISCARDED, _actor(note), _with_reason("its message was skipped", note))


def _actor(note: Mapping[str, str]) -> str:
    return note.get("actor") or "holdfast"


def _with_reason(text: str, note: Mapping[str, str]) -> str:
    reason = note.get("reason")
    return f"{text}: {reason}" if reason else text


def _transition(message: DueMessage, change: MessageChange) -> MessageTransition:
    return MessageTransition(message.id, message.partition, change, message.retry_count)


def behind_holder(message_id: str) -> str:
    """Return what holds the messages that are behind the one with this id in the outbox.

    >>> behind_holder("01900000-0000-7000-8000-00000000000a")
    'message:01900000-0000-7000-8000-00000000000a'
    """
    return f"message:{message_id}"


def route_alarm(route: str) -> str:
    """Return the name of the alarm about a blocked route.

    >>> route_alarm("rabbitmq/vstep.exchange/grading.request")
    'route blocked: rabbitmq/vstep.exchange/grading.request'
    """
    return f"{TicketKind.ROUTE}: {route}"


def undeclared(message_type: str) -> Route:
    """Return the route of a message whose type the relay does not know: it is blocked until a relay knows it.

    >>> str(undeclared("grading.request"))
    'undeclared//grading.request'
    """
    return Route(_UNDECLARED, "", message_type)


def route_of(message: DueMessage, declared: Route) -> Route:
    """Return where a message goes: its own exchange and routing key, or else those that its type was declared with."""
    return Route(
        declared.broker,
        declared.exchange if message.exchange is None else message.exchange,
        declared.routing_key if message.routing_key is None else message.routing_key,
    )


def outgoing(message: DueMessage, route: Route) -> OutgoingMessage:
    """Return a message as it is published. Raises `MessageRefused` if its headers are not a JSON object of texts.

    Any program may have written the row.
    """
    try:
        headers = json.loads(message.headers)
    except ValueError:
        headers = None
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise MessageRefused("the column headers must be a JSON object whose values are texts")
    return OutgoingMessage(
        id=message.message_id or message.id,
        type=message.message_type,
        route=route,
        body=message.payload.encode(),
        headers=headers,
    )


def outbox_id(message_id: str) -> str:
    """Return the id of a message in the one spelling that is stored. Raises `MessageNotFound` if it is not an id.

    >>> outbox_id("{01900000-0000-7000-8000-00000000000A}")
    '01900000-0000-7000-8000-00000000000a'
    """
    try:
        return str(UUID(message_id))
    except ValueError:
        raise MessageNotFound(
            f"there is no message {message_id!r}; the id of a message in the outbox is a UUID"
        ) from None
