"""A refused message as it is stored in the arguments of its dead letter's job, and how it is received again."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from holdfast.core.errors import Permanent, Retryable
from holdfast.core.failures.failure import ErrorClass
from holdfast.core.messages.broker_message import JSON, VERSION_HEADER, IncomingMessage, Route
from holdfast.core.messages.inbox import (
    FIRST_DEATH_EXCHANGE,
    FIRST_DEATH_QUEUE,
    ReceivedAs,
    body_from,
    stored_headers,
)
from holdfast.core.messages.outbox import NewMessage
from holdfast.core.strict_json import DEFAULT_LIMIT, decode, encode
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.engine.registry import ConsumerSpec
from holdfast.engine.runtime import Runtime

Encoding = Literal["utf-8", "base64"]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class RefusedMessage(NamedTuple):
    """The arguments of the job that receives a refused message again. An operator corrects the *body*."""

    consumer: str
    body: str
    encoding: Encoding = "utf-8"
    truncated: bool = False
    message_id: str | None = None
    headers: Mapping[str, str] = NO_HEADERS
    routing_key: str = ""

    def incoming(self, queue: str) -> IncomingMessage:
        """Return the message as if it was received from *queue*. Raises `Permanent` if its body is not whole."""
        if self.truncated:
            raise Permanent(
                "the stored body was cut; correct the arguments: the whole body, and truncated as false",
                error_class=ErrorClass.TOO_LARGE,
            )
        try:
            body = body_from(self.body, self.encoding)
        except ValueError:
            raise Permanent(
                "the stored body is not base64; correct it", error_class=ErrorClass.SCHEMA_INVALID
            ) from None
        return IncomingMessage(
            queue, body, id=self.message_id, content_type=JSON, headers=dict(self.headers), redelivered=True
        )


async def replay(runtime: Runtime, refused: RefusedMessage) -> str | None:
    """Receive a refused message again, and return the id of its job.

    One from a dead-letter queue goes to the consumer of its first queue, or through the outbox to where it was
    published. Raises `Permanent` if it is refused again, `Retryable` if its consumer may succeed later.
    """
    spec = runtime.registry.consumers.get(refused.consumer)
    if spec is None:
        raise Permanent(
            f"no consumer named {refused.consumer!r} is declared in this worker; run the replay where it is declared",
            error_class=ErrorClass.MISCONFIGURED,
        )
    if spec.message_type is None:
        first = runtime.registry.consumer_of(refused.headers.get(FIRST_DEATH_QUEUE, ""), spec.broker)
        if first is None:
            await _publish_again(runtime, refused, spec)
            return None
        spec = first
    [received] = await Receiver(runtime, spec).offer([refused.incoming(spec.queue)])
    if received.outcome is ReceivedAs.POSTPONED:
        raise Retryable("" if received.failure is None else received.failure.message)
    if received.refusal is not None:
        failure = received.refusal.failure
        raise Permanent(failure.message, error_class=failure.error_class)
    return received.job_id


async def _publish_again(runtime: Runtime, refused: RefusedMessage, spec: ConsumerSpec) -> None:
    """Store a dead-lettered message in the outbox, for the exchange and the routing key that it had."""
    message = refused.incoming(spec.queue)
    exchange = refused.headers.get(FIRST_DEATH_EXCHANGE, "")
    route = Route(spec.broker, exchange, refused.routing_key)
    found = _message_type(runtime, route)
    if found is None:
        raise Permanent(
            f"no consumer of the queue {refused.headers.get(FIRST_DEATH_QUEUE, 'unknown')!r} and no message type with the "
            f"route {route} is declared here; declare one of them",
            error_class=ErrorClass.MISCONFIGURED,
        )
    payload = encode(decode(message.body, what="the body"), what="the body", limit=DEFAULT_LIMIT)
    kept = {VERSION_HEADER, "traceparent"}
    headers = {name: value for name, value in stored_headers(refused.headers).items() if name in kept}
    job_id = runtime.ids.job_id()
    await runtime.store.outbox.add(
        [
            NewMessage(
                id=job_id,
                aggregate_type=found.aggregate_type,
                aggregate_id=(found.aggregate_id(payload) or job_id)[:64],
                message_type=found.name,
                payload=payload,
                message_id=refused.message_id or found.message_id(payload),
                headers=encode(headers, what="the headers"),
            )
        ]
    )


def _message_type(runtime: Runtime, route: Route) -> MessageType | None:
    return next((each for each in runtime.registry.message_types.values() if each.route == route), None)
