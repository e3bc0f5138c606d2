"""An application that had arq functions, one of which is a durable job by now, with its old worker and a new one."""

import os
from typing import Any

from arq import Retry, cron
from arq.connections import RedisSettings

import holdfast.arq
from holdfast import Backoff, Holdfast
from holdfast.arq import ArqTransport, durable

REDIS, QUEUE = os.environ.get("REDIS", "redis://localhost"), os.environ.get("QUEUE", "arq:queue")
hold = Holdfast(os.environ.get("DATABASE", "sqlite:///unused.db"))
hold.queue("grading", transport=ArqTransport(REDIS, queue=f"{QUEUE}:dispatches", slots=4))


@durable(hold, queue="grading", attempts=3, backoff=Backoff(initial=0.01))
async def grade(ctx: dict[str, Any], submission: str, *, skill: str = "writing") -> list[Any]:
    if ctx["job_try"] == 1:
        raise Retry(defer=0.01)
    await ctx["redis"].set(f"{QUEUE}:{submission}", ctx["job_id"])
    return [submission, skill, ctx["job_try"], ctx["greeting"]]


@durable(hold, queue="grading")
async def nightly(ctx: dict[str, Any]) -> str:
    return str(ctx["greeting"])


async def untouched(ctx: dict[str, Any], value: Any) -> Any:
    return value


async def start(ctx: dict[str, Any]) -> None:
    ctx["greeting"] = "hello"


class Old:
    """The worker that the team has always had, with pickle; nothing of it was changed."""

    functions = [grade, untouched]  # noqa: RUF012 - as arq's settings are written
    cron_jobs = [cron(nightly, second=set(range(60)))]  # noqa: RUF012 - as arq's settings are written
    redis_settings = RedisSettings.from_dsn(REDIS)
    queue_name = QUEUE
    on_startup = start


class New(holdfast.arq.Settings):
    hold = hold
    on_startup = start
