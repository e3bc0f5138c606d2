"""A worker under systemd: it says when it is up, and that it lives, for as long as it does."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.integration.cli_process import TIMEOUT, Running, a_process, an_application, submit
from tests.integration.test_cli_health import BLOCKING
from tests.integration.test_cli_processes import TWO, pids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEAT = 0.1
"""Seconds between two beats in these tests."""
SILENCE = 10 * BEAT


class Supervisor:
    """What systemd does with its socket: it listens."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def receive(self) -> str:
        """Wait for the next message."""
        self._line.settimeout(TIMEOUT)
        return self._line.recv(256).decode()

    def finds_it_silent(self) -> bool:
        """Listen until for many beats there was none; it may have spoken just before."""
        self._line.settimeout(SILENCE)
        try:
            for _ in range(100):
                self._line.recv(256)
        except TimeoutError:
            return True
        return False


@contextmanager
def supervised(*words: str, cwd: Path, **settings: str) -> Iterator[tuple[Supervisor, Running]]:
    """Run a worker as systemd would run it, with a watchdog."""
    path = cwd / "notify"
    environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(BEAT * 3 * 1e6)), **settings}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(path))
        with a_process("worker", "app:hold", *words, cwd=cwd, settings=environment) as worker:
            yield Supervisor(line), worker


async def test_a_worker_beats_until_its_loop_is_blocked_and_then_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    folder = an_application(tmp_path, BLOCKING)

    with supervised(cwd=folder, DATABASE_URL=url) as (supervisor, worker):
        words = [supervisor.receive() for _ in range(3)]
        await submit(url, "waiting")
        worker.wait_for("begun")
        silent = supervisor.finds_it_silent()
        (folder / "go").touch()
        again = supervisor.receive()

    assert words == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    assert silent
    assert again == "WATCHDOG=1"


def test_a_parent_beats_until_one_of_its_processes_hangs(tmp_path: Path) -> None:
    with supervised(*TWO, cwd=an_application(tmp_path)) as (supervisor, worker):
        worker.wait_for("worker started")
        worker.wait_for("worker started")
        words = [supervisor.receive() for _ in range(2)]
        os.kill(pids(worker)[1], signal.SIGSTOP)
        silent = supervisor.finds_it_silent()
        os.kill(pids(worker)[1], signal.SIGCONT)
        again = supervisor.receive()
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert words == ["READY=1", "WATCHDOG=1"]
    assert silent
    assert (again, code) == ("WATCHDOG=1", 0)


def test_a_worker_that_cannot_start_never_says_that_it_is_up(tmp_path: Path) -> None:
    settings = {"DATABASE_URL": "postgresql://me@127.0.0.1:1/name"}

    with supervised(cwd=an_application(tmp_path), **settings) as (supervisor, worker):
        code = worker.end()
        silent = supervisor.finds_it_silent()

    assert code == 3
    assert silent
