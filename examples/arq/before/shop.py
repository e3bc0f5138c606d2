"""A shop whose arq worker confirms orders, as a team has it today."""

import os
from pathlib import Path
from typing import Any

from arq.connections import RedisSettings

redis_settings = RedisSettings.from_dsn(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))


def send_mail(order: int) -> None:
    """Send the confirmation of an order; the mail server may be away."""
    if Path("mail-server-is-away").exists():
        Path(f"{order}.refused").touch()
        raise ConnectionError("the mail server does not answer")
    Path(f"{order}.sent").touch()


async def confirm(ctx: dict[Any, Any], order: int) -> None:
    send_mail(order)


class WorkerSettings:
    functions = [confirm]
    redis_settings = redis_settings
