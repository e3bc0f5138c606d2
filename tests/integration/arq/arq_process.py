"""The real command `arq` in a process of its own, and the application that it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.cli_process import OURS, TIMEOUT, Running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[3]


@contextmanager
def an_arq_worker(settings: str, *, cwd: Path, environment: Mapping[str, str]) -> Iterator[Running]:
    """Run `arq SETTINGS` while the block runs; it is killed at the end, if it has not ended before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.run_with_parent", "arq", settings],
        cwd=cwd,
        env=_environment(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running.of(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        running.end()


def arq(settings: str, *, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `arq SETTINGS` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "arq", settings],
        cwd=cwd,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.upper().startswith(OURS)}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return plain | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path} | dict(settings)
