"""What a simulated world does with dead letters: how it is declared, the job that goes on by itself, whom tickets reach."""

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
"""How often clerks look for work in a world that has none for them."""

AGES = timedelta(days=30)

MAIL, MAIL_BUDGET = "mail", 2
"""The stage of the job that goes on by itself, and how many attempts it has: they are soon spent."""


DEATHS = 3
"""A job that goes on by itself dies less often than that, each time in another generation."""

NOT_YET = Expected(ErrorClass.CONNECTION_LOST, passes=True)

UNHEARD = ("refuses", "hangs", "answer lost")
"""How a ticket comes not to be heard."""


@dataclass(frozen=True)
class Lettering:
    """How letters are looked after, the same by all processes of a world."""

    poll_interval: timedelta = timedelta(seconds=1)
    archives: bool = False
    kept_for: timedelta | None = None
    most_letters: int | None = None
    letters_a_day: int | None = None
    replays_after: float = 5.0
    """Seconds after which the job that may go on by itself does."""
    tickets_per: TicketsPer = "letter"
    deaf: float = 0.0
    """Which part of the tickets is not heard the first time."""
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
            deaf=chance.choice((0.0, 0.2, 0.6)),
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
    """Declare a job that goes on by itself when it failed: its first stage is not run again then."""

    @hold.stage("stamp", timeout="20s")
    async def stamp(number: int) -> str:
        return await effect()

    @hold.stage(MAIL, attempts=MAIL_BUDGET, timeout="20s")
    async def mail(number: int) -> str:
        if current().generation <= number % DEATHS:
            with witness.trying():
                witness.hears(NOT_YET)
                raise ConnectionError("not yet")
        return await effect()

    leave = AutoReplay(safe="every call has a key", after=timedelta(seconds=after))

    @hold.job("mailing", auto_replay=leave)
    async def mailing(number: int) -> list[str]:
        with witness.running():
            return [await stamp(number), await mail(number), f"end@{sign}"]

    return mailing


class Ears:
    """Whom tickets are told to. They outlive all processes, and remember what they have heard."""

    def __init__(self, chance: random.Random, struck: Counter[str], *, deaf: float) -> None:
        self.heard: set[str] = set()
        self.deaf = deaf
        self._chance = chance
        self._struck = struck

    async def hear(self, ticket: Ticket) -> None:
        """Hear a ticket; or not, or too late, or without a word of it."""
        way = self._chance.choice(UNHEARD)
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        if self._chance.random() >= self.deaf:
            self.heard.add(ticket.id)
            return
        self._struck[f"hook: {way}"] += 1
        if way == "hangs":
            await asyncio.sleep(30.0)
        elif way == "answer lost":
            self.heard.add(ticket.id)
        raise ConnectionResetError("nobody listens")
