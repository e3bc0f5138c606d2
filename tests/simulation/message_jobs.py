"""Messages of a simulated world: their types, how they are declared, and the jobs that publish them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from holdfast import ErrorClass, current
from tests.simulation.service_failures import Expected

if TYPE_CHECKING:
    import random
    import sqlite3
    from collections import Counter
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast import Holdfast, JobFunction
    from holdfast.core.messages.announcements import Render
    from holdfast.types import Announcement
    from tests.simulation.witness import Witness

EXCHANGE = "world"
NOTE, MEMO, REQUEST, STRANGER = "note", "memo", "request", "stranger"
"""Types of messages: one with an identity of its own, one without, one that is consumed, and one that no process declares."""

QUEUE = "requests"
HANDLE = "handle"
"""The queue of requests, and the job that each of them asks for."""

LETTER, SIGN = "letter", "sign off"
"""The job that publishes before, in and after a stage, and the one that ends in its own transaction."""

ANNOUNCED = {
    LETTER: ("completed", "failed", "cancelled", "timed_out", "retrying"),
    HANDLE: ("completed", "failed"),
    SIGN: ("completed",),
}
"""What each job announces."""

BEFORE, WITHIN, AFTER = "before", "in a stage", "after"

AGGREGATES = ("a", "b", "c", "d", "e")
"""What messages are about; few, so that they get in each other's way."""

AGGREGATE_TYPE = "Thing"

RELAY_BUDGET = 5
"""Attempts that a message has which the broker refuses for its own fault."""

NOT_YET = Expected(ErrorClass.CONNECTION_LOST, passes=True)
NEVER = Expected(ErrorClass.BUG, passes=False)

FOR_EVER = 1_000
"""Refusals that no number of attempts overcomes."""


class Note(BaseModel):
    """A message; the broker refuses it as often as it says."""

    serial: str
    about: str
    refusals: int = 0


class Memo(BaseModel):
    """A message without an identity of its own."""

    serial: str
    about: str
    refusals: int = 0


class Request(BaseModel):
    """A message that asks for a job; its consumer fails as often as it says before it takes it."""

    serial: str
    about: str
    refusals: int = 0
    number: int
    fails: int = 0
    metadata: dict[str, str] = {}


@dataclass(frozen=True)
class Messaging:
    """How a world exchanges messages, the same by all its processes."""

    failing: float = 0.0
    """Which part of the messages is lost, repeated or late while the broker is shaky."""
    refusing: float = 0.0
    """Which part of the time a route is refused."""
    faulty: float = 0.0
    """Which part of the messages is refused for its own fault."""
    strangers: bool = False
    """Whether another program writes messages whose type no process declares."""
    relays: int = 0
    """How many processes only relay."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Messaging:
        """Leave it to chance."""
        return cls(
            failing=chance.choice((0.0, 0.2, 0.6)),
            refusing=chance.choice((0.0, 0.1, 0.3)),
            faulty=chance.choice((0.0, 0.1, 0.4)),
            strangers=chance.random() < 0.2,
            relays=chance.choice((0, 0, 0, 1)),
        )

    def refusals(self, chance: random.Random) -> int:
        """Draw how often a message is refused: never, less often than it is tried, or for ever."""
        if chance.random() >= self.faulty:
            return 0
        return chance.choice((1, RELAY_BUDGET - 1, RELAY_BUDGET, FOR_EVER, FOR_EVER))


class MessageJobs(NamedTuple):
    """The jobs by how they publish."""

    letter: JobFunction[[int], list[str]]
    """It publishes before, in and after a stage; with odd numbers it fails the first time, with some for ever."""
    handle: JobFunction[[str, int], int]
    """Requests ask for it."""
    sign_off: JobFunction[[int], int]
    """It ends in its own transaction."""


def declare_messages(
    hold: Holdfast,
    witness: Witness,
    sign: str,
    failed: Counter[str],
    own_transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
) -> MessageJobs:
    """Declare the broker, the types of messages, the jobs and the consumer; failures of callbacks are counted in *failed*."""
    hold.broker("broker", "amqp://localhost")
    common: dict[str, Any] = {"exchange": EXCHANGE, "aggregate_type": AGGREGATE_TYPE, "aggregate": "about"}
    hold.message(NOTE, identity="serial", **common)(Note)
    hold.message(MEMO, **common)(Memo)
    hold.message(REQUEST, identity="serial", **common)(Request)

    def announce(announcement: Announcement) -> Note:
        about = (announcement.generation, announcement.kind, announcement.attempt, announcement.again)
        key = " ".join([announcement.job_id, *map(str, about)])
        if failed[key] < announcement.attempt % 2:
            failed[key] += 1
            raise ConnectionError("not yet")
        return Note(serial=key, about=AGGREGATES[announcement.attempt % len(AGGREGATES)])

    @hold.job(SIGN, announce=dict.fromkeys(ANNOUNCED[SIGN], announce))
    async def sign_off(number: int) -> int:
        with witness.running(), own_transaction() as connection:
            connection.execute("INSERT INTO letters VALUES (?)", [number])
            await current().complete(number, within=connection)
        return number

    letter = _declare_letter(hold, witness, sign, announce)
    return MessageJobs(letter, _declare_receiving(hold, witness, failed, announce), sign_off)


def _declare_letter(hold: Holdfast, witness: Witness, sign: str, announce: Render) -> Any:
    @hold.stage("write")
    async def write(number: int) -> str:
        await hold.publish(_note(number, WITHIN))
        await asyncio.sleep(0.3)
        return f"written@{sign}"

    @hold.job(LETTER, announce=dict.fromkeys(ANNOUNCED[LETTER], announce))
    async def letter(number: int) -> list[str]:
        with witness.running():
            await hold.publish(_note(number, BEFORE))
            if current().attempt <= number % 2:
                witness.observe_failure(NOT_YET)
                raise ConnectionError("not yet")
            if number % 6 == 4:
                witness.observe_failure(NEVER)
                raise TypeError(f"nothing can be made of {number}")
            written = await write(number)
            await hold.publish(Memo(serial=_serial(current().job_id, AFTER), about=AGGREGATES[number % 2]))
            return [written, f"end@{sign}"]

    return letter


def _declare_receiving(hold: Holdfast, witness: Witness, failed: Counter[str], announce: Render) -> Any:
    @hold.job(HANDLE, announce=dict.fromkeys(ANNOUNCED[HANDLE], announce))
    async def handle(serial: str, number: int) -> int:
        with witness.running():
            return number

    @hold.consumer(Request, queue=QUEUE, prefetch=5)
    def take(request: Request) -> Any:
        if failed[request.serial] < request.fails:
            failed[request.serial] += 1
            raise ConnectionError("not yet")
        return handle.call(request.serial, request.number)

    return handle


def _note(number: int, where: str) -> Note:
    """Return the same message in each attempt."""
    return Note(serial=_serial(current().job_id, where), about=AGGREGATES[number % len(AGGREGATES)])


def serials_of(job_id: str) -> set[str]:
    """Return the serial numbers of all that the job `LETTER` publishes."""
    return {_serial(job_id, where) for where in (BEFORE, WITHIN, AFTER)}


def _serial(job_id: str, where: str) -> str:
    return f"{job_id} {where}"
