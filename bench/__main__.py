"""Measure Holdfast and its peers, print the table, write `build/bench.json` and draw `build/bench.png`.

    python -m bench                          everything, three rounds
    python -m bench --quick                  fewer jobs, one round
    python -m bench --only drain,stages
    python -m bench --store sqlite
    python -m bench --engines pgqueuer,dbos

Exit code 0 means that every measurement was made; missed bars do not change it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench import rabbitmq
from bench.engines import ENGINES
from bench.measure import MEASURES, STORES
from bench.plan import FULL, QUICK, chosen, in_turn
from bench.plot import draw
from bench.report import Record, Report
from bench.servers import SETTINGS, Databases

if TYPE_CHECKING:
    from bench.case import Case

TIMEOUT_SECONDS = 240
PACKAGES = (
    "holdfast", "pgqueuer", "procrastinate", "dbos", "dramatiq", "huey",
    "asyncpg", "uvloop", "psycopg", "pika", "SQLAlchemy", "pydantic",
)  # fmt: skip


def main() -> int:
    options = _options()
    plan = chosen(
        QUICK if options.quick else FULL, only=options.only, stores=options.store, engines=options.engines
    )
    if not plan:
        print("Nothing to measure: no case has that measure, store and engine together.", file=sys.stderr)
        return 2

    rounds = options.rounds or (1 if options.quick else 3)
    with Databases({case.store for case in plan}) as databases:
        records = _measure_all(plan, rounds, databases)
        about = _about(databases, {case.store for case in plan})

    report = Report(records)
    print(report.text())
    _write(options.output, {"about": about, "bars": report.bars(), "records": records})
    draw(report, options.output.with_suffix(".png"), caption=_caption(about, rounds))
    return 1 if report.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Holdfast beside its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, and one round by default")
    parser.add_argument("--rounds", type=int, help="how often each case is measured (3)")
    parser.add_argument("--only", type=_words, default=[], help=f"some of: submit, {', '.join(MEASURES)}")
    parser.add_argument("--store", type=_words, default=list(STORES), help=f"some of: {', '.join(STORES)}")
    parser.add_argument(
        "--engines", type=_words, default=list(ENGINES), help=f"some of: {', '.join(ENGINES)}"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    return parser.parse_args()


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _measure_all(plan: list[Case], rounds: int, databases: Databases) -> list[Record]:
    records: list[Record] = []
    for round_number in range(1, rounds + 1):
        for case in in_turn(plan, round_number):
            record = {"key": case.key, "round": round_number, "jobs": case.jobs, **_measured(case, databases)}
            print(
                f"{round_number}/{rounds}  {' '.join(case.key)}: {_brief(record)}",
                file=sys.stderr,
                flush=True,
            )
            records.append(record)
    return records


def _measured(case: Case, databases: Databases) -> Record:
    """Make one measurement in a process of its own; what goes wrong is part of the record."""
    with databases.fresh(case.store) as url, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            _command(case.at(url)), stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            printed, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            if process.returncode == 0:
                return {"result": json.loads(printed.splitlines()[-1])}
            errors.seek(0)
            return {"error": (errors.read().strip().splitlines() or ["no message"])[-1]}
        except subprocess.TimeoutExpired:
            return {"error": f"not finished after {TIMEOUT_SECONDS} s"}
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End what is left of the measurement and of its producer: both are in a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _command(case: Case) -> list[str]:
    size = ["--size", str(case.size)] if case.size else []
    return [
        sys.executable, "-m", "bench.measure", case.engine, case.measure, "--jobs", str(case.jobs), *size,
        "--variant", case.variant, "--store", case.store, "--url", case.url,
    ]  # fmt: skip


def _brief(record: Record) -> str:
    if "error" in record:
        return str(record["error"])
    result = record["result"]
    return f"{result['per_second']:,.0f}/s" if "per_second" in result else f"p50 {result['p50_ms']:.2f} ms"


def _about(databases: Databases, stores: set[str]) -> Record:
    """Say what was measured, and on what."""
    return {
        "versions": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_at_end": os.getloadavg(),
        "postgres": databases.version() if "postgres" in stores else None,
        "postgres_settings": SETTINGS,
        "rabbitmq": rabbitmq.version() if "rabbitmq" in stores else None,
        "sqlite": sqlite3.sqlite_version,
    }


def _caption(about: Record, rounds: int) -> str:
    versions = ", ".join(f"{title} {about['versions'][name]}" for name, title in ENGINES.items())
    how = f"Median of {rounds} round(s), each engine at its best setting; {about['cores']} cores for client and server."
    return f"{how}\n{versions}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _write(path: Path, content: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
