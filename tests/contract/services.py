"""An outside service that works until it does not, jobs that call it, and how to watch them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from holdfast import Breaker, ErrorClass, Holdfast, Job, JobFunction, JobHandle, Retryable
from holdfast.operations import ProviderStatus
from holdfast.types import EventKind, Provider
from tests.contract.steps import TIMEOUT

STEADY = Breaker(window=4, minimum=4, cooldown=timedelta(hours=1))
"""Opens with the third failure of four, and stays so for as long as a test lasts."""

BRIEF = Breaker(window=4, minimum=4, cooldown=timedelta(milliseconds=200))


class Service:
    """An outside service that works until it does not."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def call(self, number: int = 0) -> int:
        self.calls.append(number)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answering.wait()
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error
        return number


def down() -> Exception:
    return Retryable("bad gateway", error_class=ErrorClass.UPSTREAM_5XX)


def limited(after: float) -> Exception:
    return Retryable("slow down", error_class=ErrorClass.RATE_LIMITED, after=after)


def declared(hold: Holdfast, service: Service, provider: Provider, **options: int) -> JobFunction[[int], int]:
    """Declare a job with one stage that calls *service* through *provider*."""

    @hold.stage("ask", provider=provider, attempts=options.get("attempts", 3))
    async def ask(number: int) -> int:
        return await service.call(number)

    @hold.job(provider.name)
    async def job(number: int) -> int:
        return await ask(number)

    return job


async def submitted(job: JobFunction[[int], int], count: int) -> list[JobHandle[int]]:
    return [await job.submit(number) for number in range(count)]


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it holds: for changes that are not announced."""
    async with asyncio.timeout(TIMEOUT):
        while not await look():
            await asyncio.sleep(0.01)


async def held(hold: Holdfast, name: str, count: int) -> None:
    """Wait until *count* jobs are held for a provider."""

    async def look() -> bool:
        return (await hold.providers.show(name)).held == count

    await until(look)


async def in_state(hold: Holdfast, name: str, state: str) -> ProviderStatus:
    async def look() -> bool:
        return (await hold.providers.show(name)).state == state

    await until(look)
    return await hold.providers.show(name)


async def reasons(hold: Holdfast, job: Job) -> list[str]:
    return [event.meta["reason"] for event in await hold.events(job.id) if event.kind is EventKind.HELD]


async def retries(hold: Holdfast, handle: JobHandle[int]) -> int:
    """Count the retries in the history of a job."""
    return sum(event.kind is EventKind.RETRY for event in await hold.events(handle.id))


async def tried(hold: Holdfast, times: int) -> bool:
    """Whether the provider `llm` has been tried at least *times* times."""
    events = await hold.providers.events("llm", limit=1_000)
    return sum(event.kind == "tried" for event in events) >= times
