"""Measure jobs that run on Celery and arq workers through Holdfast beside bare ones, in turn; print rates and ratios.

    python -m bench.fleets
    python -m bench.fleets --seconds 20 --rounds 5

- *celery*: plain handlers of 20 ms in a prefork pool of 2, beside bare Celery with `acks_late`, on one RabbitMQ.
- *arq*: async handlers of 20 ms in 10 slots, beside bare arq with the same `poll_delay`, on one Redis.

All jobs are there when the worker starts. The first tenth is not timed: processes start and connect in it. The bare side
has ended when the last handler has, Holdfast when its store has all jobs as completed. The processor time, for each
job, is that of the workers, of the dispatcher, and of the servers: PostgreSQL and the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil

from bench.servers import Databases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HANDLER_SECONDS = 0.02
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Case:
    """One of the four: which jobs are submitted, and which worker runs them."""

    name: str
    broker: str
    slots: int
    worker: tuple[str, ...]
    started: str
    """What the worker prints when it takes jobs."""
    queue: str = ""
    """The queue of Holdfast; none for a bare worker."""


def _celery(name: str, celery_queue: str, queue: str = "") -> Case:
    words = ("-m", "celery", "-A", "bench.fleet_app", "worker", "-Q", celery_queue, "--concurrency", "2")
    options = ("--loglevel", "INFO", "--without-gossip", "--without-mingle")
    return Case(name, "rabbitmq", 2, words + options, "ready.", queue)


def _arq(name: str, settings: str, queue: str = "") -> Case:
    words = ("-m", "arq", f"bench.fleet_app.{settings}")
    return Case(name, "redis", 10, words, "Starting worker", queue)


BARE_CELERY = _celery("bare celery", "bench.bare")
CELERY = _celery("celery", "bench.dispatched", "on celery")
BARE_ARQ = _arq("bare arq", "Bare")
ARQ = _arq("arq", "Dispatched", "on arq")

BARS = ((CELERY, BARE_CELERY, 0.8), (ARQ, BARE_ARQ, 0.85))
"""What is measured, what it is compared with, and the least ratio that is expected."""

GOALS = {CELERY.name: 0.9}


@dataclass(frozen=True)
class Result:
    """Jobs a second, and milliseconds of the processor for each job."""

    per_second: float
    workers: float
    dispatcher: float
    servers: float

    @property
    def total(self) -> float:
        return self.workers + self.dispatcher + self.servers


def measure(case: Case, jobs: int, databases: Databases) -> Result:
    """Submit *jobs*, start the worker and, for Holdfast, the dispatcher, and time them."""
    with ExitStack() as stack:
        rabbitmq = stack.enter_context(databases.fresh("rabbitmq")).partition("#")[0]
        redis_url = stack.enter_context(databases.fresh("redis"))
        database = stack.enter_context(databases.fresh("postgres"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-fleets-")))
        ends = folder / "ends"
        environment = os.environ | {
            "BENCH_RABBITMQ": rabbitmq,
            "BENCH_REDIS": redis_url,
            "BENCH_ENDS": str(ends),
            "BENCH_QUEUES": case.queue or "on arq",
            "DATABASE_URL": database,
        }
        subprocess.run(
            [sys.executable, "-m", "bench.fleet_producer", case.name, str(jobs)], env=environment, check=True
        )
        worker = stack.enter_context(_running(case.worker, case.started, environment, folder / "worker.log"))
        processes = {"workers": [worker], "servers": [psutil.Process(pid) for pid in databases.server_pids]}
        before = {name: _cpu(each) for name, each in processes.items()}
        if case.queue:
            command = ("-m", "holdfast", "dispatch", "bench.fleet_app:hold")
            log = folder / "dispatcher.log"
            dispatcher = stack.enter_context(_running(command, "worker started", environment, log))
            processes["dispatcher"] = [dispatcher]
            before["dispatcher"] = _cpu([dispatcher])
        _wait(lambda: _count(ends) >= jobs, f"{jobs} handlers of {case.name}")
        if case.queue:
            asyncio.run(_all_completed(database, jobs))
            ended = time.perf_counter_ns()
        millis = {name: (_cpu(each) - before[name]) / jobs * 1e3 for name, each in processes.items()}
        times = sorted(int(line) for line in ends.read_text().splitlines())
        if len(times) != jobs:
            raise RuntimeError(f"{jobs} jobs of {case.name}, {len(times)} calls of their handler")
        first = jobs // 10
        seconds = ((ended if case.queue else times[-1]) - times[first - 1]) / 1e9
        return Result(
            (jobs - first) / seconds, millis["workers"], millis.get("dispatcher", 0.0), millis["servers"]
        )


@contextmanager
def _running(
    words: tuple[str, ...], started: str, environment: Mapping[str, str], log: Path
) -> Iterator[psutil.Process]:
    """Run Python with *words* in a process group of its own, which is ended; it has started when the block begins."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *words],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:

        def has_started() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(words)} ended:\n{log.read_text()[-2000:]}")
            return started in log.read_text(errors="replace")

        _wait(has_started, f"the start of {' '.join(words)}")
        yield psutil.Process(process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"after {LIMIT_SECONDS} s still waiting for {what}")
        time.sleep(0.01)


def _count(ends: Path) -> int:
    return ends.read_bytes().count(b"\n") if ends.exists() else 0


async def _all_completed(database: str, jobs: int) -> None:
    connection = await asyncpg.connect(database)
    query = "SELECT count(*) FROM holdfast.finished WHERE status = 'completed'"
    try:
        async with asyncio.timeout(60):
            while await connection.fetchval(query) < jobs:
                await asyncio.sleep(0.005)
    finally:
        await connection.close()


def _cpu(processes: list[psutil.Process]) -> float:
    """Return the seconds of processor time that the processes and their children have used, ended children included."""
    total = 0.0
    for process in processes:
        ended = process.cpu_times()
        total += ended.children_user + ended.children_system
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=10, help="that the handlers of a measurement take")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cases = [case for ours, bare, _ in BARS for case in (bare, ours)]
    results: dict[str, list[Result]] = {case.name: [] for case in cases}
    with Databases({"postgres", "rabbitmq", "redis"}) as databases:
        for number in range(options.rounds):
            for case in cases if number % 2 == 0 else cases[::-1]:
                jobs = round(options.seconds * case.slots / HANDLER_SECONDS)
                results[case.name].append(measure(case, jobs, databases))
                print(
                    f"{number + 1}/{options.rounds}  {case.name}: {_brief(results[case.name][-1:])}",
                    file=sys.stderr,
                )
    for ours, bare, bar in BARS:
        ratios = [
            one.per_second / other.per_second
            for one, other in zip(results[ours.name], results[bare.name], strict=True)
        ]
        ratio, goal = statistics.median(ratios), GOALS.get(ours.name)
        print(
            f"{ours.name:12} {_brief(results[ours.name])}\n{bare.name:12} {_brief(results[bare.name])}\n"
            f"{'':12} ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), bar {bar}"
            f"{f', goal {goal}' if goal else ''}: {'met' if ratio >= bar else 'MISSED'}"
        )


def _brief(results: list[Result]) -> str:
    """Write the medians of some rounds in a line."""
    rate, workers, dispatcher, servers, total = (
        statistics.median(getattr(each, name) for each in results)
        for name in ("per_second", "workers", "dispatcher", "servers", "total")
    )
    return (
        f"{rate:6.1f}/s   processor for each job {total:5.2f} ms: workers {workers:.2f}, "
        f"dispatcher {dispatcher:.2f}, servers {servers:.2f}"
    )


if __name__ == "__main__":
    main()
