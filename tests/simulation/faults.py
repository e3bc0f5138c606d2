"""Which faults a seed brings, and how often: no seed has all of them, so that each also meets a world without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.processes import Fault, InjectedFault, Moment

if TYPE_CHECKING:
    import random
    from collections import Counter

    from tests.simulation.processes import Process

READS = 0.05
"""How much rarer a fault is at a look into the file: there are that many of them."""


class SeededFaults:
    """Injects faults by chance, until it is calm."""

    def __init__(self, chance: random.Random, injected: Counter[str], *, lease: float) -> None:
        self._chance = chance
        self._injected = injected
        self._lease = lease
        self._rates = {fault: _rate(chance) for fault in (Fault.CRASH, Fault.PAUSE, Fault.ERROR, Fault.SLOW)}
        self._cancels = _rate(chance)
        self._lost_hints = chance.choice((0.0, 0.1, 1.0))
        self.calm = False

    def inject(self, process: Process, point: str, moment: Moment) -> InjectedFault | None:
        """Draw the fault of one call."""
        if self.calm:
            return None
        roll = self._chance.random() / (READS if point == "sqlite.read" else 1)
        for fault, rate in self._rates.items():
            if roll < rate:
                return self._fault(fault, point, moment)
            roll -= rate
        if roll < self._cancels and _is_users_own(process, point):
            return self._fault(Fault.CANCEL, point, moment)
        return None

    def loses_hint(self) -> bool:
        """Whether a hint gets lost, also in calm times: nothing may depend on them."""
        lost = self._chance.random() < self._lost_hints
        self._injected["lost hint"] += lost
        return lost

    def _fault(self, fault: Fault, point: str, moment: Moment) -> InjectedFault | None:
        if fault is Fault.ERROR and point.startswith("sqlite."):
            fault = Fault.DISK  # a file fails inside the call, at one of its statements
        if fault is Fault.DISK and moment is Moment.AFTER:
            return None
        self._injected[f"{fault} {moment} {point}"] += 1
        seconds = self._seconds(fault)
        return InjectedFault(fault, seconds, good_statements=int(seconds))

    def _seconds(self, fault: Fault) -> float:
        if fault is Fault.PAUSE:
            return self._chance.choice((0.3, 1.1, 1.5, 3.0)) * self._lease
        return self._chance.uniform(0.01, 3.0)


def _rate(chance: random.Random) -> float:
    """Never, seldom, or often."""
    return chance.choice((0.0, 0.001, 0.004, 0.015))


def _is_users_own(process: Process, point: str) -> bool:
    """Whether it is the user's code that waits there: no other code cancels the engine's own tasks."""
    people = process.name.startswith("people") and point.startswith(("store.", "archive."))
    return people or point == "service.post"
