"""Publishes the messages of a batch: those of one aggregate one after the other, the aggregates side by side."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.core.errors import BrokerUnavailable, ConfigError, RouteRefused
from holdfast.core.failures.failure import Failure, fingerprint_of
from holdfast.core.messages.broker_message import Route
from holdfast.core.messages.dead_message import PUBLISH
from holdfast.core.messages.outbox import (
    BATCH,
    DueMessage,
    MessageChange,
    MessageTransition,
    after_refusal,
    held_behind,
    held_for,
    outgoing,
    published,
    route_of,
    undeclared,
)
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.relays.broker_availability import BrokerAvailability
from holdfast.engine.runtime import Runtime
from holdfast.ports.messages.outbox import DueMessages


class MessageOutcome(NamedTuple):
    """What became of a message, to be written and reported."""

    message: DueMessage
    route: Route
    transition: MessageTransition


class BatchPublisher:
    """Publishes messages, and returns what is to be written. It writes nothing, and holds no lock meanwhile."""

    def __init__(self, runtime: Runtime, clients: BrokerClients, availability: BrokerAvailability) -> None:
        self._runtime = runtime
        self._types = runtime.registry.message_types
        self._clients = clients
        self._availability = availability
        self._failures = FailureTexts(runtime.classifier, runtime.executor)

    def route(self, message: DueMessage) -> Route:
        """Return where a message goes; a type that is not declared here has a route that is always refused."""
        declared = self._types.get(message.message_type)
        return undeclared(message.message_type) if declared is None else route_of(message, declared.route)

    def publishable(self, messages: Sequence[DueMessage]) -> list[DueMessage]:
        """Return the first messages of a full batch whose brokers take messages, and that are not behind one to wait for."""
        chosen, waiting = [], set()
        for message in messages:
            if message.aggregate in waiting or not self._availability.takes_messages(
                self.route(message).broker
            ):
                waiting.add(message.aggregate)
            else:
                chosen.append(message)
        return chosen[:BATCH]

    def chains(
        self, due: DueMessages, *, leased: Callable[[DueMessage], bool], outcomes: list[MessageOutcome]
    ) -> list[Coroutine[Any, Any, None]]:
        """Return a coroutine for each aggregate, which publishes its messages and adds to *outcomes*.

        A message that has to wait behind another is not published, but an outcome at once. Before each message, *leased*
        says whether its partition is still the relay's.
        """
        aggregates: defaultdict[tuple[str, str], list[DueMessage]] = defaultdict(list)
        for message in due.messages:
            if message.behind is None:
                aggregates[message.aggregate].append(message)
            else:
                outcomes.append(MessageOutcome(message, self.route(message), held_behind(message)))
        return [self._publish_in_order(chain, due, leased, outcomes) for chain in aggregates.values()]

    async def _publish_in_order(
        self,
        chain: Sequence[DueMessage],
        due: DueMessages,
        leased: Callable[[DueMessage], bool],
        outcomes: list[MessageOutcome],
    ) -> None:
        """Publish messages until one is not published: those behind it must not overtake it."""
        for message in chain:
            if not leased(message):
                return
            route = self.route(message)
            if str(route) in due.blocked:
                outcomes.append(MessageOutcome(message, route, held_for(message, route)))
                return
            outcome = await self.publish(message)
            if outcome is None:
                return
            outcomes.append(outcome)
            if outcome.transition.change is not MessageChange.PUBLISHED:
                return

    async def publish(self, message: DueMessage) -> MessageOutcome | None:
        """Publish one message; `None` if its broker is unavailable, which costs the message nothing."""
        route = self.route(message)
        try:
            if not await self._confirmed(message, route):
                return None
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the other messages go on
            transition = after_refusal(
                message,
                route,
                error,
                await self._failure(message, error),
                dead_id=self._runtime.ids.job_id(),
                roll=self._runtime.random.random(),
            )
            return None if transition is None else MessageOutcome(message, route, transition)
        return MessageOutcome(message, route, published(message))

    async def _confirmed(self, message: DueMessage, route: Route) -> bool:
        """Publish a message, and return true when it is confirmed; false if its broker is not to be asked now."""
        if message.message_type not in self._types:
            raise RouteRefused(
                f"no message type {message.message_type!r} is declared here; declare it with @hold.message(...)"
            )
        sent = outgoing(message, route)
        try:
            client = self._clients.get(route.broker)
        except ConfigError as error:  # no message of the route can be published until it is configured
            raise RouteRefused(str(error)) from error
        if not self._availability.admits(route.broker):
            return False
        asked_at = self._runtime.clock.monotonic()
        try:
            await client.publish(sent)
        except BrokerUnavailable as error:
            self._availability.failed(route.broker, self._runtime.describe(error))
            raise
        except asyncio.CancelledError:
            self._availability.abandoned(route.broker)
            raise
        except Exception:
            self._availability.answered(route.broker, asked_at=asked_at)  # with a refusal
            raise
        self._availability.answered(route.broker, asked_at=asked_at)
        return True

    async def _failure(self, message: DueMessage, error: Exception) -> Failure:
        """Classify an error; the dead letters of one cause and message type are one group."""
        failure = await self._failures.write(self._failures.classify(error))
        place = str(failure.context.get("place", ""))
        group = fingerprint_of(failure.error_class, place, job=PUBLISH, stage=message.message_type)
        return replace(failure, fingerprint=group)
