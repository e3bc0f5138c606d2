"""The application: a shop whose orders are jobs, and whose stages call a provider that fails.

A stage of an order is retried when its own call has failed. Advice comes from the assistant, a provider that the
shop declares: when that is down, it is not called, and the jobs that need it are held.

This is all the code that an application needs for what the demo shows: no retry loop, no state to save, and
no handling of crashes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import httpx

from holdfast import Backoff, Breaker, Holdfast, JobFunction, current
from holdfast.ports import Logger

BUDGET = 8
"""Attempts per stage, the first included; a killed worker costs one."""

ASSISTANT = "assistant"
API_KEY = "sk-demo-" + "1f2e3d4c5b6a7980"
"""The provider requires it with every call. It is in the URL, and so in the client's errors."""

COOLDOWN = timedelta(seconds=2)
"""How long the breaker of the assistant stays open before trials; the default is 30 seconds."""


@dataclass(frozen=True)
class Shop:
    """The application object and its jobs."""

    hold: Holdfast
    order: JobFunction[[int, str | None], list[str]]
    advice: JobFunction[[int], list[str]]
    receipt: JobFunction[[int], list[str]]


Effect = Callable[..., Awaitable[str]]
"""Calls the provider with the key of the running stage, and returns the id of the effect."""


def open_shop(database_url: str, provider_url: str, *, logger: Logger | None = None) -> Shop:
    """Declare the shop's jobs on a database; their stages call the provider."""
    backoff = Backoff.full_jitter(initial="500ms", ceiling="4s")
    hold = Holdfast(database_url, attempts=BUDGET, backoff=backoff, logger=logger)
    effect = _effects(provider_url)
    return Shop(hold, _order(hold, effect), _advice(hold, effect), _receipt(hold, effect))


def _effects(provider_url: str) -> Effect:
    # The client makes no retries of its own, and uses no proxy for the loopback interface.
    provider = httpx.AsyncClient(base_url=provider_url, timeout=10, trust_env=False)

    async def effect(name: str, *, order: int, **details: object) -> str:
        key = {"Idempotency-Key": current().key}
        params = {"api_key": API_KEY, "customer": f"customer-{order}@example.org"}
        body = {"order": order, **details}
        answer = await provider.post(f"/effects/{name}", params=params, json=body, headers=key)
        answer.raise_for_status()
        return str(answer.json()["id"])

    return effect


def _order(hold: Holdfast, effect: Effect) -> JobFunction[[int, str | None], list[str]]:
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

    return order


def _advice(hold: Holdfast, effect: Effect) -> JobFunction[[int], list[str]]:
    assistant = hold.provider(ASSISTANT, breaker=Breaker(cooldown=COOLDOWN))

    @hold.stage("advise", provider=assistant)
    async def advise(number: int) -> str:
        return await effect("advise", order=number)

    @hold.job("advice")
    async def advice(number: int) -> list[str]:
        return [await advise(number)]

    return advice


def _receipt(hold: Holdfast, effect: Effect) -> JobFunction[[int], list[str]]:
    @hold.stage("print")
    async def print_out(number: int) -> str:
        return await effect("print", order=number)

    @hold.job("receipt")
    async def receipt(number: int) -> list[str]:
        return [await print_out(number)]

    return receipt
