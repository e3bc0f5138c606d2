"""Relays that run when a test runs them, a broker that does what a test says, and messages to publish."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.core.messages.broker_message import OutgoingMessage
from holdfast.core.messages.outbox import BATCH, NewMessage, OutboxMessage
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.relays.relay import Relay
from holdfast.ports import Clock
from holdfast.wiring.system import SystemIds
from tests.contract.steps import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable

_IDS = SystemIds()


class ScriptedBroker:
    """A broker that takes messages unless *refuses* returns an error for one, and only while it is *answering*."""

    def __init__(self) -> None:
        self.received: list[OutgoingMessage] = []
        self.asked: list[str] = []
        self.refuses: Callable[[OutgoingMessage], Exception | None] = lambda _: None
        self.answering = asyncio.Event()
        self.answering.set()
        self.answers_refusals: asyncio.Event | None = None
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, message: OutgoingMessage) -> None:
        self.asked.append(message.id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)  # as one that is asked over a network
            error = self.refuses(message)
            if error is not None:
                if self.answers_refusals is not None:
                    await self.answers_refusals.wait()
                raise error
            self.received.append(message)  # it has the message before its sender knows
            await self.answering.wait()
        finally:
            self.at_once -= 1

    @property
    def ids(self) -> list[str]:
        """The ids of the messages that arrived, in order."""
        return [message.id for message in self.received]

    def first_arrivals(self) -> dict[str, list[int]]:
        """The numbers of each aggregate's messages, in the order in which they arrived first."""
        arrived: defaultdict[str, dict[int, None]] = defaultdict(dict)
        for message_id in self.ids:
            aggregate, _, number = message_id.partition("#")
            arrived[aggregate].setdefault(int(number))
        return {aggregate: list(numbers) for aggregate, numbers in arrived.items()}

    async def until_asked(self, times: int) -> None:
        """Wait until it was asked *times* times."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.asked) < times:
                await asyncio.sleep(0.005)


class Graded(BaseModel):
    """A message that says nothing in particular."""

    number: int = 0


def declare(hold: Holdfast, broker: ScriptedBroker, *types: str, name: str = "local") -> None:
    """Declare the broker and message types, each with a route of its own."""
    declared = hold.broker(name, broker)
    for each in types:
        hold.message(each, aggregate_type="Submission", broker=declared)(type(each, (Graded,), {}))


def a_message(
    aggregate: str = "sub", number: int = 0, *, message_type: str = "graded", **fields: Any
) -> NewMessage:
    """Return a message whose id for consumers says which it is: `sub#0`."""
    return NewMessage(
        _IDS.job_id(),
        "Submission",
        aggregate,
        message_type,
        f'{{"number": {number}}}',
        message_id=f"{aggregate}#{number}",
        **fields,
    )


def a_relay(hold: Holdfast, name: str = "relay", *, clock: Clock | None = None, **options: Any) -> Relay:
    """Make a relay with clients of its own, as another process would have it."""
    runtime = hold.runtime if clock is None else replace(hold.runtime, clock=clock)
    return Relay(name, runtime, BrokerClients(runtime), **options)


async def added(hold: Holdfast, *messages: NewMessage) -> list[str]:
    """Store messages; return their ids in the outbox."""
    for first in range(0, len(messages), BATCH):
        await hold.runtime.store.outbox.add(messages[first : first + BATCH])
    return [message.id for message in messages]


async def relay_all(*relays: Relay) -> None:
    """Run relays, one after the other, until none of them has anything to do at once."""
    async with asyncio.timeout(TIMEOUT):
        while 0 in [await relay.run_once() for relay in relays]:
            pass


async def stored(hold: Holdfast, message_id: str) -> OutboxMessage:
    return await hold.runtime.store.outbox.get(message_id)
