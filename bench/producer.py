"""The other process: submits jobs, so that the worker's process holds nothing but a worker."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

import uvloop

from bench.case import Case
from bench.engines import engine_for

WARM_UP = 10


async def fill(case: Case, kind: str) -> list[object]:
    """Create the schema and submit all jobs of *case* in bulk."""
    engine = engine_for(case)
    await engine.install()
    await engine.connect()
    await engine.submit_many(kind, range(case.jobs))
    await engine.close()
    return []


async def drip(case: Case) -> list[object]:
    """Submit one job after another, some 20 ms apart, and return when each was called and returned.

    The numbers start below zero: those jobs open statements and caches, and are not counted.
    """
    engine = engine_for(case)
    await engine.connect()
    pauses = random.Random(7)
    marks: list[object] = []
    for number in range(-WARM_UP, case.jobs):
        await asyncio.sleep(pauses.uniform(0.01, 0.03))
        called = time.perf_counter_ns()
        await engine.submit(number)
        marks.append((number, called, time.perf_counter_ns()))
    await engine.close()
    return marks


def main() -> None:
    case, what = Case.load(sys.argv[1]), sys.argv[2]
    work = drip(case) if what == "drip" else fill(case, what)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main()
