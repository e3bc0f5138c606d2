"""A service that fails in all the ways that services fail, in virtual time, and keeps a log of its own."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

import httpx

from holdfast.testing.world import EPOCH
from holdfast_simulator import Entry

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

HANGS = 100_000.0
_REQUEST = httpx.Request("POST", "http://service.invalid/effects")


class Failing(NamedTuple):
    """One way to fail: with an answer or an error, before the effect or after it."""

    name: str
    weight: int
    status: int | None = None
    error: type[httpx.TransportError] | None = None
    headers: Mapping[str, str] = {}
    body: str = "{}"
    takes_effect: bool = False
    seconds: float = 0.0


PASSING: Sequence[Failing] = (
    Failing("connect", 4, error=httpx.ConnectError),
    Failing("connect timeout", 2, error=httpx.ConnectTimeout, seconds=5),
    Failing("pool timeout", 1, error=httpx.PoolTimeout, seconds=5),
    Failing("read timeout", 4, error=httpx.ReadTimeout, seconds=5),
    Failing("read timeout, done", 4, error=httpx.ReadTimeout, seconds=5, takes_effect=True),
    Failing("reset", 4, error=httpx.ReadError),
    Failing("reset, done", 4, error=httpx.ReadError, takes_effect=True),
    Failing("cut off, done", 2, error=httpx.RemoteProtocolError, takes_effect=True),
    Failing("429 with a hint", 3, 429, headers={"retry-after": "7"}),
    Failing("429 with a senseless hint", 1, 429, headers={"retry-after": "soon"}),
    Failing("408", 1, 408),
    Failing("409", 1, 409),
    Failing("500", 3, 500),
    Failing("502, done", 2, 502, takes_effect=True),
    Failing("503", 3, 503),
    Failing("504, done", 2, 504, takes_effect=True),
    Failing("529", 1, 529),
    Failing("a truncated answer", 2, 200, body='{"effect": "eff', takes_effect=True),
    Failing("an answer of another shape", 1, 200, body='{"other": 1}', takes_effect=True),
    Failing("hangs", 2, 200, seconds=HANGS),
    Failing("hangs, done", 2, 200, seconds=HANGS, takes_effect=True),
)
LASTING: Sequence[Failing] = (
    Failing("400", 1, 400),
    Failing("401", 1, 401),
    Failing("403", 1, 403),
    Failing("404", 1, 404),
    Failing("413", 1, 413),
    Failing("quota", 1, 429, body='{"error": {"code": "insufficient_quota"}}'),
)


class Service:
    """Does its work once per key, when it works at all."""

    def __init__(self, chance: random.Random, struck: Counter[str]) -> None:
        self.log: list[Entry] = []
        self.failing = 0.0
        self.lasting = 0.0
        self._chance = chance
        self._struck = struck
        self._effects: dict[str, str] = {}

    async def post(self, key: str, at: Callable[[], datetime]) -> httpx.Response:
        """Answer a call as a service would, or fail as one would."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.3))
        failing = self._pick()
        if failing is None:
            self._write(key, at(), None, 200, effect=True)
            await asyncio.sleep(self._chance.uniform(0.001, 0.3))
            return _answer(200, body=json.dumps({"effect": self._effects[key]}))
        self._struck[f"service: {failing.name}"] += 1
        self._write(key, at(), failing.name, failing.status, effect=failing.takes_effect)
        await asyncio.sleep(failing.seconds)
        if failing.error is not None:
            raise failing.error(failing.name, request=_REQUEST)
        assert failing.status is not None
        return _answer(failing.status, headers=failing.headers, body=failing.body)

    def _pick(self) -> Failing | None:
        if self._chance.random() < self.failing:
            return self._one_of(PASSING)
        if self._chance.random() < self.lasting:
            return self._one_of(LASTING)
        return None

    def _one_of(self, ways: Sequence[Failing]) -> Failing:
        [chosen] = self._chance.choices(ways, [way.weight for way in ways])
        return chosen

    def _write(self, key: str, at: datetime, fault: str | None, status: int | None, *, effect: bool) -> None:
        """Note the call, and the effect if it is the first under its key."""
        known = self._effects.get(key)
        made = f"eff_{len(self._effects) + 1:06d}" if effect and known is None else None
        if made is not None:
            self._effects[key] = made
        number, seconds = len(self.log) + 1, (at - EPOCH).total_seconds()
        duplicate_of = known if effect else None
        entry = Entry(number, at, seconds, "/effects", key, None, fault, status, made, duplicate_of)
        self.log.append(entry)


def _answer(status: int, *, headers: Mapping[str, str] | None = None, body: str) -> httpx.Response:
    return httpx.Response(status, headers=headers, content=body.encode(), request=_REQUEST)
