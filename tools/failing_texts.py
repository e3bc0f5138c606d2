"""Fail many jobs with long texts at once; print how long the event loop was blocked, and how many leases were lost.

python tools/failing_texts.py --failures 1000 --length 1000000 --lease 9 --slots 100
"""

import argparse
import asyncio
import io
import tempfile
import time

from holdfast import Holdfast, JobFailed, JobHandle
from holdfast.telemetry.logs import StructuredLogger

LINE = 'POST https://llm.example/v1/chat?user=7 answered 503: {"detail": "overloaded", "token": "abc%40x"}\n'


async def note_gaps(gaps: list[float]) -> None:
    """Ask for a turn every 5 ms, and note how much later it comes."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.005)
        gaps.append(time.perf_counter() - begun - 0.005)


async def measure(asked: argparse.Namespace, folder: str) -> None:
    """Run one worker until every job has failed."""
    log, gaps, runs = io.StringIO(), [0.0], 0
    text = (LINE * (asked.length // len(LINE) + 1))[: asked.length]
    async with Holdfast(f"sqlite:///{folder}/jobs.db", logger=StructuredLogger(stream=log)) as hold:

        @hold.job("fails", attempts=1)
        async def fails(number: int) -> None:
            nonlocal runs
            runs += 1
            raise RuntimeError(f"{number} {text}")

        async def ended(job: JobHandle[None]) -> None:
            try:
                await job.result()
            except JobFailed:
                return

        jobs = [await fails.submit(number) for number in range(asked.failures)]
        watching = asyncio.create_task(note_gaps(gaps))
        begun = time.perf_counter()
        async with hold.worker(slots=asked.slots, lease=asked.lease):
            for job in jobs:
                await ended(job)
        took = time.perf_counter() - begun
        watching.cancel()
    gaps.sort()
    lost = log.getvalue().count("lease lost") + log.getvalue().count("fenced")
    print(f"{asked.failures} failures of {asked.length:,} characters in {took:.1f} s, {runs} runs")
    print(
        f"loop blocked: longest {gaps[-1] * 1000:.0f} ms, 99 % below {gaps[len(gaps) * 99 // 100] * 1000:.0f} ms"
    )
    print(f"leases lost: {lost}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=1_000)
    parser.add_argument("--length", type=int, default=1_000_000)
    parser.add_argument("--lease", type=float, default=9.0)
    parser.add_argument("--slots", type=int, default=100)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), folder))
