"""The application: a shop whose orders are jobs, and whose stages call a provider that fails.

This is all that a program has to write to get what the demo shows. There is no retry loop in it, no
state to save and nothing that knows about crashes.
"""

from dataclasses import dataclass

import httpx

from holdfast import Backoff, Holdfast, JobFunction, current

BUDGET = 8
"""Attempts per stage, the first included; a killed worker costs one."""


@dataclass(frozen=True)
class Shop:
    """The application object and its one job."""

    hold: Holdfast
    order: JobFunction[[int, str | None], list[str]]


def open_shop(database_url: str, provider_url: str) -> Shop:
    """Declare the shop's job on a database; its stages call the provider."""
    backoff = Backoff.full_jitter(initial="500ms", ceiling="4s")
    hold = Holdfast(database_url, attempts=BUDGET, backoff=backoff)
    # The client makes no retries of its own, and no proxy stands between us and the loopback interface.
    provider = httpx.AsyncClient(base_url=provider_url, timeout=10, trust_env=False)

    async def effect(name: str, **details: object) -> str:
        key = {"Idempotency-Key": current().key}
        answer = await provider.post(f"/effects/{name}", json=details, headers=key)
        answer.raise_for_status()
        return str(answer.json()["id"])

    @hold.stage("charge")
    async def charge(number: int) -> str:
        return await effect("charge", order=number)

    @hold.stage("ship")
    async def ship(number: int, destination: str) -> str:
        return await effect("ship", order=number, to=destination)

    @hold.stage("notify")
    async def notify(number: int) -> str:
        return await effect("notify", order=number)

    @hold.job("order")
    async def order(number: int, destination: str | None) -> list[str]:
        done = [await charge(number)]
        if destination is not None:
            done.append(await ship(number, destination))
        return [*done, await notify(number)]

    return Shop(hold, order)
