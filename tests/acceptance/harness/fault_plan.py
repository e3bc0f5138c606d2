"""Which faults are injected into the workers and their database, how often, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from tests.acceptance.harness.databases import StoreName

FaultKind = Literal[
    "kill", "zombie", "crash", "power_cut", "delay", "reset", "half_open", "cut", "clock", "disk_full"
]

NETWORK: tuple[FaultKind, ...] = ("delay", "reset", "half_open", "cut")


class PlannedFault(NamedTuple):
    """A kind of fault, and how many seconds after the start it is injected."""

    at: float
    kind: FaultKind


class Frequency(NamedTuple):
    """How many faults there are at least, and how many more per minute."""

    least: float
    a_minute: float


EVERYWHERE: dict[FaultKind, Frequency] = {"kill": Frequency(4, 12), "zombie": Frequency(2, 4)}
IN_A_FILE: dict[FaultKind, Frequency] = {"disk_full": Frequency(1, 1.2)}
ON_A_SERVER: dict[FaultKind, Frequency] = {
    "crash": Frequency(1, 2),
    "power_cut": Frequency(0, 0.4),
    "clock": Frequency(1, 2),
    **dict.fromkeys(NETWORK, Frequency(0.5, 1)),
}


def plan(
    store: StoreName, seconds: float, chance: random.Random, *, without: Collection[FaultKind] = ()
) -> list[PlannedFault]:
    """Spread the faults evenly over the time, each at a random moment of its share."""
    planned = EVERYWHERE | (IN_A_FILE if store == "sqlite" else ON_A_SERVER)
    numbers = {
        kind: round(frequency.least + frequency.a_minute * seconds / 60)
        for kind, frequency in planned.items()
        if kind not in without
    }
    return sorted(
        PlannedFault(seconds * (index + chance.random()) / number, kind)
        for kind, number in numbers.items()
        for index in range(number)
    )
