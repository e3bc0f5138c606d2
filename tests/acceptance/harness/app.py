"""The application that the processes of these tests share.

An order has two stages, each of which has one effect in an outside service, under a key that no retry
changes; a parcel has one effect and no stage. A tick takes twenty milliseconds and does nothing, in a queue
of its own: ticks are counted. A parent has many children and waits for them all. Other jobs
crash their worker, and some are harmless.
"""

import asyncio
import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import httpx

from holdfast import Backoff, Holdfast, JobFunction, current

BUDGET = 25
"""Attempts per stage of an order: many, since the tests kill workers far more often than production does."""

KILLER_BUDGET = 3

TICKS = "ticks"
TICK_SECONDS = 0.02
CHILD_SECONDS = 0.2

Weapon = Literal["_exit", "segfault", "sigkill"]


@dataclass(frozen=True)
class App:
    """The jobs, by the names that tests call them."""

    hold: Holdfast
    service: httpx.AsyncClient
    order: JobFunction[[int], list[str]]
    parcel: JobFunction[[int], list[str]]
    tick: JobFunction[[int], list[str]]
    parent: JobFunction[[int], list[str]]
    harmless: JobFunction[[int], int]
    frugal: JobFunction[[int], int]
    killer: JobFunction[[Weapon], None]
    leaver: JobFunction[[], None]
    leaver_in_a_thread: JobFunction[[], None]
    leaver_in_a_stage: JobFunction[[], None]


def build(url: str, *, service_url: str = "http://127.0.0.1:9") -> App:
    """Declare the jobs on the database at *url*; their effects go to the service."""
    quick = Backoff.full_jitter(initial="100ms", ceiling="400ms")
    hold = Holdfast(url, attempts=BUDGET, backoff=quick)
    service = httpx.AsyncClient(base_url=service_url, timeout=httpx.Timeout(5, pool=None))

    async def effect(name: str, number: int) -> str:
        answer = await service.post(
            f"/effects/{name}", json={"number": number}, headers={"Idempotency-Key": current().key}
        )
        answer.raise_for_status()
        return signed(answer.json()["id"])

    @hold.stage("charge")
    async def charge(number: int) -> str:
        return await effect("charge", number)

    @hold.stage("notify")
    async def notify(number: int) -> str:
        return await effect("notify", number)

    @hold.job("order")
    async def order(number: int) -> list[str]:
        return [await charge(number), await notify(number), signed("done")]

    @hold.job("parcel")
    async def parcel(number: int) -> list[str]:
        return [await effect("parcel", number), signed("done")]

    harmless, frugal = _harmless_jobs(hold)
    return App(
        hold,
        service,
        order,
        parcel,
        _tick(hold),
        _parent(hold),
        harmless,
        frugal,
        _killer(hold),
        *_leavers(hold),
    )


def _tick(hold: Holdfast) -> JobFunction[[int], list[str]]:
    @hold.job("tick", queue=TICKS)
    async def tick(number: int) -> list[str]:
        await asyncio.sleep(TICK_SECONDS)  # stands for a call of that duration
        return [signed("done")]

    return tick


def _parent(hold: Holdfast) -> JobFunction[[int], list[str]]:
    @hold.job("child")
    async def child(number: int) -> list[str]:
        await asyncio.sleep(CHILD_SECONDS)  # stands for a call of that duration
        return [f"child {number}", signed("done")]

    @hold.job("parent")
    async def parent(children: int) -> list[str]:
        handles = await child.submit_many((number,) for number in range(children))
        results = await asyncio.gather(*[each.result() for each in handles])
        return [*(result[0] for result in results), signed("done")]

    return parent


def _harmless_jobs(hold: Holdfast) -> tuple[JobFunction[[int], int], JobFunction[[int], int]]:
    @hold.job("harmless", attempts=KILLER_BUDGET)
    async def harmless(number: int) -> int:
        return number

    @hold.job("frugal", attempts=2)
    async def frugal(number: int) -> int:
        return number

    return harmless, frugal


def _killer(hold: Holdfast) -> JobFunction[[Weapon], None]:
    @hold.job("killer", attempts=KILLER_BUDGET)
    async def killer(weapon: Weapon) -> None:
        match weapon:
            case "_exit":
                os._exit(1)
            case "segfault":
                ctypes.string_at(0)
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)

    return killer


def _leavers(hold: Holdfast) -> tuple[JobFunction[[], None], JobFunction[[], None], JobFunction[[], None]]:
    @hold.job("leaver")
    async def leaver() -> None:
        sys.exit("the handler has had enough")

    @hold.job("leaver in a thread")
    def leaver_in_a_thread() -> None:
        sys.exit("the handler has had enough")

    @hold.stage("leaving")
    async def leaving() -> None:
        sys.exit("the stage has had enough")

    @hold.job("leaver in a stage")
    async def leaver_in_a_stage() -> None:
        await leaving()

    return leaver, leaver_in_a_thread, leaver_in_a_stage


def signed(what: str) -> str:
    """Add the process id to a result, so that a write by a process that holds no lease is detected."""
    return f"{what}@{os.getpid()}"


def submit_orders(url: str, count: int) -> list[str]:
    """Submit from this process; return the acknowledged ids."""

    async def submit() -> list[str]:
        app = build(url)
        async with app.service, app.hold:
            return [handle.id for handle in await app.order.submit_many((n,) for n in range(count))]

    return asyncio.run(submit())


def duration(seconds: float) -> timedelta:
    """Return *seconds* as a `timedelta`, which the library takes."""
    return timedelta(seconds=seconds)
