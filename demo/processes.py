"""The processes of the demo: the provider and the workers. None of them outlives its block."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from holdfast_simulator import Entry, Script, read_log

ROOT = Path(__file__).parents[1]
START_WITHIN = 30.0
STOP_WITHIN = 10.0

SLOTS = 32
LEASE = "5 s"


class DemoError(Exception):
    """The demo cannot continue; the message says why."""


@dataclass(frozen=True, eq=False)
class Child:
    """A child process, whose output goes to a file."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path

    @classmethod
    def launch(
        cls, name: str, *command: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> Self:
        """Start `python -m command`."""
        output = folder / f"{name.replace(' ', '-')}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "demo.tether", str(os.getpid()), *command],
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach the demo alone, which ends its children
            )
        return cls(name, process, output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait(STOP_WITHIN)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Raises `DemoError` if it had ended before."""
        self.ensure_alive()
        self.process.kill()
        if self.process.wait(STOP_WITHIN) != -signal.SIGKILL:
            raise DemoError(f"{self.name} ended before it could be killed: {self.last_words()}")

    def stop(self) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_WITHIN)

    def ensure_alive(self) -> None:
        """Raise `DemoError` if it has ended."""
        if not self.alive:
            raise DemoError(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its output."""
        return self.output.read_text(errors="replace")[-600:].strip()


@dataclass(frozen=True)
class Provider:
    """The flaky provider: a process with a log of its effects."""

    child: Child
    url: str
    log: Path

    @classmethod
    def start(cls, script: Script, *, folder: Path) -> Self:
        """Start it, and return when it listens."""
        path, log = folder / "script.json", folder / "calls.jsonl"
        path.write_text(script.dumps())
        options = ("--port", "0", "--log", str(log), "--script", str(path))
        child = Child.launch("provider", "holdfast_simulator", *options, folder=folder)
        try:
            return cls(child, _address(child), log)
        except BaseException:
            child.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    def follow(self, script: Script) -> None:
        """Make it follow *script* from now on; its effects and its log are kept."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=5) as client:
            client.put("/_control/script", content=script.dumps()).raise_for_status()

    def calls(self) -> list[Entry]:
        """Read its log of calls."""
        return read_log(self.log)


def start_worker(number: int, *, database_url: str, provider_url: str, folder: Path) -> Child:
    """Start a worker with the command that every user has."""
    return Child.launch(
        f"worker {number}",
        *("holdfast", "worker", "demo.worker:hold", "--slots", str(SLOTS), "--lease", LEASE),
        folder=folder,
        environment={
            "DATABASE_URL": database_url,
            "PROVIDER_URL": provider_url,
            "HOLDFAST_WORKER_POLL_SEC": "0.2",
        },
    )


def _address(child: Child) -> str:
    give_up_at = time.monotonic() + START_WITHIN
    while time.monotonic() < give_up_at:
        child.ensure_alive()
        if found := re.search(r"listening on (\S+)\n", child.output.read_text()):
            return found[1]
        time.sleep(0.02)
    raise DemoError(f"{child.name} did not start within {START_WITHIN:g} s")
