"""The intake: it makes durable jobs of calls that programs have enqueued in Redis, and only then lets arq delete them.

A call takes the path of a message: its arq id is its identity, so that it makes one job however often it is enqueued or
delivered. What cannot become a job becomes a dead letter with its raw body. arq deletes a call when its function returns
or raises; so the function returns only once the call is stored, and raises nothing but a request to be called again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from arq.utils import timestamp_ms
from arq.worker import Retry
from redis.exceptions import RedisError

from holdfast.aio.batcher import Batcher
from holdfast.app import Holdfast, JobFunction
from holdfast.app.job_function import JobCall
from holdfast.arq.intake.deferred_calls import DeferredCalls
from holdfast.arq.intake.enqueued_call import (
    EnqueuedBody,
    EnqueuedCall,
    chosen_lifetime_ms,
    enqueued_at_ms,
    enqueued_calls_of,
    incoming,
)
from holdfast.arq.intake.unreadable_calls import refuse_unreadable
from holdfast.arq.protocol import job_key, retry_key
from holdfast.core.messages.broker_message import IncomingMessage, Route
from holdfast.core.messages.inbox import Received, ReceivedAs
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.receiving.delivery import Delivery
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.engine.registry import ConsumerSpec

BROKER = "holdfast.arq"
"""The broker of its consumer: none that is declared, since arq itself delivers the calls."""

BATCH = 100
"""Calls that are stored in one transaction at most."""

TAKE_LIMIT = 8.0
"""Seconds for storing a call; less than the 10 for which arq keeps the call from other workers."""

AGAIN_AFTER = timedelta(seconds=5)
"""When a call is delivered again that could not be stored."""

RUN_AT, DEADLINE_AT = "x-arq-run-at", "x-arq-deadline-at"
"""Headers with instants: from when, and until when, the call is to be run."""


class Intake:
    """Takes the calls of one queue of Redis that name one of *jobs*."""

    def __init__(self, hold: Holdfast, queue: str, jobs: Sequence[JobFunction[..., Any]]) -> None:
        self._hold = hold
        self._queue = queue
        self._spec = consumer_of(queue, jobs)
        # Only a consumer that takes a delivery sees the headers; it is called in the transaction, which costs more.
        self._timed_spec = replace(self._spec, function=_timed_call, takes_delivery=True)
        self._deferred: DeferredCalls | None = None

    @property
    def spec(self) -> ConsumerSpec:
        """The consumer that stands for the queue: a replay of a dead letter gives the call to it."""
        return self._spec

    async def start(self, ctx: dict[Any, Any]) -> None:
        """Connect, and be ready for calls."""
        hold = self._hold
        hold.settings.ensure_usable()
        await hold.open()
        receiver, timed = Receiver(hold.runtime, self._spec), Receiver(hold.runtime, self._timed_spec)
        self._plain = Batcher(receiver.receive, limit=BATCH, name=f"take {self._queue}")
        self._timed = Batcher(timed.receive, limit=BATCH, name=f"take {self._queue} at a time")
        await refuse_unreadable(ctx["redis"], self._queue, self._refuse)
        self._deferred = DeferredCalls(hold.runtime, ctx["redis"], self._queue, self._store)
        self._deferred.start()

    async def stop(self) -> None:
        """Store what is in hand."""
        if self._deferred is not None:
            await self._deferred.stop()
            await self._plain.drain()
            await self._timed.drain()

    async def close(self) -> None:
        """Disconnect from the store."""
        await self._hold.close()

    async def take(self, ctx: dict[Any, Any], body: EnqueuedBody) -> str:
        """Store a call, and return what became of it, which arq logs. Raises `Retry` if it could not be stored."""
        arq_id, redis = str(ctx["job_id"]), ctx["redis"]
        try:
            async with asyncio.timeout(TAKE_LIMIT):
                lifetime = int(await redis.pttl(job_key(arq_id)))
                received = await self._store(arq_id, body.raw, ctx["score"], lifetime)
        except Exception as error:
            raise await self._postpone(arq_id, redis, self._hold.runtime.describe(error)) from error
        if received.outcome is ReceivedAs.POSTPONED:
            raise await self._postpone(arq_id, redis, received.failure.message if received.failure else "")
        return f"{received.outcome.value} {received.job_id or ''}".strip()

    async def _store(self, arq_id: str, raw: bytes, score_ms: int, lifetime_ms: int) -> Received:
        """Make a job or a dead letter of a call. Raises `StoreUnavailable`; whether it was stored is then unknown."""
        headers = _headers(raw, score_ms=score_ms, lifetime_ms=lifetime_ms)
        message = incoming(self._queue, arq_id, raw, headers)
        batcher: Batcher[IncomingMessage, Received] = self._timed if headers else self._plain
        # What is being stored goes on when arq cancels the caller: the call is delivered again, and is known then.
        return await asyncio.shield(asyncio.ensure_future(batcher.ask(message)))

    async def _refuse(self, raw: bytes) -> None:
        """Make a dead letter of a call without an id that can be stored."""
        message = replace(incoming(self._queue, "", raw), id=None)
        await self._plain.ask(message)

    async def _postpone(self, arq_id: str, redis: Any, why: str) -> Retry:
        """Return what has arq deliver the call again later. Neither tries nor time run out meanwhile."""
        self._hold.runtime.logger.warning("call not stored", queue=self._queue, arq_id=arq_id, message=why)
        with suppress(RedisError, OSError):
            await redis.persist(job_key(arq_id))
            await redis.delete(retry_key(arq_id))
        return Retry(defer=AGAIN_AFTER)


def consumer_of(queue: str, jobs: Sequence[JobFunction[..., Any]]) -> ConsumerSpec:
    """Return the consumer of a queue whose calls name one of *jobs*."""
    model = enqueued_calls_of({name: job for job in jobs for name in (job.name, *job.spec.aliases)})
    message_type = MessageType(
        name=f"arq {queue}", model=model, route=Route(BROKER, "", queue), unhashed=("t", "et")
    )
    return ConsumerSpec(
        name=queue, queue=queue, broker=BROKER, message_type=message_type, function=_call, is_async=False
    )


def _call(call: EnqueuedCall) -> JobCall[Any]:
    return call.call()


def _timed_call(call: EnqueuedCall, delivery: Delivery) -> JobCall[Any]:
    made, headers = call.call(), delivery.headers
    options = made.job.options(run_at=_instant(headers, RUN_AT))
    # Its own deadline is replaced by that of the call, if that has one.
    deadline = _instant(headers, DEADLINE_AT)
    return replace(made, job=options if deadline is None else options.options(deadline_at=deadline))


def _headers(raw: bytes, *, score_ms: int, lifetime_ms: int) -> dict[str, int]:
    """Return when a call is to be run at the earliest and the latest, as far as its producer chose it."""
    now = timestamp_ms()
    headers: dict[str, int] = {}
    if score_ms > now:
        headers[RUN_AT] = score_ms
    lifetime = chosen_lifetime_ms(lifetime_ms, score_ms=score_ms, enqueued_ms=enqueued_at_ms(raw), now_ms=now)
    if lifetime is not None:
        headers[DEADLINE_AT] = now + lifetime
    return headers


def _instant(headers: Mapping[str, Any], name: str) -> datetime | None:
    milliseconds = headers.get(name)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
