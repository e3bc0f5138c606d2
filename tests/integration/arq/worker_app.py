"""An application whose jobs run on arq workers. The tests declare the same jobs, and run its worker with `arq`."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
from arq import cron

import holdfast.arq
from holdfast import Backoff, Breaker, Holdfast, Retryable, current

AT_ONCE = Backoff(initial=0.001)


def declare(database: str, redis: str, queue: str, folder: Path, *, slots: int = 4) -> Holdfast:  # noqa: C901 - one declaration after the other
    """Declare the jobs of the application; *folder* is where they leave traces."""
    hold = Holdfast(database)
    transport = holdfast.arq.ArqTransport(redis, queue=queue, slots=slots, resend="5s")
    hold.queue("grading", transport=transport)
    model = hold.provider("model", breaker=Breaker(cooldown="1h"))

    def note(name: str) -> None:
        with (folder / name).open("a") as file:
            file.write(f"{os.getpid()}\n")

    @hold.job("double", queue="grading")
    async def double(n: int) -> int:
        return 2 * n

    @hold.job("plain", queue="grading")
    def plain(n: int) -> int:
        return n + 1

    @hold.job("waiting", queue="grading", attempts=2)
    async def waiting(name: str) -> int:
        note(name)
        print("begun", name, flush=True)
        while not (folder / f"{name}.go").exists():
            await asyncio.sleep(0.01)
        return os.getpid()

    @hold.job("crash", queue="grading", attempts=2)
    async def crash() -> None:
        note("crash")
        os._exit(1)

    @hold.job("limited", queue="grading", attempts=2)
    async def limited(seconds: int) -> None:
        response = httpx.Response(
            429, headers={"retry-after": str(seconds)}, request=httpx.Request("GET", "http://x")
        )
        response.raise_for_status()

    @hold.stage("first", attempts=2, backoff=AT_ONCE)
    async def first() -> int:
        return await fail_once("first", 2)

    @hold.stage("second", attempts=2, backoff=AT_ONCE)
    async def second() -> int:
        return await fail_once("second", 2)

    async def fail_once(name: str, attempts: int) -> int:
        note(f"{current().job_id}.{name}")
        if current().attempt < attempts:
            raise Retryable(name)
        return current().attempt

    @hold.job("staged", queue="grading", attempts=1)
    async def staged() -> list[int]:
        return [await first(), await second()]

    @hold.stage("call", provider=model)
    async def call() -> None:
        note("called")

    @hold.job("calling", queue="grading", attempts=1)
    async def calling() -> None:
        await call()

    return hold


async def start(ctx: dict[str, Any]) -> None:
    ctx["greeting"] = "hello"


async def stop(_: dict[str, Any]) -> None:
    print("own hook ran", flush=True)


async def greet(ctx: dict[str, Any], name: str) -> None:
    await ctx["redis"].set(name, f"{ctx['greeting']} {name}")


async def hold_on(ctx: dict[str, Any], name: str) -> None:
    await ctx["redis"].set(f"{name}:begun", 1)
    while not await ctx["redis"].exists(f"{name}:go"):
        await asyncio.sleep(0.02)


async def tick(ctx: dict[str, Any]) -> None:
    await ctx["redis"].set(f"{os.environ['QUEUE']}:tick", ctx["job_id"])


if "QUEUE" in os.environ:
    _redis, _queue = os.environ["REDIS"], os.environ["QUEUE"]

    class Worker(holdfast.arq.Settings):
        hold = declare(os.environ["DATABASE"], _redis, _queue, Path(os.environ["FOLDER"]))
        functions = [greet, hold_on]  # noqa: RUF012 - as arq's settings are written
        cron_jobs = [cron(tick, second=set(range(60)))]  # noqa: RUF012 - as arq's settings are written
        on_startup = start
        on_shutdown = stop
        job_completion_wait = int(os.environ.get("WAIT", "0"))
