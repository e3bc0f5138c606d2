"""What the simulated processes run: jobs of every shape that the engine promises something about."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from holdfast import Backoff, Holdfast, current

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx

    from holdfast.face.jobs import JobFunction

BUDGET = 4
QUICK = Backoff.full_jitter(initial="1s", ceiling="8s")


class Answer(BaseModel):
    """What the service answers."""

    effect: str


@dataclass(frozen=True)
class Jobs:
    """The jobs by what is special about them."""

    plain: JobFunction[[int], list[str]]
    order: JobFunction[[int], list[str]]
    fan: JobFunction[[int], list[str]]
    long: JobFunction[[int, float], list[str]]
    flaky: JobFunction[[int], int]
    doomed: JobFunction[[int], None]
    blocking: JobFunction[[int], int]
    parent: JobFunction[[int], list[str]]


def declare(hold: Holdfast, post: Callable[[str], Awaitable[httpx.Response]], sign: str) -> Jobs:
    """Declare the jobs for one process; what it makes is signed with its name."""
    plain, order, fan, long = _calling(hold, post, sign)
    flaky, doomed, blocking = _pure(hold)

    @hold.job("parent")
    async def parent(number: int) -> list[str]:
        children = [await plain.submit(number), await flaky.submit(number)]
        return [child.id for child in children]

    return Jobs(plain, order, fan, long, flaky, doomed, blocking, parent)


def _calling(hold: Holdfast, post: Callable[[str], Awaitable[httpx.Response]], sign: str) -> Any:
    """Jobs that call the service, each call under a key."""

    async def effect() -> str:
        response = await post(current().key)
        response.raise_for_status()
        return f"{Answer.model_validate_json(response.content).effect}@{sign}"

    @hold.stage("pack", timeout="20s")
    async def pack(number: int) -> str:
        return await effect()

    @hold.stage("ship", attempts=BUDGET - 1, timeout="20s")
    async def ship(number: int) -> str:
        return await effect()

    @hold.stage("rest")
    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @hold.job("plain", timeout="30s")
    async def plain(number: int) -> list[str]:
        return [await effect(), f"end@{sign}"]

    @hold.job("order")
    async def order(number: int) -> list[str]:
        return [await pack(number), await ship(number), f"end@{sign}"]

    @hold.job("fan")
    async def fan(number: int) -> list[str]:
        calls = [pack.options(key=f"part-{part}")(number) for part in range(3)]
        return [*await asyncio.gather(*calls), f"end@{sign}"]

    @hold.job("long")
    async def long(number: int, seconds: float) -> list[str]:
        await rest(seconds)
        return [await ship(number), f"end@{sign}"]

    return plain, order, fan, long


def _pure(hold: Holdfast) -> Any:
    """Jobs that call nobody."""

    @hold.job("flaky")
    async def flaky(number: int) -> int:
        if current().attempt <= number % BUDGET:
            raise ConnectionError("not yet")
        return number

    @hold.job("doomed")
    async def doomed(number: int) -> None:
        raise TypeError(f"nothing can be made of {number}")

    @hold.job("blocking")
    def blocking(number: int) -> int:
        return number

    return flaky, doomed, blocking
