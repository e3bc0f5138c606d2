"""An application whose jobs other programs call through Redis. The tests import it, and run its intake with `arq`."""

import os

import holdfast.arq
from holdfast import Holdfast

hold = Holdfast(os.environ.get("DATABASE", "sqlite:///unused.db"))


@hold.job("grade")
async def grade(submission: str, *, skill: str = "writing") -> str:
    return f"{submission}: {skill}"


@hold.job("secret")
async def secret() -> None:
    """It is not exposed."""


class Intake(holdfast.arq.IntakeSettings):
    hold = hold
    jobs = [grade]  # noqa: RUF012 - as arq's settings are written
    redis_settings = os.environ.get("REDIS", "redis://localhost")
    queue_name = os.environ.get("QUEUE", "arq:queue")
