"""Runs commands as forks of one process that has imported Holdfast: real processes, without a second of imports each.

    python -m tests.integration.fork_server SOCKET

A client connects, sends one line of JSON (`words`, `cwd`, `env`) with its output files attached, and reads two lines: the id
of the process that runs the command, and the exit code. When its standard input ends, the server does too.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE = 1 << 16
"""Bytes that a request has at most."""


class ForkServer:
    """The server, seen from a test: it starts with the first command and ends with the process of the tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-forks-")
        self._address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.fork_server", self._address],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `holdfast` with *words* to its end."""
        request = json.dumps({"words": words, "cwd": str(cwd), "env": dict(env)}).encode() + b"\n"
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.connect(self._address)
            connection.settimeout(timeout)
            socket.send_fds(connection, [request], [out.fileno(), err.fileno()])
            answers = connection.makefile("r", encoding="ascii")
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(["holdfast", *words], code, out.read(), err.read())


def serve(address: str) -> list[str]:
    """Fork for each request. Returns in the fork that is to run a command, with its words."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(8)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            sys.exit()
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _attend(connection)
        connection.close()


def _attend(connection: socket.socket) -> list[str]:
    """Fork once more, and report the end of that fork to the client; in the fork, return the request's words."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line, files, _, _ = socket.recv_fds(connection, LINE, 2)
    while not line.endswith(b"\n"):
        line += connection.recv(LINE)
    pid = os.fork()
    if pid != 0:
        connection.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.close()
    request = json.loads(line)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["cwd"]
    for number, file in zip((0, 1, 2), (os.open(os.devnull, os.O_RDONLY), *files), strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as the interpreter opens it
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(
        open(2, "wb", closefd=False),  # noqa: SIM115
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
    return list(request["words"])


if __name__ == "__main__":
    # What a command of either store imports when it runs.
    import asyncpg  # noqa: F401

    import holdfast.cli
    import holdfast.stores.postgres
    import holdfast.stores.sqlite  # noqa: F401

    words = serve(sys.argv[1])
    sys.argv = ["holdfast", *words]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
