"""The programs and commands of the guides about arq run as they are written, on another Redis."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobFilter, Status
from tests.integration.arq.arq_process import an_arq_worker
from tests.integration.cli_process import a_process
from tests.pages import DOCS, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast import Job
    from tests.brokers import PrivateRedis
    from tests.nodejs import NodePrograms

KEEP = DOCS / "guides/keep-your-arq-workers.md"
ENQUEUE = DOCS / "guides/enqueue-from-another-language.md"
SHOWN_ADDRESS = "redis://localhost:6379/0"
TIMEOUT = 120.0


def write_files(page: Path, folder: Path, redis: PrivateRedis) -> None:
    """Write the files of a page into *folder*, with the address of another Redis."""
    for block in blocks(page):
        if block.title is not None:
            text = block.text.replace(SHOWN_ADDRESS, redis.url).replace(
                "redis-cli", f"redis-cli -u {redis.url}"
            )
            (folder / block.title).write_text(text, encoding="utf-8")


async def ended(hold: Holdfast, count: int) -> list[Job]:
    """Wait until so many jobs are completed."""
    async with asyncio.timeout(TIMEOUT):
        while len(await hold.find(JobFilter(status=Status.COMPLETED))) < count:
            await asyncio.sleep(0.05)
    return [await hold.read(job.id) for job in await hold.find(JobFilter())]


async def test_the_worker_and_the_dispatcher_of_the_guide_run_a_job(
    tmp_path: Path, private_redis: PrivateRedis
) -> None:
    write_files(KEEP, tmp_path, private_redis)
    hold = Holdfast(f"sqlite:///{tmp_path}/grading.db")

    @hold.job("grade", queue="grading")
    async def grade(submission: str) -> str:
        return ""

    await grade.submit("s-1")
    with (
        an_arq_worker("app.WorkerSettings", cwd=tmp_path, environment={}),
        a_process("dispatch", "app:hold", cwd=tmp_path),
    ):
        [job] = await ended(hold, 1)

    assert job.result == '"s-1 is graded"'
    await hold.close()


async def test_what_the_guide_enqueues_from_node_and_from_a_shell_is_run(
    tmp_path: Path, private_redis: PrivateRedis, node: NodePrograms
) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli is not installed")
    write_files(ENQUEUE, tmp_path, private_redis)
    hold = Holdfast(f"sqlite:///{tmp_path}/grading.db")

    with (
        an_arq_worker("app.Intake", cwd=tmp_path, environment={}),
        a_process("worker", "app:hold", cwd=tmp_path),
    ):
        for _ in range(2):
            await asyncio.to_thread(node.run, tmp_path / "enqueue.js")
            await asyncio.to_thread(subprocess.run, ["sh", "enqueue.sh"], cwd=tmp_path, check=True)
        jobs = await ended(hold, 2)

    assert sorted(job.result or "" for job in jobs) == ['"s-17: speaking"', '"s-18: writing"']
    assert {job.deadline_at for job in jobs} == {None}
    await hold.close()
