"""Providers of a simulated world, and the jobs that call them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import Breaker, current

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from holdfast import Holdfast, JobFunction
    from holdfast.types import Provider
    from tests.simulation.witness import Witness

MODEL, RATED, SHARED, SPARE, BACKED = "model", "rated", "shared", "spare", "backed"
NAMES = (MODEL, RATED, SHARED, SPARE, BACKED)

TIMEOUT = 5.0
AGE = 20.0
BACKUPS = {BACKED: SPARE}
RATES = {RATED: 3}
"""Calls in a second."""
PLACES = {SHARED: 2}
"""Calls at a time."""


@dataclass(frozen=True)
class Providing:
    """How the providers of a world are declared, the same by all its processes."""

    trials: int = 2
    cooldown: float = 3.0
    keyed: bool = False
    """Whether the calls of one provider are limited by customer."""
    minimum: int = 3
    """Calls after which a breaker may open."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Providing:
        """Leave it to chance."""
        return cls(chance.choice((1, 2, 3)), chance.choice((1.0, 4.0)), chance.random() < 0.5)

    @property
    def breaker(self) -> Breaker:
        """A breaker that a handful of calls can trip."""
        return Breaker(window=6, minimum=self.minimum, age=AGE, cooldown=self.cooldown, trials=self.trials)


class ProvidedJobs(NamedTuple):
    """The jobs by whom they call."""

    ask: JobFunction[[int], list[str]]
    dialogue: JobFunction[[int], list[str]]
    """It calls one provider after another, the second within a block of its own."""
    crowd: JobFunction[[int, int], list[str]]
    """It makes its calls side by side."""
    backed: JobFunction[[int], list[str]]


def declare_providers(hold: Holdfast, providing: Providing) -> dict[str, Provider]:
    """Declare the providers."""
    common: dict[str, Any] = {"breaker": providing.breaker, "timeout": TIMEOUT}
    keyed: dict[str, Any] = {"key": _customer, "rate_per_key": "5/s"} if providing.keyed else {}
    return {
        MODEL: hold.provider(MODEL, retry_budget=0.5, **common),
        RATED: hold.provider(RATED, rate=f"{RATES[RATED]}/s", **common),
        SHARED: hold.provider(SHARED, concurrency=PLACES[SHARED], **keyed, **common),
        SPARE: hold.provider(SPARE, **common),
        BACKED: hold.provider(BACKED, backup=BACKUPS[BACKED], **common),
    }


def _customer(call: Any) -> str:
    return customer(call.number)


def customer(number: int) -> str:
    """Return the customer for whom a call is made, where calls are limited by customer."""
    return f"customer {number % 2}"


def declare_provided(
    hold: Holdfast, witness: Witness, sign: str, providing: Providing, call: Callable[..., Awaitable[None]]
) -> ProvidedJobs:
    """Declare the jobs; *call* makes a call to the service behind a provider."""
    providers = declare_providers(hold, providing)

    @hold.stage("ask", provider=providers[MODEL])
    async def ask_model(number: int) -> str:
        await call(MODEL)
        return f"asked@{sign}"

    @hold.stage("rated", provider=providers[RATED])
    async def ask_rated(number: int) -> str:
        await call(RATED)
        return f"rated@{sign}"

    @hold.stage("shared", provider=providers[SHARED])
    async def ask_shared(number: int) -> str:
        await call(SHARED, customer(number) if providing.keyed else None)
        return f"shared@{sign}"

    @hold.stage("backed", provider=providers[BACKED])
    async def ask_backed(number: int) -> str:
        await call(current().provider or BACKED)
        return f"backed@{sign}"

    @hold.stage("block")
    async def ask_in_a_block(number: int) -> str:
        async with providers[MODEL].permit() as name:
            await call(name)
        return f"block@{sign}"

    @hold.job("ask")
    async def ask(number: int) -> list[str]:
        with witness.running(), witness.asking():
            return [await ask_model(number), f"end@{sign}"]

    @hold.job("dialogue")
    async def dialogue(number: int) -> list[str]:
        with witness.running():
            with witness.asking():
                first = await ask_rated(number)
            with witness.asking():
                second = await ask_in_a_block(number)
            return [first, second, f"end@{sign}"]

    @hold.job("crowd")
    async def crowd(number: int, parts: int = 3) -> list[str]:
        with witness.running():
            calls = [ask_shared.options(key=f"part-{part}")(number + part) for part in range(parts)]
            return [*await asyncio.gather(*calls), f"end@{sign}"]

    @hold.job("backed")
    async def backed(number: int) -> list[str]:
        with witness.running(), witness.asking():
            return [await ask_backed(number), f"end@{sign}"]

    return ProvidedJobs(ask, dialogue, crowd, backed)
