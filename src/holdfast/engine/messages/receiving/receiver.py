"""The receiver: it decodes the messages of one consumer, and stores the jobs that they ask for.

Messages of a broker, of a test and of a replay take the same path. None of them is ever more than parsed as JSON.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from holdfast.core.errors import ConfigError, PayloadInvalid, PayloadTooLarge, SubmitError
from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Submission
from holdfast.core.messages.broker_message import IncomingMessage
from holdfast.core.messages.inbox import (
    InboxAnswer,
    InboxItem,
    InboxOutcome,
    Received,
    ReceivedAs,
    Refusal,
    RefusalReason,
    dead_message,
    refusal_from,
    refusal_of_broker,
    refusal_of_envelope,
    refuse,
    refused_id,
    storable_id,
    trace_of,
)
from holdfast.core.strict_json import decode
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.receiving.delivery import Delivery
from holdfast.engine.registry import ConsumerSpec
from holdfast.engine.runtime import Runtime

MOST_FAILURES = 5
"""How often the function of a consumer may fail for one message before the message is refused."""

LONGEST_CALL = 10.0
"""Seconds that an async function may take for one message."""

LOGGED = (ReceivedAs.REFUSED, ReceivedAs.POSTPONED)
"""What is logged at any level."""

COUNTED_MESSAGES = 10_000
"""Most messages whose failures are counted; the oldest are forgotten."""


class StorableCall(Protocol):
    """A call of a job that a consumer's function returns."""

    def submission_of(self, message_id: str, *, fingerprint: str, trace: str | None) -> Submission:
        """Return the submission whose key is *message_id*. Raises `ConfigError` if the call has another key."""
        ...


class _Accepted(NamedTuple):
    """A message that can be given to its consumer."""

    message: IncomingMessage
    model: BaseModel
    message_id: str
    fingerprint: str

    @property
    def item(self) -> InboxItem:
        """The message, without a job."""
        return InboxItem(self.message_id, self.fingerprint)


