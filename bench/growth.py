"""Time what people ask of a store, when it is empty and when it is full.

    python -m bench.growth                                   both stores, 5,000,000 ended and 1,000,000 parked jobs
    python -m bench.growth --store sqlite --ended 500000 --parked 100000

Each command is a process of its own, its start included, and each result the median of several runs. The rows that the
filters look for are few, and the oldest: a scan would meet them last. A command passes if it takes at most twice as long
on the full store as on the empty one.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from bench.servers import Databases
from holdfast import Holdfast

if TYPE_CHECKING:
    from collections.abc import Sequence

BAR = 2.0

COMMANDS: dict[str, Sequence[str]] = {
    "jobs list": ("jobs", "list"),
    "jobs list --status failed": ("jobs", "list", "--status", "failed"),
    "jobs list --status cancelled": ("jobs", "list", "--status", "cancelled"),
    "jobs list --status completed": ("jobs", "list", "--status", "completed"),
    "jobs list --status processing": ("jobs", "list", "--status", "processing"),
    "jobs list --name": ("jobs", "list", "--name", "report"),
    "jobs list --name --status": ("jobs", "list", "--name", "work", "--status", "failed"),
    "jobs list --owner": ("jobs", "list", "--owner", "ada"),
    "jobs list --queue": ("jobs", "list", "--queue", "reports"),
    "queues list": ("queues", "list"),
}

RARE = 1_000
"""How many rows have what the filters look for: the oldest."""

_SHAPE = f"""
    CASE WHEN n <= {RARE} THEN 'report' ELSE 'work' END, CASE WHEN n <= {RARE} THEN 'reports' ELSE 'default' END,
    CASE WHEN n <= {RARE} THEN 'ada' ELSE '' END
"""
_STATUS = f"CASE WHEN n > 2 * {RARE} THEN 'completed' WHEN n % 2 = 0 THEN 'failed' ELSE 'cancelled' END"

_POSTGRES_ID = "(lpad(to_hex(1700000000000 + {}), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid"
_POSTGRES = (
    f"""INSERT INTO holdfast.finished (
            id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
            created_at, queued_at, finished_at, result)
        SELECT {_POSTGRES_ID.format("n")}, {_SHAPE}, {_STATUS}, 0, 1, 1, 1, 0, 0, now(), now(), now(), '1'
          FROM generate_series(1, $1::bigint) AS n""",
    f"""INSERT INTO holdfast.jobs (id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after)
        SELECT {_POSTGRES_ID.format("10000000000 + n")}, 'work', 'default', '', 0, now(), now(), now(),
               now() + interval '1 year'
          FROM generate_series(1, $1::bigint) AS n""",
)

_COUNTER = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
_HEX = "printf('%012x%020x', 1700000000000 + {}, n)"
_SQLITE_ID = (
    f"substr({_HEX}, 1, 8) || '-' || substr({_HEX}, 9, 4) || '-' || substr({_HEX}, 13, 4) || '-' || "
    f"substr({_HEX}, 17, 4) || '-' || substr({_HEX}, 21)"
)
_SQLITE = (
    f"""{_COUNTER} INSERT INTO holdfast_finished (
            id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
            created_at, queued_at, finished_at, result)
        SELECT {_SQLITE_ID.replace("{}", "n")}, {_SHAPE}, {_STATUS}, 0, 1, 1, 1, 0, 0, 0, 0, 0, '1' FROM numbers""",
    f"""{_COUNTER} INSERT INTO holdfast_jobs (
            id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after)
        SELECT {_SQLITE_ID.replace("{}", "10000000000 + n")}, 'work', 'default', '', 0, 0, 0, 0, 4000000000000000
          FROM numbers""",
)


def main() -> int:
    options = _options()
    with Databases(set(options.store)) as databases:
        passed = [_measure(store, databases, options) for store in options.store]
    return 0 if all(passed) else 1


def _measure(store: str, databases: Databases, options: argparse.Namespace) -> bool:
    with databases.fresh(store) as empty, databases.fresh(store) as full:
        for url in (empty, full):
            asyncio.run(_apply(url))
        began = time.perf_counter()
        _fill(full, (options.ended, options.parked))
        print(
            f"{store}: {options.ended} ended and {options.parked} parked jobs in {time.perf_counter() - began:.0f} s"
        )
        passed = [_compare(name, empty, full, options.runs) for name in COMMANDS]
        return all(passed)


def _compare(name: str, empty: str, full: str, runs: int) -> bool:
    # In turns: what else the machine does meets both alike.
    pairs = [(_timed(empty, COMMANDS[name]), _timed(full, COMMANDS[name])) for _ in range(runs)]
    alone, crowded = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = crowded / alone
    print(
        f"  {name:32} {alone:6.2f} s {crowded:6.2f} s  {ratio:5.2f} {'ok' if ratio <= BAR else 'TOO SLOW'}",
        flush=True,
    )
    return ratio <= BAR


def _timed(url: str, command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "holdfast", *command, "--url", url], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


async def _apply(url: str) -> None:
    hold = Holdfast(url)
    try:
        await hold.apply_schema()
    finally:
        await hold.close()


def _fill(url: str, counts: Sequence[int]) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(Path(url.removeprefix("sqlite:///"))) as connection:
            for statement, count in zip(_SQLITE, counts, strict=True):
                connection.execute(statement, (count,))
    else:
        asyncio.run(_fill_postgres(url, counts))


async def _fill_postgres(url: str, counts: Sequence[int]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement, count in zip(_POSTGRES, counts, strict=True):
            await connection.execute(statement, count)
        await connection.execute("VACUUM ANALYZE holdfast.finished")
        await connection.execute("VACUUM ANALYZE holdfast.jobs")
    finally:
        await connection.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--store", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--ended", type=int, default=5_000_000)
    parser.add_argument("--parked", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    options.store = options.store or ["sqlite", "postgres"]
    return options


if __name__ == "__main__":
    sys.exit(main())
