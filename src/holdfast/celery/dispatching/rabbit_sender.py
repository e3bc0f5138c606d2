"""Sends dispatches to RabbitMQ with publisher confirms."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from aiormq.channel import Channel
from celery import Celery
from pamqp.commands import Basic

from holdfast.brokers.rabbitmq.rabbit_connection import RabbitConnection
from holdfast.celery.dispatching.dispatch_message import dispatch_message
from holdfast.core.errors import BrokerError, BrokerUnavailable, RouteRefused
from holdfast.ports.fleets import Dispatch

TIMEOUT = timedelta(seconds=10)
"""How long connecting, and sending a batch, may take. A connection that does not answer in this time is given up."""

PERSISTENT = 2


class RabbitSender:
    """One connection to the RabbitMQ of a fleet, with one channel. It belongs to the event loop of its calls.

    The queue is the one that the fleet's workers have declared. Nothing is declared here: with other arguments than
    those of the workers, RabbitMQ would refuse it.
    """

    def __init__(self, app: Celery, url: str, queue: str, *, timeout: timedelta = TIMEOUT) -> None:
        self._app = app
        self._url = url
        self._queue = queue
        self._seconds = timeout.total_seconds()
        self._connection: RabbitConnection | None = None
        self._channel: Channel | None = None
        self._connecting = asyncio.Lock()

    async def send(self, queue: str, dispatches: Sequence[Dispatch]) -> list[str]:
        connection = await self._connect()
        with connection.answering_within(self._seconds):
            channel = await self._open_channel(connection)
            await connection.unblocked()
            # Together, and then each confirm: one at a time would cost a round trip for each job.
            answers = await asyncio.gather(
                *(self._publish(channel, dispatch) for dispatch in dispatches), return_exceptions=True
            )
        confirmed = [
            dispatch.job_id
            for dispatch, answer in zip(dispatches, answers, strict=True)
            if not isinstance(answer, BaseException)
        ]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors and not confirmed:
            raise self._unavailable(connection.meaning(errors[0])) from errors[0]
        return confirmed

    async def check(self) -> str:
        return (await self._connect()).product

    async def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> RabbitConnection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = await RabbitConnection.open(self._url, seconds=self._seconds)
                self._channel = None
            return self._connection

    async def _open_channel(self, connection: RabbitConnection) -> Channel:
        async with self._connecting:
            if self._channel is None or self._channel.is_closed:
                self._channel = await connection.channel()
            return self._channel

    async def _publish(self, channel: Channel, dispatch: Dispatch) -> None:
        message = dispatch_message(self._app, dispatch)
        await channel.basic_publish(
            message.body,
            exchange="",
            routing_key=self._queue,
            properties=Basic.Properties(
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=message.headers,
                delivery_mode=PERSISTENT,
                correlation_id=message.properties["correlation_id"],
            ),
            mandatory=True,
            wait=False,
        )

    def _unavailable(self, error: BrokerError) -> BrokerUnavailable:
        match error:
            case BrokerUnavailable():
                return error
            case RouteRefused():
                return BrokerUnavailable(
                    f"RabbitMQ has no queue {self._queue!r}, which the workers of the fleet declare when they start; "
                    f"start one: celery -A … worker -Q {self._queue}"
                )
            case _:
                return BrokerUnavailable(str(error))