class Receiver:
    """Receives messages for one consumer. Once `receive` has returned, a message is stored and may be acknowledged."""

    def __init__(self, runtime: Runtime, spec: ConsumerSpec) -> None:
        self._runtime = runtime
        self._spec = spec
        self._failures: OrderedDict[str, int] = OrderedDict()

    async def receive(self, batch: Sequence[IncomingMessage]) -> list[Received]:
        """Store what the messages ask for, and dead letters of those that are refused; return what became of each.

        A message whose function failed, and may succeed another time, is postponed: nothing of it is stored, and it
        must be given back to the broker. Raises `StoreUnavailable`: the same batch may be received again.
        """
        received = [self._limited(one) for one in await self.offer(batch)]
        stored = await self._store_refused(list(zip(batch, received, strict=True)))
        self._count(stored)
        for message, one in zip(batch, stored, strict=True):
            if self._runtime.logger.verbose or one.outcome in LOGGED:
                self._log(message, one)
        return stored

    async def offer(self, batch: Sequence[IncomingMessage]) -> list[Received]:
        """Store what the messages ask for; of those that are refused or postponed, nothing is stored."""
        examined = [self._examine(message) for message in batch]
        accepted = [one for one in examined if isinstance(one, _Accepted)]
        answers = iter(await self._store_accepted(accepted) if accepted else ())
        return [
            Received(ReceivedAs.REFUSED, storable_id(message.id), refusal=one)
            if isinstance(one, Refusal)
            else self._received(one, next(answers))
            for message, one in zip(batch, examined, strict=True)
        ]

    def _examine(self, message: IncomingMessage) -> _Accepted | Refusal:
        """Decode a message, or say why it is refused. Never raises: messages come from outside."""
        message_type = self._spec.message_type
        if message_type is None:
            return refusal_of_broker(message)
        refusal = refusal_of_envelope(message, version=message_type.version)
        if refusal is not None:
            return refusal
        reason = RefusalReason.MALFORMED
        try:
            fields = decode(message.body.decode(), what="the body")
            reason = RefusalReason.SCHEMA
            model, _ = message_type.check(fields)
            hashed = message_type.hashed_part(fields)
            reason = RefusalReason.IDENTITY
            message_id = _identified(message_type, message, fields)
        except (PayloadInvalid, PayloadTooLarge, UnicodeDecodeError) as error:
            return self._refuse(reason, message, error)
        except Exception as error:  # noqa: BLE001 - a validator of the application may raise anything
            return refusal_from(reason, message, _for_good(self._runtime.classifier.classify(error)))
        return _Accepted(message, model, message_id, self._runtime.fingerprint(hashed))

    def _refuse(self, reason: RefusalReason, message: IncomingMessage, error: Exception) -> Refusal:
        why = "the body is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return refuse(reason, message, self._runtime.redactor(why))

    async def _store_accepted(self, accepted: Sequence[_Accepted]) -> list[InboxAnswer]:
        """Store the jobs of messages: with their functions in the transaction, if these write rows of their own."""
        if self._spec.takes_delivery:
            return await self._store_with_function(accepted)
        works = await self._call_all(accepted)
        failed = [
            (one, work) for one, work in zip(accepted, works, strict=True) if isinstance(work, Exception)
        ]
        items = [
            one.item._replace(work=work)
            for one, work in zip(accepted, works, strict=True)
            if not isinstance(work, Exception)
        ]
        stored = iter(await self._runtime.store.inbox.receive(self._spec.name, items) if items else ())
        checked = iter(await self._store_failed(failed) if failed else ())
        return [next(checked) if isinstance(work, Exception) else next(stored) for work in works]

    async def _store_failed(self, failed: Sequence[tuple[_Accepted, Exception]]) -> list[InboxAnswer]:
        """Ask the store about messages whose function raised: one that was received before is no failure."""
        errors = {one.message_id: error for one, error in reversed(failed)}

        async def fail(item: InboxItem, _: Any) -> Submission | None:
            raise errors[item.message_id]

        items = [one.item for one, _ in failed]
        return await self._runtime.store.inbox.receive_with(self._spec.name, items, fail)

    async def _store_with_function(self, accepted: Sequence[_Accepted]) -> list[InboxAnswer]:
        by_id = {one.message_id: one for one in reversed(accepted)}

        async def make(item: InboxItem, connection: Any) -> Submission | None:
            one, message = by_id[item.message_id], by_id[item.message_id].message
            delivery = Delivery(
                one.message_id, connection, message.headers, trace_of(message), message.redelivered
            )
            made = self._function(one.model, delivery)
            return self._submission(one, await made if self._spec.is_async else made)

        items = [one.item for one in accepted]
        return await self._runtime.store.inbox.receive_with(self._spec.name, items, make)

    async def _call_all(self, accepted: Sequence[_Accepted]) -> list[Submission | Exception | None]:
        """Call the function for each message; plain ones in one thread, so that they block no event loop."""
        if not self._spec.is_async:
            return await self._runtime.executor.run(lambda: [self._call_here(one) for one in accepted])
        return [await self._call_async(one) for one in accepted]

    def _call_here(self, one: _Accepted) -> Submission | Exception | None:
        try:
            return self._submission(one, self._function(one.model))
        except Exception as error:  # noqa: BLE001 - the edge of the consumer's function
            return error

    async def _call_async(self, one: _Accepted) -> Submission | Exception | None:
        try:
            async with asyncio.timeout(LONGEST_CALL):
                return self._submission(one, await self._function(one.model))
        except Exception as error:  # noqa: BLE001 - the edge of the consumer's function
            return error

    @property
    def _function(self) -> Callable[..., Any]:
        if self._spec.function is None:
            raise ConfigError(f"consumer {self._spec.name!r} has no function")
        return self._spec.function

    def _submission(self, one: _Accepted, call: StorableCall | None) -> Submission | None:
        if call is None:
            return None
        if isinstance(call, Coroutine) or not hasattr(call, "submission_of"):
            raise ConfigError(
                f"the function of consumer {self._spec.name!r} returned a {type(call).__name__}; return job.call(...), or None"
            )
        return call.submission_of(one.message_id, fingerprint=one.fingerprint, trace=trace_of(one.message))

    def _received(self, one: _Accepted, answer: InboxAnswer) -> Received:
        """Return what the store's answer means for a message."""
        if answer.outcome is InboxOutcome.NEW:
            return Received(ReceivedAs.NEW, one.message_id, answer.job_id)
        if answer.outcome is InboxOutcome.REPEATED:
            return Received(ReceivedAs.REPEATED, one.message_id, answer.job_id, answer.status)
        if answer.error is None:
            why = "a message with its id was received before, with another payload"
            refusal = refuse(RefusalReason.CONFLICT, one.message, why)
            return Received(ReceivedAs.REFUSED, one.message_id, answer.job_id, refusal=refusal)
        failure = self._runtime.classifier.classify(answer.error)
        if failure.retryable and not isinstance(answer.error, SubmitError | ConfigError):
            refusal = refusal_from(RefusalReason.CONSUMER_FAILED, one.message, failure)
            return Received(ReceivedAs.POSTPONED, one.message_id, refusal=refusal, failure=failure)
        refusal = refusal_from(RefusalReason.CONSUMER_FAILED, one.message, _for_good(failure))
        return Received(ReceivedAs.REFUSED, one.message_id, refusal=refusal, failure=failure)

    def _limited(self, one: Received) -> Received:
        """Refuse a message that was postponed too often."""
        message_id = one.message_id or ""
        if one.outcome is not ReceivedAs.POSTPONED:
            self._failures.pop(message_id, None)
            return one
        failures = self._failures.pop(message_id, 0) + 1
        if failures > MOST_FAILURES:
            return one._replace(outcome=ReceivedAs.REFUSED)
        self._failures[message_id] = failures
        if len(self._failures) > COUNTED_MESSAGES:
            self._failures.popitem(last=False)
        return one

    async def _store_refused(self, received: Sequence[tuple[IncomingMessage, Received]]) -> list[Received]:
        """Store dead letters of what was refused; a message that is delivered again makes no second one."""
        items = [
            self._refused_item(message, one.refusal)
            for message, one in received
            if one.outcome is ReceivedAs.REFUSED and one.refusal is not None
        ]
        answers = iter(await self._runtime.store.inbox.receive(self._spec.name, items) if items else ())
        return [
            one._replace(job_id=next(answers).job_id) if one.outcome is ReceivedAs.REFUSED else one
            for _, one in received
        ]

    def _refused_item(self, message: IncomingMessage, refusal: Refusal) -> InboxItem:
        own_id = storable_id(message.id) if refusal.reason is RefusalReason.DEAD_LETTERED else None
        message_id = own_id or refused_id(message)
        dead = dead_message(self._runtime.ids.job_id(), self._spec.name, message, refusal)
        return InboxItem(message_id, message_id, dead)

    def _count(self, received: Sequence[Received]) -> None:
        metrics = self._runtime.metrics
        for outcome, number in Counter(one.outcome for one in received).items():
            metrics.count("messages_received", number, outcome=outcome.value)
        made = sum(one.outcome is ReceivedAs.NEW and one.job_id is not None for one in received)
        metrics.count("jobs_created", made)

    def _log(self, message: IncomingMessage, one: Received) -> None:
        """Log what became of a message; nothing of its body is logged."""
        logger = self._runtime.logger
        facts = {"consumer": self._spec.name, "queue": message.queue, "message_id": one.message_id}
        match one.outcome:
            case ReceivedAs.NEW:
                logger.debug("message received", **facts, job_id=one.job_id)
            case ReceivedAs.REPEATED:
                status = None if one.status is None else one.status.value
                logger.debug("message repeated", **facts, job_id=one.job_id, status=status)
            case ReceivedAs.REFUSED if one.refusal is not None:
                why = one.refusal.failure.message
                logger.warning(
                    "message refused",
                    **facts,
                    job_id=one.job_id,
                    reason=one.refusal.reason.value,
                    message=why,
                )
            case _:
                why = "" if one.failure is None else one.failure.message
                logger.warning("message postponed", **facts, message=why)


def _identified(message_type: MessageType, message: IncomingMessage, fields: Mapping[str, Any]) -> str:
    """Return what identifies the message: the declared fields, or else the id that its sender gave it."""
    message_id = message_type.message_id(fields) or storable_id(message.id)
    if message_id is None:
        raise PayloadInvalid(
            "it has no id; send a message id, or declare what identifies it: hold.message(..., identity=…)"
        )
    return message_id


def _for_good(failure: Failure) -> Failure:
    return replace(failure, retryable=False)
