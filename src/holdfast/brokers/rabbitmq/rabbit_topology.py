"""Compares a topology with a RabbitMQ, and creates what is missing. Nothing is deleted or changed."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from aiormq.channel import Channel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from holdfast.brokers.rabbitmq.rabbit_connection import RabbitConnection
from holdfast.core.errors import BrokerUnavailable, ConfigError
from holdfast.core.messages.topology import (
    Binding,
    Exchange,
    Presence,
    Queue,
    Topology,
    TopologyPart,
    compare_bindings,
)

Declare = Callable[[Channel, bool], Awaitable[Any]]
"""Declares an exchange or a queue on a channel, passively or not."""

BINDINGS_NOT_CHECKED = "AMQP cannot list bindings; give the address of the management API"


class RabbitTopology:
    """Checks and creates exchanges, queues and bindings on one connection.

    Each declaration has a channel of its own, since a refusal closes the channel. A passive declaration says nothing
    about properties; therefore what exists is declared again with those of the topology, which changes nothing if they
    are equal and is refused if they are not.
    """

    def __init__(
        self, connection: RabbitConnection, *, url: str, management: str | None, seconds: float
    ) -> None:
        self._connection = connection
        self._url = url
        self._management = management
        self._seconds = seconds

    async def check(self, topology: Topology) -> list[TopologyPart]:
        """Return what the server has of each part. Raises `BrokerUnavailable`."""
        found = [
            *[await self._check("exchange", each.name, _exchange(each)) for each in topology.exchanges],
            *[await self._check("queue", each.name, _queue(each)) for each in topology.queues],
        ]
        if self._management is None:
            return found + [
                TopologyPart("binding", str(binding), Presence.UNKNOWN, BINDINGS_NOT_CHECKED)
                for binding in topology.bindings
            ]
        bindings = await asyncio.to_thread(read_bindings, self._management, self._url, seconds=self._seconds)
        return found + compare_bindings(topology.bindings, bindings)

    async def apply(self, topology: Topology) -> list[TopologyPart]:
        """Create what is missing, and return what was there and what was created. Raises `BrokerUnavailable`."""
        before = {(part.kind, part.name): part for part in await self.check(topology)}
        declarations = [("exchange", each.name, _exchange(each)) for each in topology.exchanges]
        declarations += [("queue", each.name, _queue(each)) for each in topology.queues]
        done = []
        for kind, name, declare in declarations:
            part = before[kind, name]
            if part.presence is Presence.MISSING:
                part = await self._create(part, declare)
            done.append(part)
        for binding in topology.bindings:
            part = before["binding", str(binding)]
            if part.presence is not Presence.PRESENT:
                part = await self._create(part, _bind(binding))
            done.append(part)
        return done

    async def _check(self, kind: str, name: str, declare: Declare) -> TopologyPart:
        if isinstance(await self._refusal(declare, passive=True), ChannelNotFoundEntity):
            return TopologyPart(kind, name, Presence.MISSING)
        match await self._refusal(declare, passive=False):
            case None:
                return TopologyPart(kind, name, Presence.PRESENT)
            case ChannelAccessRefused() as refusal:
                return TopologyPart(kind, name, Presence.UNKNOWN, f"it exists, but: {refusal}")
            case refusal:
                return TopologyPart(kind, name, Presence.DIFFERENT, str(refusal))

    async def _create(self, part: TopologyPart, declare: Declare) -> TopologyPart:
        refusal = await self._refusal(declare, passive=False)
        if refusal is None:
            return part._replace(presence=Presence.CREATED, detail="")
        return part._replace(presence=Presence.MISSING, detail=str(refusal))

    async def _refusal(self, declare: Declare, *, passive: bool) -> Exception | None:
        """Declare on a channel of its own, and return the refusal of the server, which closes it."""
        with self._connection.answering_within(self._seconds):
            channel = await self._connection.channel()
            try:
                await declare(channel, passive)
            except (
                ChannelAccessRefused,
                ChannelLockedResource,
                ChannelNotFoundEntity,
                ChannelPreconditionFailed,
            ) as refusal:
                return refusal
            await channel.close()
            return None


def read_bindings(management: str, broker_url: str, *, seconds: float) -> set[Binding]:
    """Read the bindings of a virtual host from the management API. It blocks; raises `BrokerUnavailable`.

    User and password are those of the address of the broker, unless *management* has others.
    """
    api, broker = urlsplit(management), urlsplit(broker_url)
    if api.scheme not in ("http", "https") or api.hostname is None:
        raise ConfigError("the address of the management API must begin with http:// or https://")
    vhost = unquote(broker.path[1:]) or "/"
    host = api.netloc.rpartition("@")[2]
    account = api if api.username is not None else broker
    secret = f"{unquote(account.username or 'guest')}:{unquote(account.password or 'guest')}"
    request = Request(  # noqa: S310 - the scheme was checked
        urlunsplit(
            (api.scheme, host, f"{api.path.rstrip('/')}/api/bindings/{quote(vhost, safe='')}", "", "")
        ),
        headers={"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()},
    )
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=seconds) as answer:
            rows: Sequence[dict[str, Any]] = json.load(answer)
    except (URLError, OSError, ValueError) as error:
        raise BrokerUnavailable(f"the management API at {host} cannot be read: {error}") from error
    return {
        Binding(row["source"], row["destination"], row["routing_key"])
        for row in rows
        if row.get("destination_type") == "queue"
    }


def _exchange(exchange: Exchange) -> Declare:
    def declare(channel: Channel, passive: bool) -> Awaitable[Any]:  # noqa: FBT001 - as `Declare` says
        return channel.exchange_declare(
            exchange.name, exchange_type=exchange.type, durable=exchange.durable, passive=passive
        )

    return declare


def _queue(queue: Queue) -> Declare:
    def declare(channel: Channel, passive: bool) -> Awaitable[Any]:  # noqa: FBT001 - as `Declare` says
        return channel.queue_declare(
            queue.name, durable=queue.durable, arguments=dict(queue.arguments), passive=passive
        )

    return declare


def _bind(binding: Binding) -> Declare:
    def declare(channel: Channel, passive: bool) -> Awaitable[Any]:  # noqa: FBT001 - as `Declare` says
        return channel.queue_bind(binding.queue, binding.exchange, routing_key=binding.routing_key)

    return declare
