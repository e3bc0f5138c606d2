"""The application of the runs about providers: each job makes one call, to the provider that it is named for.

A call takes a while, and the outside service logs it under the name of the provider that was called: the
primary or its backup. Workers load it as `tests.acceptance.harness.callers_app:hold`.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx

from holdfast import Backoff, Breaker, Holdfast, JobFunction, current

BUDGET = 5
"""Attempts per stage."""

CALL_SECONDS = 0.06
"""How long a call takes at least: longer than a report, so that a slot begins one call at most within one."""

AT_A_TIME = 4
METERED = 20
"""Calls a second."""

BRITTLE = Breaker(window=1, minimum=1, trials=1, cooldown="500ms")
"""Opens with the first failure, and closes with the first success."""

LONELY = "lonely"
"""The queue of jobs whose worker is killed, so that no other jobs run in that worker."""

Job = JobFunction[[int], str]


@dataclass(frozen=True)
class Callers:
    """The jobs, by the names of their providers."""

    hold: Holdfast
    jobs: dict[str, Job]


def build(
    url: str,
    service_url: str = "http://127.0.0.1:9",
    *,
    rate: str = f"{METERED}/s",
    call_seconds: float = CALL_SECONDS,
) -> Callers:
    """Declare the jobs on the database at *url*; their calls go to the service."""
    hold = Holdfast(url, attempts=BUDGET, backoff=Backoff.full_jitter(initial="50ms", ceiling="200ms"))
    service = httpx.AsyncClient(base_url=service_url, timeout=httpx.Timeout(30, pool=None), trust_env=False)
    jobs: dict[str, Job] = {}

    async def call(name: str, number: int) -> str:
        answer = await service.post(
            f"/effects/{name}", json={"number": number}, headers={"Idempotency-Key": current().key}
        )
        await asyncio.sleep(call_seconds)
        answer.raise_for_status()
        return str(answer.json()["id"])

    def caller(name: str, queue: str = "default", **declared: Any) -> None:
        provider = hold.provider(name, **declared)

        @hold.stage(f"call {name}", provider=provider)
        async def stage(number: int) -> str:
            return await call(current().provider or name, number)

        @hold.job(name, queue=queue)
        async def job(number: int) -> str:
            return await stage(number)

        jobs[name] = job

    for name in ("llm", "mail", "busy", "spent", "denied"):
        caller(name)
    caller("narrow", concurrency=AT_A_TIME)
    caller("metered", rate=rate)
    caller("speech", backup="speech-eu")
    caller("speech-eu")
    caller("kept", LONELY, breaker=BRITTLE)
    return Callers(hold, jobs)
