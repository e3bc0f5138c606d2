"""The shop whose arq worker confirms orders: the same function, as a job that is retried and not lost."""

import os
from pathlib import Path
from typing import Any

from arq.connections import RedisSettings

from holdfast import Holdfast
from holdfast.arq import ArqTransport, Settings, durable

redis_settings = RedisSettings.from_dsn(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))

hold = Holdfast("sqlite:///shop.db")
hold.queue("confirmations", transport=ArqTransport(redis_settings, slots=10))


def send_mail(order: int) -> None:
    """Send the confirmation of an order; the mail server may be away."""
    if Path("mail-server-is-away").exists():
        Path(f"{order}.refused").touch()
        raise ConnectionError("the mail server does not answer")
    Path(f"{order}.sent").touch()


@durable(hold, queue="confirmations")
async def confirm(ctx: dict[Any, Any], order: int) -> None:
    send_mail(order)


class WorkerSettings:
    """Takes the calls, as before, and stores each as a job."""

    functions = [confirm]
    redis_settings = redis_settings


class JobSettings(Settings):
    """Runs the jobs."""

    hold = hold
