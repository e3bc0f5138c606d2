"""Runs modules as forks of one process that has imported Holdfast: real processes, without a second of imports each.

    python -m tests.fork_server SOCKET MODULE...

imports the modules and serves. A client connects, sends one line of JSON (`words`, as they follow `python -m`, `cwd`, `env`) with
its output files attached, and reads two lines: the id of the process that runs the module, and its exit code. That process
stays a zombie until the client closes the connection, so that its id means no other process before. When its standard input
ends, the server does too, and with it all forks.
"""

from __future__ import annotations

import gc
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
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.run_with_parent import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE = 1 << 16
"""Bytes that are read at once."""

OF_A_COMMAND = (
    "holdfast.cli",
    "holdfast.engine.worker.worker",
    "holdfast.stores.postgres.store",
    "holdfast.stores.sqlite.store",
)
"""What a command of either store imports when it runs."""


class ForkServer:
    """The server, seen from a test: it starts with the first fork and ends with the process of the tests."""

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-forks-")
        self._address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", self._address, *modules],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def start(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: int, err: int
    ) -> ForkedProcess:
        """Run `python -m` with *words*, which writes to the files *out* and *err*."""
        request = json.dumps({"words": words, "cwd": str(cwd), "env": dict(env)}).encode() + b"\n"
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        socket.send_fds(connection, [request], [out, err])
        return ForkedProcess(connection)

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m` with *words* to its end."""
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        ):
            process = self.start(words, cwd=cwd, env=env, out=out.fileno(), err=err.fileno())
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(words), code, out.read(), err.read())


class ForkedProcess:
    """A fork, with what tests use of `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("r", encoding="ascii")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or `None` while the process runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        self.returncode = int(self._answers.readline())
        self._answers.close()
        self._connection.close()


def serve(address: str) -> list[str]:
    """Fork for each request. Returns in the fork that is to run a module, with its words."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(8)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
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


def _reap() -> None:
    """Wait for the forks that have ended; the system counts their time for this process then."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _attend(connection: socket.socket) -> list[str]:
    """Fork once more, and report the end of that fork to the client; in the fork, return the request's words."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_with_parent()
    line, files, _, _ = socket.recv_fds(connection, LINE, 2)
    while not line.endswith(b"\n"):
        line += connection.recv(LINE)
    pid = os.fork()
    if pid != 0:
        for file in files:
            os.close(file)
        _report(connection, pid)
        os._exit(0)
    end_with_parent()
    # A shell has what it starts in the background ignore SIGINT, and forks inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


def _report(connection: socket.socket, pid: int) -> None:
    """Send the id of a fork and, when it has ended, its exit code; reap it when the client has read that."""
    connection.sendall(f"{pid}\n".encode())
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    connection.sendall(f"{code}\n".encode())
    connection.recv(1)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        import_module(module)
    # A fork whose collector visits what was imported here copies that memory, page by page, which takes most of its time.
    gc.collect()
    gc.freeze()
    words = serve(sys.argv[1])
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
