"""A broker: what publishes messages to other systems, and receives theirs."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from holdfast.core.messages.broker_message import IncomingMessage, OutgoingMessage
from holdfast.core.messages.topology import Topology, TopologyPart


class Subscription(Protocol):
    """The messages of one queue, for one consumer. A message that is not acknowledged is delivered again."""

    async def receive(self, limit: int) -> Sequence[IncomingMessage]:
        """Wait for a message, and return it with those that are there already, *limit* at most.

        Raises `BrokerUnavailable` when the connection is lost; `RouteRefused` if there is no such queue.
        """
        ...

    async def acknowledge(self, messages: Sequence[IncomingMessage]) -> None:
        """Confirm messages: the broker deletes them. Raises `BrokerUnavailable`: they are delivered again."""
        ...

    async def requeue(self, messages: Sequence[IncomingMessage]) -> None:
        """Give messages back: the broker delivers them again. Raises `BrokerUnavailable`."""
        ...


class Broker(Protocol):
    """A connection to a broker, or a Python function in the place of one. It connects when it is first used."""

    async def publish(self, message: OutgoingMessage) -> None:
        """Publish a message, and return once the broker has confirmed that it has it. Bounded in time.

        Raises `BrokerUnavailable` if the broker cannot be reached, blocks, or does not answer in time: it may have
        the message. `RouteRefused` if the exchange is missing or forbidden, or no queue takes the message;
        `RouteFull`, which is one, if a queue cannot take it at present.
        `MessageRefused` if the broker does not take this message. One that is refused does not disturb the others.
        """
        ...

    def subscribe(self, queue: str, *, prefetch: int) -> AbstractAsyncContextManager[Subscription]:
        """Receive the messages of *queue* in the block, with at most *prefetch* of them unacknowledged."""
        ...

    async def check(self) -> str:
        """Connect, and return what `holdfast doctor` displays: product and version. Raises `BrokerUnavailable`."""
        ...

    async def close(self) -> None:
        """Disconnect. A later call connects again."""
        ...


@runtime_checkable
class TopologyBroker(Broker, Protocol):
    """A broker with exchanges and queues, which can be checked and created."""

    async def check_topology(self, topology: Topology, *, management: str | None) -> Sequence[TopologyPart]:
        """Return what the broker has of each part. Bindings are read from the API at *management*, if one is given.

        Nothing is created, changed or deleted. Raises `BrokerUnavailable`.
        """
        ...

    async def apply_topology(self, topology: Topology, *, management: str | None) -> Sequence[TopologyPart]:
        """Create what is missing, and return what was there and what was created. Nothing is changed or deleted.

        Raises `BrokerUnavailable`: some parts may be created; apply it again.
        """
        ...
