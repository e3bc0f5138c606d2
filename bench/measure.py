"""Make one measurement in this process and print it as one line of JSON.

    python -m bench.measure pgqueuer drain --size 500 --jobs 20000

Without `--url` a private server, or a SQLite file, is made for it and removed afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from bench.case import Case, Tally
from bench.engines import ENGINES, HOMES, engine_for
from bench.memory import PeakMemory, resident_mb
from bench.producer import WARM_UP

if TYPE_CHECKING:
    from bench.engines import Engine

STORES = ("postgres", "rabbitmq", "sqlite")
STAGES = 3
TASKS = 100


async def produce(case: Case, what: str) -> list[Any]:
    """Run the producer in a process of its own and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.producer", case.dump(), what, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the producer of {case.engine} ended with {process.returncode}")
    result: list[Any] = json.loads(printed.splitlines()[-1])
    return result


async def drain(case: Case) -> dict[str, float]:
    """Time how long a worker needs for jobs that are all there when it starts."""
    return await _drain(case, "noop", stages=0)


async def stages(case: Case) -> dict[str, float]:
    """Like `drain`, with jobs of three stages each."""
    return await _drain(case, "staged", stages=STAGES)


async def call(case: Case) -> dict[str, float]:
    """Like `drain`, with jobs of one stage, which may have a provider."""
    return await _drain(case, case.measure, stages=1)


async def _drain(case: Case, kind: str, *, stages: int) -> dict[str, float]:
    await produce(Case(**{**vars(case), "size": None}), kind)
    tally = Tally(case.jobs)
    engine = engine_for(case, tally)
    await engine.connect()
    before = resident_mb()
    with PeakMemory() as memory:
        async with engine.worker():
            await tally.reached()
            handled = time.perf_counter()
            await all_finished(engine, case.jobs)
            finished = time.perf_counter()
    tally.check(stages=stages)
    await engine.close()
    started = engine.working_since or tally.first_at
    return {
        "per_second": case.jobs / (finished - started),
        "handlers_per_second": case.jobs / (handled - started),
        "seconds": finished - started,
        "seconds_to_first_call": tally.first_at - started,
        "rss_before_mb": before,
        "rss_peak_mb": memory.peak_mb,
    }


async def all_finished(engine: Engine, jobs: int) -> None:
    """Return when the database holds all *jobs* as succeeded: a handler's return is not yet that."""
    async with asyncio.timeout(60):
        while await engine.finished() < jobs:
            await asyncio.sleep(0.002)


async def pickup(case: Case) -> dict[str, float]:
    """Time from the call of submit, in another process, until an idle worker's handler starts."""
    await _install(case)
    tally = Tally(case.jobs + WARM_UP)
    engine = engine_for(case, tally)
    await engine.connect()
    async with engine.worker():
        await asyncio.sleep(1)
        idle = resident_mb()
        marks = await produce(case, "drip")
        await tally.reached(timeout=30)
    tally.check()
    await engine.close()
    counted = [mark for mark in marks if mark[0] >= 0]
    from_call = sorted((tally.seen[number] - called) / 1e6 for number, called, _ in counted)
    from_return = sorted((tally.seen[number] - returned) / 1e6 for number, _, returned in counted)
    return {
        "p50_ms": statistics.median(from_call),
        "p95_ms": from_call[int(len(from_call) * 0.95)],
        "p50_from_return_ms": statistics.median(from_return),
        "p95_from_return_ms": from_return[int(len(from_return) * 0.95)],
        "rss_idle_mb": idle,
    }


async def submit_one(case: Case) -> dict[str, float]:
    """Time submits that wait for each other."""

    async def work(engine: Engine) -> None:
        for number in range(case.jobs):
            await engine.submit(number)

    return await _submit(case, work)


async def submit_tasks(case: Case) -> dict[str, float]:
    """Time submits from a hundred tasks of one process."""

    async def work(engine: Engine) -> None:
        numbers = iter(range(case.jobs))

        async def task() -> None:
            for number in numbers:
                await engine.submit(number)

        await asyncio.gather(*(task() for _ in range(TASKS)))

    return await _submit(case, work)


async def submit_bulk(case: Case) -> dict[str, float]:
    """Time submits of whole lists."""

    async def work(engine: Engine) -> None:
        await engine.submit_many("noop", range(case.jobs))

    return await _submit(case, work)


async def _submit(case: Case, work: Any) -> dict[str, float]:
    await _install(case)
    engine = engine_for(case)
    await engine.connect()
    for number in range(WARM_UP):
        await engine.submit(number)
    started = time.perf_counter()
    await work(engine)
    seconds = time.perf_counter() - started
    queued = await engine.queued()
    await engine.close()
    if queued != case.jobs + WARM_UP:
        raise RuntimeError(f"{case.jobs + WARM_UP} jobs submitted, {queued} in the database")
    return {"per_second": case.jobs / seconds, "seconds": seconds}


async def _install(case: Case) -> None:
    engine = engine_for(case)
    await engine.install()


MEASURES = {
    "drain": drain,
    "stages": stages,
    "call": call,
    "call-breaker": call,
    "call-limit": call,
    "pickup": pickup,
    "submit-one": submit_one,
    "submit-tasks": submit_tasks,
    "submit-bulk": submit_bulk,
}


def measure(case: Case) -> dict[str, float]:
    """Make the measurement *case* in this process."""
    return uvloop.run(MEASURES[case.measure](case))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description="Make one measurement.")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument(
        "--size", type=int, help="slots, batch or list length; the engine's default if left out"
    )
    parser.add_argument("--variant", default="", help="pool (PgQueuer), threads (DBOS)")
    parser.add_argument("--store", choices=STORES, help="where the jobs are; the engine's home if left out")
    parser.add_argument("--url", default="", help="a fresh database; made and removed here if left out")
    options = parser.parse_args()
    options.store = options.store or HOMES.get(options.engine, "postgres")
    case = Case(**vars(options))
    if case.url:
        print(json.dumps(measure(case)))
        return

    from bench.servers import Databases

    with Databases({case.store}) as databases, databases.fresh(case.store) as url:
        print(json.dumps(measure(case.at(url)), indent=2))


if __name__ == "__main__":
    main()
