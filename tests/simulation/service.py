"""A service with all the failures that services have, in virtual time, and with a log of its own."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.testing.seeded_system import EPOCH
from holdfast_simulator import Entry
from tests.simulation.service_failures import LASTING, PASSING, Failing, answered

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable, Sequence

    import httpx


class Reply(NamedTuple):
    """What a call comes to: an effect, or a failure."""

    effect: str | None
    failing: Failing | None

    def given(self) -> httpx.Response:
        """Answer, or raise what the client raises."""
        if self.failing is not None:
            return self.failing.given()
        return answered(200, body=json.dumps({"effect": self.effect}))


class Service:
    """Does its work once per key, when it works at all. It has a clock of its own, which is never set."""

    def __init__(self, chance: random.Random, injected: Counter[str], *, time: Callable[[], float]) -> None:
        self.log: list[Entry] = []
        self.failing = 0.0
        self.lasting = 0.0
        self._chance = chance
        self._injected = injected
        self._time = time
        self._effects: dict[str, str] = {}

    async def post(self, key: str) -> Reply:
        """Treat a call as a service would, or fail as one would."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        failing = self._pick()
        if failing is None:
            self._write(key, None, 200, effect=True)
            await asyncio.sleep(self._chance.uniform(0.001, 0.3))
            return Reply(self._effects[key], None)
        self._injected[f"service: {failing.name}"] += 1
        self._write(key, failing.name, failing.status, effect=failing.takes_effect)
        await asyncio.sleep(failing.seconds)
        return Reply(None, failing)

    def _pick(self) -> Failing | None:
        if self._chance.random() < self.failing:
            return self._one_of(PASSING)
        if self._chance.random() < self.lasting:
            return self._one_of(LASTING)
        return None

    def _one_of(self, failures: Sequence[Failing]) -> Failing:
        [chosen] = self._chance.choices(failures, [failing.weight for failing in failures])
        return chosen

    def _write(self, key: str, fault: str | None, status: int | None, *, effect: bool) -> None:
        """Note the call, and the effect if it is the first under its key."""
        known = self._effects.get(key)
        made = f"eff_{len(self._effects) + 1:06d}" if effect and known is None else None
        if made is not None:
            self._effects[key] = made
        number, seconds = len(self.log) + 1, self._time()
        at, duplicate_of = EPOCH + timedelta(seconds=seconds), known if effect else None
        entry = Entry(number, at, seconds, "/effects", key, None, fault, status, made, duplicate_of)
        self.log.append(entry)
