"""What a simulated world does with dead letters: how it is declared, the job that is replayed automatically, the recipient of tickets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import AutoReplay, ErrorClass, current
from holdfast.core.dead_letters.retention import Retention
from tests.simulation.service_failures import Expected

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from holdfast import Holdfast, JobFunction
    from holdfast.core.dead_letters.ticket import Ticket
    from holdfast.engine.options import TicketsPer
    from tests.simulation.witness import Witness

NEVER = timedelta(days=1)
"""How often dead letter services poll in a world that has no work for them."""

AGES = timedelta(days=30)

MAIL, MAIL_BUDGET = "mail", 2
"""The stage of the job that is replayed automatically, and how many attempts it has: they are soon spent."""


DEATHS = 3
"""A job that is replayed automatically fails less often than that, each time in another generation."""

NOT_YET = Expected(ErrorClass.CONNECTION_LOST, passes=True)

HOOK_FAILURES = ("refuses", "hangs", "answer lost")
"""How a hook fails to receive a ticket."""


@dataclass(frozen=True)
class Lettering:
    """How letters are looked after, the same by all processes of a world."""

    poll_interval: timedelta = timedelta(seconds=1)
    archives: bool = False
    kept_for: timedelta | None = None
    most_letters: int | None = None
    letters_a_day: int | None = None
    replays_after: float = 5.0
    """Seconds after which the job that may be replayed automatically is."""
    tickets_per: TicketsPer = "letter"
    hook_failing: float = 0.0
    """Which part of the calls to the ticket hook fails."""
    failing: float = 0.0
    """Which part of the calls to the archive fails."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Lettering:
        """Leave it to chance."""
        return cls(
            poll_interval=timedelta(seconds=chance.choice((0.5, 2.0))),
            archives=chance.random() < 0.7,
            kept_for=chance.choice((None, timedelta(seconds=30))),
            most_letters=chance.choice((None, 2, 5)),
            letters_a_day=chance.choice((None, 3)),
            replays_after=chance.choice((0.0, 4.0, 15.0)),
            hook_failing=chance.choice((0.0, 0.2, 0.6)),
            failing=chance.choice((0.0, 0.1, 0.4)),
        )

    @property
    def retention(self) -> Retention:
        """Jobs that ended stay for ages: what is checked in the end is checked of all of them."""
        return Retention(
            letters=self.kept_for,
            most_letters=self.most_letters,
            finished=AGES,
            keys=AGES,
            letters_a_day=self.letters_a_day,
        )


def declare_mailing(
    hold: Holdfast, witness: Witness, sign: str, after: float, effect: Callable[[], Awaitable[str]]
) -> JobFunction[[int], list[str]]:
    """Declare a job that is replayed automatically when it failed: its first stage is not run again then."""

    @hold.stage("stamp", timeout="20s")
    async def stamp(number: int) -> str:
        return await effect()

    @hold.stage(MAIL, attempts=MAIL_BUDGET, timeout="20s")
    async def mail(number: int) -> str:
        if current().generation <= number % DEATHS:
            with witness.trying():
                witness.observe_failure(NOT_YET)
                raise ConnectionError("not yet")
        return await effect()

    leave = AutoReplay(safe="every call has a key", after=timedelta(seconds=after))

    @hold.job("mailing", auto_replay=leave)
    async def mailing(number: int) -> list[str]:
        with witness.running():
            return [await stamp(number), await mail(number), f"end@{sign}"]

    return mailing


class TicketRecipient:
    """The system behind the ticket hook. It outlives all processes, and remembers what it has received."""

    def __init__(self, chance: random.Random, injected: Counter[str], *, failing: float) -> None:
        self.received: set[str] = set()
        self.failing = failing
        self._chance = chance
        self._injected = injected

    async def receive(self, ticket: Ticket) -> None:
        """Receive a ticket, or fail: without it, too late, or with it and without an answer."""
        failure = self._chance.choice(HOOK_FAILURES)
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        if self._chance.random() >= self.failing:
            self.received.add(ticket.id)
            return
        self._injected[f"hook: {failure}"] += 1
        if failure == "hangs":
            await asyncio.sleep(30.0)
        elif failure == "answer lost":
            self.received.add(ticket.id)
        raise ConnectionResetError("connection refused")
