"""Drain a queue with one process and with several, in turn, and print how much the others add.

    python -m bench.processes --jobs 40000 --rounds 5
    python -m bench.processes --processes 4 --size 500 --work 1000

The processes are up and connected before the clock starts; it stops when the database holds all jobs as
succeeded. Workers and database share the cores of one machine. So beside the rate stands what a job took of
the processor in the workers and in the database, and at the end the most that several processes could be
ahead of one if every core were busy all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import uvloop

from bench.case import Case, Tally
from bench.engines import engine_for
from bench.measure import all_finished, produce
from bench.servers import Databases

if TYPE_CHECKING:
    from asyncio.subprocess import Process

CORES = os.cpu_count() or 1
TIMEOUT_SECONDS = 240
REPORT_SECONDS = 0.01


class Busy(Tally):
    """A tally whose every note takes a handler some time, as work that computes would."""

    micros = 0

    def note(self, number: int) -> None:
        end = time.perf_counter_ns() + self.micros * 1_000
        while time.perf_counter_ns() < end:
            pass
        super().note(number)


class WorkerPool:
    """Worker processes, and what they have reported so far."""

    def __init__(self) -> None:
        self._workers: list[Process] = []
        self._reports: list[dict[str, float]] = []
        self._listeners: list[asyncio.Task[None]] = []
        self._reported = asyncio.Event()

    async def start_worker(self, case: Case) -> None:
        """Start one more, and wait until it is connected."""
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.processes", "--worker", case.dump(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Linux shares busy cores by session: in one, two would get what one gets
        )  # fmt: skip
        assert worker.stdout is not None
        report: dict[str, float] = json.loads(await worker.stdout.readline())
        self._workers.append(worker)
        self._reports.append(report)
        self._listeners.append(asyncio.create_task(self._listen(worker.stdout, report)))

    def send(self, word: str) -> None:
        """Send *word* to all of them: `go` or `stop`."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{word}\n".encode())

    async def reach(self, calls: int) -> None:
        """Wait until they have made *calls* calls in total. The database is not asked: that would load it."""
        while self.total("calls") < calls:
            self._reported.clear()
            await self._reported.wait()

    async def end(self) -> None:
        """Wait until all of them have ended."""
        await asyncio.gather(*self._listeners, *[worker.wait() for worker in self._workers])

    def total(self, name: str) -> float:
        return sum(report[name] for report in self._reports)

    async def _listen(self, output: asyncio.StreamReader, report: dict[str, float]) -> None:
        async for line in output:
            report |= json.loads(line)
            self._reported.set()
        self._reported.set()


async def drain(case: Case, count: int, server: psutil.Process | None) -> dict[str, float]:
    """Time how long *count* processes need for jobs that are all there when they start."""
    await produce(Case(**{**vars(case), "size": None}), "noop")
    watcher, pool = engine_for(case), WorkerPool()
    await watcher.connect()
    for _ in range(count):
        await pool.start_worker(case)
    before, began = _cpu(server), time.perf_counter()
    pool.send("go")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await pool.reach(case.jobs)
        await all_finished(watcher, case.jobs)
    seconds, served = time.perf_counter() - began, _cpu(server) - before
    await watcher.close()
    pool.send("stop")
    await pool.end()
    if pool.total("calls") != case.jobs:
        raise RuntimeError(f"{case.jobs} jobs, {pool.total('calls'):.0f} calls")
    return {
        "per_second": case.jobs / seconds,
        "worker_micros": pool.total("cpu") / case.jobs * 1e6,
        "server_micros": served / case.jobs * 1e6,
    }


def _cpu(server: psutil.Process | None) -> float:
    """Return the seconds of processor time that the server and its processes have used."""
    if server is None:
        return 0.0
    total = 0.0
    for process in [server, *server.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def work(case: Case) -> None:
    """Run one of the processes: connect, wait for `go`, work until `stop`, and report progress."""
    tally = Busy(expected=-1)
    tally.micros = int(case.variant or 0)
    engine = engine_for(case, tally)
    await engine.connect()
    _report(tally, 0.0)
    await asyncio.to_thread(sys.stdin.readline)
    before = time.process_time()
    async with engine.worker():
        reporting = asyncio.create_task(_keep_reporting(tally, before))
        await asyncio.to_thread(sys.stdin.readline)
        reporting.cancel()
    await engine.close()


async def _keep_reporting(tally: Tally, before: float) -> None:
    reported = -1
    while True:
        if tally.calls != reported:
            reported = tally.calls
            _report(tally, time.process_time() - before)
        await asyncio.sleep(REPORT_SECONDS)


def _report(tally: Tally, cpu: float) -> None:
    print(json.dumps({"calls": tally.calls, "cpu": cpu}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.processes", description="One process, then several."
    )
    parser.add_argument("--engine", default="holdfast")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=500, help="slots of each process")
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--work", type=int, default=0, help="microseconds that each handler computes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        uvloop.run(work(Case.load(options.worker)))
        return
    case = Case("drain", options.engine, options.jobs, options.store, options.size, str(options.work))
    with Databases({options.store}) as databases:
        rounds = [_round(case, options.processes, databases, turn) for turn in range(options.rounds)]
    ratios = [several["per_second"] / one["per_second"] for one, several in rounds]
    most = statistics.median(_most(one) for one, _ in rounds)
    print(
        f"{CORES} cores; {options.processes} processes to one: median {statistics.median(ratios):.2f} "
        f"(from {min(ratios):.2f} to {max(ratios):.2f}); with all cores busy it could be {min(most, options.processes):.2f}"
    )


def _most(one: dict[str, float]) -> float:
    """Return how many times as fast as one process the machine could be, by the processor time of a job."""
    micros = one["worker_micros"] + one["server_micros"]
    return CORES * 1e6 / micros / one["per_second"]


def _round(
    case: Case, count: int, databases: Databases, turn: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure both, the one first in even rounds and the other in odd ones: load comes and goes."""
    found: dict[int, dict[str, float]] = {}
    server = psutil.Process(databases.server_pid) if databases.server_pid else None
    for processes in (1, count) if turn % 2 == 0 else (count, 1):
        with databases.fresh(case.store) as url:
            found[processes] = uvloop.run(drain(case.at(url), processes, server))
        print(f"{turn + 1}: {processes} processes {_summary(found[processes])}", flush=True)
    return found[1], found[count]


def _summary(result: dict[str, float]) -> str:
    return (
        f"{result['per_second']:,.0f}/s; of the processor for each job {result['worker_micros']:.0f} µs in the "
        f"workers, {result['server_micros']:.0f} µs in the database"
    )


if __name__ == "__main__":
    main()
