"""How much memory a worker process holds: little while it waits, and no more with more jobs.

`HOLDFAST_LONG=1` makes the queue ten times as long.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Status
from tests.integration.cli_process import a_worker, an_application

if TYPE_CHECKING:
    from tests.acceptance.harness.databases import Database
    from tests.integration.cli_process import Running

JOBS = 100_000 if os.environ.get("HOLDFAST_LONG") else 10_000
SLOTS = 500
TIMEOUT = 300

IDLE_MB = 70
BUSY_MB = 150

APPLICATION = """
from holdfast import Holdfast

hold = Holdfast()


@hold.job("nothing")
async def nothing(number: int) -> int:
    return number
"""


def megabytes(worker: Running, name: str) -> float:
    """Read what the system counts for the process: `VmRSS` is what it holds, `VmHWM` the most that it ever held."""
    status = Path(f"/proc/{worker.process.pid}/status")
    if not status.exists():
        pytest.skip("this system does not report how much memory a process holds")
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return round(int(lines[name].split()[0]) / 1024, 1)


def note(request: pytest.FixtureRequest, **measured: float) -> None:
    """Store the measurements of this test beside those of the others, and print them."""
    target = request.config.rootpath / "build" / "memory.json"
    target.parent.mkdir(exist_ok=True)
    known = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    known[request.node.name] = measured
    target.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print(f"{request.node.name}: {measured}")


async def drained(hold: Holdfast, count: int) -> None:
    """Wait until *count* jobs have completed."""
    async with asyncio.timeout(TIMEOUT):
        while (await hold.runtime.store.queues.counts()).get(("default", Status.COMPLETED), 0) < count:
            await asyncio.sleep(0.2)


async def nothing(number: int) -> int:
    return number


async def test_an_idle_worker_is_small(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    an_application(tmp_path, APPLICATION)
    with a_worker(cwd=tmp_path, settings={"DATABASE_URL": database.url}, anew=True) as worker:
        async with Holdfast(database.url) as hold:
            job = await hold.job("nothing")(nothing).submit(1)
            assert await job.result(timeout=TIMEOUT) == 1  # by now it has loaded all that it needs

        idle = megabytes(worker, "VmRSS")

    note(request, idle=idle)
    assert idle < IDLE_MB


async def test_a_worker_that_drains_a_long_queue_stays_small(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    an_application(tmp_path, APPLICATION)
    async with Holdfast(database.url) as hold:
        await hold.job("nothing")(nothing).submit_many([(number,) for number in range(JOBS)])

        settings = {"DATABASE_URL": database.url}
        with a_worker("--slots", str(SLOTS), cwd=tmp_path, settings=settings, anew=True) as worker:
            await drained(hold, JOBS)
            most, now = megabytes(worker, "VmHWM"), megabytes(worker, "VmRSS")

    note(request, jobs=JOBS, most=most, afterwards=now)
    assert most < BUSY_MB
