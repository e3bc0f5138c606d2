"""A connection to RabbitMQ that can be aborted, and what its errors mean.

It uses aiormq, the protocol layer of aio-pika: the connections of aio-pika restore themselves in the background, and
none of them gives access to its socket, without which a connection to a silent server cannot be ended in time.
"""

import asyncio
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from aiormq.channel import Channel
from aiormq.connection import Connection, TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import (
    AMQPChannelError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ConnectionChannelError,
    ConnectionClosed,
    DeliveryError,
    InvalidFrameError,
    ProbableAuthenticationError,
    PublishError,
)
from yarl import URL

from holdfast.core.errors import BrokerError, BrokerUnavailable, MessageRefused, RouteFull, RouteRefused

HEARTBEAT_SECONDS = 20
"""A connection without any data is given up after about three times as long. The address may say otherwise."""

CLOSE_SECONDS = 2.0
"""How long a connection may take to close in order; then it is aborted."""

ENDED_WITH_OTHERS = (ChannelInvalidStateError, ConnectionChannelError)
"""The channel was closed before the call; or the connection was, since the client sent to a channel just closed."""

# Without any handler Python would print what the client logs to stderr; it is raised, too.
logging.getLogger("aiormq").addHandler(logging.NullHandler())


class RabbitConnection:
    """An open connection. Its channels end with it."""

    def __init__(self, connection: Connection, transport: "_Transport", address: str) -> None:
        self._connection = connection
        self._transport = transport
        self._address = address
        self._aborted: str | None = None
        self.closing: asyncio.Future[Any] = connection.closing
        """Done once the connection is lost or closed."""

    @classmethod
    async def open(cls, url: str, *, seconds: float) -> "RabbitConnection":
        """Connect to the server. Raises `BrokerUnavailable`, whose message contains no password."""
        target, address = URL(url), censored(url)
        if "heartbeat" not in target.query:
            target = target.update_query(heartbeat=str(HEARTBEAT_SECONDS))
        transport = _Transport(TLSTransportFactory() if target.scheme == "amqps" else TCPTransportFactory())
        connection = Connection(target, transport_factory=transport)
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
        except TimeoutError as error:
            raise BrokerUnavailable(f"RabbitMQ at {address} did not answer within {seconds:g} s") from error
        except Exception as error:
            raise BrokerUnavailable(f"RabbitMQ at {address} {_refusal(error, url)}") from error
        return cls(connection, transport, address)

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return self._connection.is_opened and self._aborted is None

    @property
    def product(self) -> str:
        """The product and the version of the server."""
        properties = self._connection.server_properties
        return f"{_text(properties.get('product'))} {_text(properties.get('version'))}"

    async def channel(self) -> Channel:
        """Open a channel on which messages are confirmed, and one that no queue takes is an error."""
        opened = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        return cast("Channel", opened)

    async def unblocked(self) -> None:
        """Wait until the server takes messages: it blocks publishers while memory or disk space is short."""
        await self._connection.ready()

    @contextmanager
    def answering_within(self, seconds: float) -> Iterator[None]:
        """Abort the connection if the block takes longer, and translate the errors of the block."""
        timer = asyncio.get_running_loop().call_later(
            seconds, self.abort, f"did not answer within {seconds:g} s"
        )
        try:
            yield
        except BrokerError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if is_cancellation(error):
                raise
            raise self.meaning(error) from error
        finally:
            timer.cancel()

    def abort(self, reason: str) -> None:
        """End the connection at once: calls that wait for the server end with *reason* as an error."""
        self._aborted = self._aborted or reason
        self._transport.abort()

    async def close(self) -> None:
        """Close the connection in order, or abort it after a while. Does nothing if it is closed."""
        timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.abort, "did not close in time")
        try:
            await self._connection.close(ConnectionClosed(0, "closed by the client"))
            await asyncio.wait([self.closing])
        finally:
            timer.cancel()
            self._transport.abort()

    def meaning(self, error: BaseException) -> BrokerError:
        """Return what an error of a call on this connection means to a relay or a consumer."""
        match error:
            case PublishError():
                exchange, key = getattr(error.frame, "exchange", ""), getattr(error.frame, "routing_key", "")
                return RouteRefused(f"no queue is bound to exchange {exchange!r} for the routing key {key!r}")
            case DeliveryError():
                return RouteFull(
                    f"RabbitMQ at {self._address} did not accept the message: a queue of its route is full, or cannot store it"
                )
            case ChannelNotFoundEntity() | ChannelAccessRefused() | ChannelLockedResource():
                return RouteRefused(f"RabbitMQ at {self._address} refused: {error}")
            case AMQPChannelError():
                return MessageRefused(f"RabbitMQ at {self._address} refused the message: {error}")
            case struct.error() | ValueError() | TypeError() | OverflowError():
                return MessageRefused(f"AMQP cannot carry the message: {error}")
            case _:
                how = self._aborted or f"closed the connection: {_cause(error)}"
                return BrokerUnavailable(f"RabbitMQ at {self._address} {how}")


class _Transport(TransportFactory):
    """Opens the socket of a connection, and keeps it, so that it can be closed without the server."""

    def __init__(self, inner: TransportFactory) -> None:
        self._inner = inner
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._inner.create(url, **options)
        return reader, self._writer

    def abort(self) -> None:
        """Close the socket, and drop what was not sent yet."""
        if self._writer is not None:
            self._writer.transport.abort()


def censored(url: str) -> str:
    """Return an address for messages: without user, password and options.

    >>> censored("amqp://guest:secret@broker.example:5672/grading?heartbeat=5")
    'broker.example:5672/grading'
    """
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def is_cancellation(error: BaseException) -> bool:
    """Whether the running task was cancelled: the client also ends its own futures with `CancelledError`."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def ended_channel(error: BaseException) -> bool:
    """Whether the server closed a channel: for one message on it, and it does not say for which."""
    return isinstance(error, (AMQPChannelError, *ENDED_WITH_OTHERS))


def _refusal(error: Exception, url: str) -> str:
    match error:
        case ProbableAuthenticationError():
            return "refused the user or the password"
        case InvalidFrameError() if "Connection.Close" in str(error):
            vhost = unquote(urlsplit(url).path[1:]) or "/"
            return f"refused the virtual host {vhost!r}: create it, or give the user access to it"
        case ValueError():
            return f"has an address that cannot be used: {error}"
        case _:
            return f"cannot be reached: {_cause(error)}"


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
