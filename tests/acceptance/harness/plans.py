"""What is done to the workers and their database, how often, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from tests.acceptance.harness.databases import StoreName

Kind = Literal[
    "kill", "zombie", "crash", "power_cut", "delay", "reset", "half_open", "cut", "clock", "disk_full"
]

NETWORK: tuple[Kind, ...] = ("delay", "reset", "half_open", "cut")


class Blow(NamedTuple):
    """Something bad, and how many seconds after the start it happens."""

    at: float
    kind: Kind


class Often(NamedTuple):
    """How many there are in any case, and how many more with each minute."""

    least: float
    a_minute: float


EVERYWHERE: dict[Kind, Often] = {"kill": Often(4, 12), "zombie": Often(2, 4)}
IN_A_FILE: dict[Kind, Often] = {"disk_full": Often(1, 1.2)}
ON_A_SERVER: dict[Kind, Often] = {
    "crash": Often(1, 2),
    "power_cut": Often(0, 0.4),
    "clock": Often(1, 2),
    **dict.fromkeys(NETWORK, Often(0.5, 1)),
}


def plan(
    store: StoreName, seconds: float, chance: random.Random, *, without: Collection[Kind] = ()
) -> list[Blow]:
    """Spread the blows evenly over the time, each at a moment that chance picks."""
    wanted = EVERYWHERE | (IN_A_FILE if store == "sqlite" else ON_A_SERVER)
    numbers = {
        kind: round(often.least + often.a_minute * seconds / 60)
        for kind, often in wanted.items()
        if kind not in without
    }
    return sorted(
        Blow(seconds * (index + chance.random()) / number, kind)
        for kind, number in numbers.items()
        for index in range(number)
    )
