"""What an application does with messages: it publishes them, and feeds its consumers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from pydantic import BaseModel

from holdfast.aio.coroutines import run_here
from holdfast.app.current import ensure_going_on, next_message_key, trace_here
from holdfast.app.current_job import job_that_can_wait
from holdfast.app.messages.consumer import body_of, fed_consumer
from holdfast.core.messages.broker_message import JSON, IncomingMessage
from holdfast.core.messages.inbox import Received
from holdfast.core.messages.outbox import NewMessage
from holdfast.core.within import ensure_blocking
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.messages.new_message import identity_of, keyed, new_message
from holdfast.engine.messages.publisher import Publisher
from holdfast.engine.messages.receiving.receiver import Receiver
from holdfast.engine.messages.receiving.refused_message import NO_HEADERS, Encoding, RefusedMessage, replay
from holdfast.engine.operations.store_access import in_sync
from holdfast.engine.registry import ConsumerSpec, Registry
from holdfast.engine.runtime import Runtime

T = TypeVar("T")


class Messaging(ABC):
    """Publishes messages through the outbox, and passes messages to consumers."""

    runtime: Runtime
    _registry: Registry
    _publisher: Publisher

    @abstractmethod
    async def _open_for_change(self) -> None:
        """Connect for a change; inside a job that is being parked, nothing may take effect any more."""

    @abstractmethod
    def _run_sync(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        """Run a method for code without an event loop."""

    async def publish(
        self,
        message: BaseModel,
        *,
        aggregate: str | None = None,
        within: Any = None,
        headers: Mapping[str, str] | None = None,
        reply_to: str | None = None,
    ) -> str:
        """Store a message in the outbox, from which a relay publishes it; return the id that its consumers see.

        Once this returns, no crash loses it; *within* a connection in a transaction, once that commits. Messages of one
        *aggregate*, by default the value of the declared field, are published in order. Inside a job, another attempt
        publishes nothing twice. *reply_to* is the routing key that a request names for its answer: it is followed if
        the declaration of the message allows it, and else logged and ignored. Raises `ConfigError` for a model that is not declared with `@hold.message(...)`,
        `PayloadInvalid` or `PayloadTooLarge`: nothing was stored.
        """
        new = self._new_message(message, aggregate=aggregate, headers=headers, reply_to=reply_to)
        await self._publish([new], within)
        return new.message_id or new.id

    def publish_sync(
        self,
        message: BaseModel,
        *,
        aggregate: str | None = None,
        within: Any = None,
        headers: Mapping[str, str] | None = None,
        reply_to: str | None = None,
    ) -> str:
        """Do what `publish` does, for code without an event loop: block until it is done."""
        new = self._new_message(message, aggregate=aggregate, headers=headers, reply_to=reply_to)
        if within is not None:
            self._publish_here([new], within)
        else:
            self._run_sync("publish", lambda hold: hold._publish([new]))
        return new.message_id or new.id

    def _new_message(
        self,
        message: BaseModel,
        *,
        aggregate: str | None,
        headers: Mapping[str, str] | None,
        reply_to: str | None,
    ) -> NewMessage:
        message_type = self._registry.message_type_of(type(message))
        new = new_message(
            message_type,
            message,
            id=self.runtime.ids.job_id(),
            aggregate=aggregate,
            headers=headers,
            reply_to=reply_to,
            trace=trace_here(self.runtime.tracer),
        )
        if reply_to is not None and new.routing_key is None:
            self.runtime.logger.warning(
                "reply route refused", message_type=message_type.name, routing_key=reply_to
            )
        job = CURRENT.get()
        if job is None:
            return new
        key = next_message_key(message_type.name, identity_of(message_type, new))
        return new if key is None else keyed(new, key, job_id=job.claim.id)

    async def _publish(self, batch: Sequence[NewMessage], within: Any = None) -> None:
        """Store messages; `publish` makes them."""
        await self._open_for_change()
        job = job_that_can_wait(self.runtime.store)
        with nullcontext() if job is None else job.submitting():
            if within is not None:
                await self._publisher.publish_within(within, batch)
            elif len(batch) == 1:
                await self._publisher.publish(batch[0])
            else:
                await self._publisher.publish_many(batch)

    def _publish_here(self, batch: Sequence[NewMessage], within: Any) -> None:
        """Store messages in this thread: a plain connection may not be used in another."""
        ensure_going_on()
        ensure_blocking(within, "publish")
        run_here(self._publisher.publish_within(within, batch))

    async def feed(
        self,
        model: type[BaseModel],
        message: BaseModel | Mapping[str, Any] | str | bytes,
        *,
        queue: str | None = None,
        message_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Received:
        """Give a message to its consumer as if a broker had delivered it, and return what became of it.

        *message* is an instance of *model*, its fields, or the body. *queue* is needed if *model* has several consumers.
        What is refused becomes a dead letter, as always; the result says why.
        """
        spec = fed_consumer(self._registry, model, queue)
        body = body_of(self._registry.message_type_of(model), message)
        await self._open_for_change()
        incoming = IncomingMessage(
            spec.queue, body, id=message_id, content_type=JSON, headers=dict(headers or {})
        )
        return await self._receive(spec, incoming)

    async def _receive(self, spec: ConsumerSpec, message: IncomingMessage) -> Received:
        [received] = await Receiver(self.runtime, spec).receive([message])
        return received

    feed_sync = in_sync(feed)

    async def _publish_again(self, outbox_id: str) -> None:
        # One that was retried, skipped or deleted meanwhile is left as it is: the letter is settled all the same.
        note = {"actor": "holdfast", "reason": "its dead letter was replayed"}
        await self.runtime.store.outbox.retry([outbox_id], note=note)

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
        refused = RefusedMessage(consumer, body, encoding, truncated, message_id, headers, routing_key)
        return await replay(self.runtime, refused)
