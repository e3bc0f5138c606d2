"""What `import holdfast` loads: not what only other processes need."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.cli_process import TIMEOUT

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {
    *("structlog", "rich", "pygments", "attr", "pydantic_settings", "dotenv", "multiprocessing"),
    *("asyncpg", "sqlite3", "uvloop", "httpx", "obstore", "cryptography", "cronsim"),
    *("opentelemetry", "prometheus_client", "sqlalchemy", "django", "greenlet"),
    *("arq", "redis", "aio_pika"),
    *("holdfast.stores.sqlite", "holdfast.stores.postgres", "holdfast.archives", "holdfast.channels"),
    *("holdfast.engine.worker", "holdfast.engine.claiming", "holdfast.engine.leases"),
    *("holdfast.cli.process", "holdfast.providers", "holdfast.testing"),
}
"""Modules that take long to load, or that only some processes need."""


def loaded(code: str, cwd: Path) -> set[str]:
    """Run *code* in a process of its own, and return the modules that it has loaded."""
    report = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    process = subprocess.run(
        [sys.executable, "-c", f"{report}\n{code}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return set(process.stderr.split())


def test_the_library_loads_no_driver_no_worker_and_no_tool_for_terminals(tmp_path: Path) -> None:
    modules = loaded("import holdfast", tmp_path)

    assert "holdfast.app.holdfast" in modules
    assert HEAVY & modules == set()
