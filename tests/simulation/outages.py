"""Services behind providers: each is well for a while, then away, limiting its callers, or denying them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.provider_oracle import Ended
from tests.simulation.service_failures import LASTING, PASSING, Failing

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable, Sequence

_FAILURES = {failing.name: failing for failing in (*PASSING, *LASTING)}

WELL, MIXED, AWAY, LIMITED, DENIED = "well", "mixed", "away", "limited", "denied"

_MOODS: dict[str, tuple[float, Sequence[str]]] = {
    WELL: (0.1, ["400", "500", "a bug of the client"]),
    MIXED: (0.6, ["503", "reset", "500", "422"]),
    AWAY: (0.95, ["connect", "503", "read timeout", "hangs", "hangs", "404"]),
    LIMITED: (0.9, ["429 with a hint", "429 with a hint in its body", "429 with a senseless hint"]),
    DENIED: (0.9, ["401", "402", "quota"]),
}
"""Which part of the calls fails in each mood, and how: some failures say nothing about the service."""

_OFTEN = {WELL: 5, MIXED: 2, AWAY: 4, LIMITED: 2, DENIED: 1}


_SAY_NOTHING = ("400", "404", "422", "a bug of the client")


def ended_by(failing: Failing | None) -> Ended:
    """Return what a call shows its caller about the service."""
    if failing is None:
        return Ended.WELL
    if failing.name in _SAY_NOTHING:
        return Ended.NOTHING
    refused = {*_MOODS[LIMITED][1], *_MOODS[DENIED][1]}
    return Ended.REFUSED if failing.name in refused else Ended.BAD


class Outages:
    """One service. Its mood changes over time, until it is calm."""

    def __init__(self, chance: random.Random, injected: Counter[str], *, time: Callable[[], float]) -> None:
        self._chance = chance
        self._injected = injected
        self._time = time
        self._mood, self._until = WELL, 0.0
        self._script: list[str | None] = []
        self.calm = False

    async def answer(self) -> Failing | None:
        """Treat a call; `None` if it goes well."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        failing = self._failing()
        if failing is not None:
            self._injected[f"service: {failing.name}"] += 1
            await asyncio.sleep(failing.seconds)
        return failing

    def follows(self, *script: str | None) -> None:
        """Fail with these failures, one call after another; `None` for one that goes well. After that it is well."""
        self._script = list(script)
        self.calm = True

    def _failing(self) -> Failing | None:
        if self._script:
            name = self._script.pop(0)
            return None if name is None else _FAILURES[name]
        if self.calm:
            return None
        if self._time() >= self._until:
            [self._mood] = self._chance.choices(list(_OFTEN), list(_OFTEN.values()))
            self._until = self._time() + self._chance.uniform(2.0, 20.0)
        part, names = _MOODS[self._mood]
        return _FAILURES[self._chance.choice(names)] if self._chance.random() < part else None
