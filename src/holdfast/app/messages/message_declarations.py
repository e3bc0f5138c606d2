"""The declarations of messages: brokers, message types, consumers and dead-letter queues."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from holdfast.app.messages.consumer import ConsumerDecorator, consumer_spec
from holdfast.app.messages.message_specs import broker_name, broker_spec, message_type
from holdfast.app.specs import internal_job_spec
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.messages.broker_message import OutgoingMessage, Route
from holdfast.core.messages.dead_message import CONSUME, PUBLISH
from holdfast.core.messages.topology import Topology
from holdfast.core.strict_json import DEFAULT_LIMIT
from holdfast.engine.messages.receiving.refused_message import NO_HEADERS, Encoding
from holdfast.engine.registry import BrokerSpec, ConsumerSpec, Registry

ModelT = TypeVar("ModelT", bound=type[BaseModel])
MessageT = TypeVar("MessageT", bound=BaseModel)


class MessageDeclarations(ABC):
    """Declares brokers, message types and consumers. A mistake raises `ConfigError` at the declaration."""

    _registry: Registry
    _policy: RetryPolicy

    def broker(
        self,
        name: str,
        to: "str | Callable[[OutgoingMessage], Any]",
        *,
        topology: Topology | Mapping[str, Any] | None = None,
    ) -> BrokerSpec:
        """Declare where messages are published to and received from.

        *to* is an address, `amqp://…` or `redis://…`, or a function, plain or async, that is called with each message
        instead. The *topology* says which exchanges, queues and bindings the broker should have: a `Topology`, or
        a document that `Topology.of` reads. `holdfast topology` checks and creates them.
        """
        spec = broker_spec(name, to, topology=topology)
        self._registry.add_broker(spec)
        if self._registry.get(PUBLISH) is None:
            self._registry.add(internal_job_spec(self._publish_again, name=PUBLISH, policy=self._policy))
        return spec

    def message(
        self,
        name: str,
        *,
        routing_key: str | None = None,
        exchange: str = "",
        broker: BrokerSpec | None = None,
        identity: str | Sequence[str] = (),
        aggregate_type: str | None = None,
        aggregate: str | None = None,
        version: int = 1,
        unhashed: Sequence[str] = ("metadata",),
        reply_to: Sequence[str] = (),
    ) -> Callable[[ModelT], ModelT]:
        """Declare a message type. Used as a decorator of a pydantic model.

        A message is published to the *exchange* with the *routing_key*, which is *name* unless another is given; the
        *broker* may be left out if one is declared. *identity* names the fields that identify a message: two with the
        same values are one message for its consumers. Messages with the same value of the field *aggregate* are
        published in order. *unhashed* names the fields that may differ when the same message is sent again. *reply_to* lists
        the routing keys that a request may choose for this message, if it is an answer.
        """

        def declare(model: ModelT) -> ModelT:
            self._registry.add_message_type(
                message_type(
                    model,
                    name=name,
                    route=Route(broker_name(broker, self._registry), exchange, routing_key or name),
                    identity=(identity,) if isinstance(identity, str) else tuple(identity),
                    aggregate_type=aggregate_type or name,
                    aggregate=aggregate,
                    version=version,
                    unhashed=tuple(unhashed),
                    reply_to=tuple(reply_to),
                )
            )
            return model

        return declare

    def consumer(
        self,
        model: type[MessageT],
        *,
        queue: str,
        broker: BrokerSpec | None = None,
        name: str | None = None,
        prefetch: int = 100,
    ) -> ConsumerDecorator[MessageT]:
        """Receive the messages of a *queue*. Used as a decorator of a function, which returns `job.call(...)`, or `None`.

        A message makes one job, however often it is delivered; it is acknowledged once the job is stored. The function
        takes the message, or the message and a `Delivery`: then it is called in the transaction that stores the job,
        and may write rows of its own there. Messages that do not fit *model*, and those for which the function raises,
        become dead letters. At most *prefetch* messages are in flight. The *name* is stored with each message; it is
        that of the queue unless another is given.
        """

        def declare(function: Callable[..., Any]) -> None:
            self._add_consumer(
                consumer_spec(
                    function,
                    message_type=self._registry.message_type_of(model),
                    name=name or queue,
                    queue=queue,
                    broker=broker_name(broker, self._registry),
                    prefetch=prefetch,
                )
            )

        return ConsumerDecorator(declare)

    def dead_letter_queue(
        self, queue: str, *, broker: BrokerSpec | None = None, name: str | None = None, prefetch: int = 100
    ) -> None:
        """Turn each message of a broker's dead-letter *queue* into a dead letter and a ticket, once.

        The letter has the reason of the header `x-first-death-reason`, else `unknown`. A replay gives the message to the
        consumer of the queue where it was first, if that is declared here, else publishes it where it was published.
        """
        self._add_consumer(
            consumer_spec(
                None,
                message_type=None,
                name=name or queue,
                queue=queue,
                broker=broker_name(broker, self._registry),
                prefetch=prefetch,
            )
        )

    def _add_consumer(self, spec: ConsumerSpec) -> None:
        """Declare a consumer, and with the first one the job that replays refused messages."""
        self._registry.add_consumer(spec)
        if self._registry.get(CONSUME) is None:
            self._registry.add(
                internal_job_spec(
                    self._consume_again, name=CONSUME, policy=self._policy, limit=2 * DEFAULT_LIMIT
                )
            )

    @abstractmethod
    async def _consume_again(
        self,
        consumer: str,
        body: str,
        *,
        encoding: Encoding = "utf-8",
        truncated: bool = False,
        message_id: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        routing_key: str = "",
    ) -> str | None:
        """Receive a refused message again; the dead letter of a message is replayed by calling it.

        Returns the id of its job. Raises if it is refused again. An operator corrects the *body*.
        """

    @abstractmethod
    async def _publish_again(self, outbox_id: str) -> None:
        """Make a failed message of the outbox pending again; the dead letter of a message is replayed by calling it."""
