"""Sends dispatches through Celery's own client, kombu, in a thread: for brokers other than RabbitMQ."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from celery import Celery
from kombu.messaging import Producer

from holdfast.celery.dispatching.dispatch_message import dispatch_message
from holdfast.core.errors import BrokerUnavailable
from holdfast.ports.fleets import Dispatch
from holdfast.wiring.threads import Threads

T = TypeVar("T")

TIMEOUT = timedelta(seconds=10)
"""How long connecting, and sending a batch, may take."""


class KombuSender:
    """One connection to the broker of a fleet, used in one thread. It belongs to the event loop of its calls."""

    def __init__(self, app: Celery, queue: str, *, timeout: timedelta = TIMEOUT) -> None:
        self._app = app
        self._queue = queue
        self._seconds = timeout.total_seconds()
        self._thread = _new_thread()
        self._connection: Any = None

    async def send(self, queue: str, dispatches: Sequence[Dispatch]) -> list[str]:
        return await self._call(lambda: self._publish(dispatches))

    async def check(self) -> str:
        return await self._call(self._product)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._run(connection.release)
        self._thread.close()

    def _publish(self, dispatches: Sequence[Dispatch]) -> list[str]:
        producer = Producer(self._connect(), auto_declare=False)
        sent: list[str] = []
        for dispatch in dispatches:
            message = dispatch_message(self._app, dispatch)
            producer.publish(
                message.body,
                exchange="",
                routing_key=self._queue,
                headers=message.headers,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                retry=False,
                **message.properties,
            )
            sent.append(dispatch.job_id)
        return sent

    def _product(self) -> str:
        connection = self._connect()
        server = getattr(connection.connection, "server_properties", None)
        if server:
            return f"{server.get('product')} {server.get('version')}"
        return str(connection.transport.driver_type)

    def _connect(self) -> Any:
        if self._connection is None or not self._connection.connected:
            connection = self._app.connection_for_write(
                connect_timeout=self._seconds, transport_options={"confirm_publish": True}
            )
            connection.ensure_connection(max_retries=1, timeout=self._seconds, reraise_as_library_errors=True)
            self._connection = connection
        return self._connection

    async def _call(self, function: Callable[[], T]) -> T:
        address = self._app.connection_for_write().as_uri(include_password=False)
        try:
            return await self._run(function)
        except TimeoutError as error:
            # The thread may hang for as long as it likes: another one takes its place, with a connection of its own.
            self._thread, self._connection = _new_thread(), None
            raise BrokerUnavailable(
                f"the broker at {address} did not answer within {self._seconds:g} s"
            ) from error
        except Exception as error:
            # Each transport of kombu has exceptions of its own; all that a dispatcher can do is to try again.
            self._connection = None
            raise BrokerUnavailable(f"the broker at {address} cannot be used: {_text(error)}") from error

    async def _run(self, function: Callable[[], T]) -> T:
        async with asyncio.timeout(self._seconds):
            return await self._thread.run(function)


def _new_thread() -> Threads:
    return Threads("holdfast-celery-sender", limit=1)


def _text(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
