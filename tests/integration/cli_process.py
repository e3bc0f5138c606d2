"""The real command line in a process of its own, and an application for it to run."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from holdfast import Holdfast, Job
from tests.fork_server import OF_A_COMMAND, ForkedProcess, ForkServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

TIMEOUT = 120.0
"""Seconds to wait for a process before a test gives up."""

STARTERS = ("dev", "--processes")
"""What starts processes, which begin like their parent: these commands run an interpreter of their own."""

OURS = ("HOLDFAST_", "RETRY_", "WORKER_", "CIRCUIT_", "GATEWAY_", "DATABASE_URL", "PG")

APPLICATION = """
import asyncio
import threading
from pathlib import Path

from holdfast import Holdfast, Permanent

hold = Holdfast()
nothing = None
HERE = Path(__file__).parent


@hold.stage()
async def double(number: int) -> int:
    return number * 2


@hold.job("sum")
async def add(number: int) -> int:
    return await double(number) + 1


@hold.job("refused", attempts=1)
async def refused(why: str) -> None:
    await double(4)
    raise Permanent(why)


@hold.job("waiting", attempts=2)
async def waiting() -> str:
    print("begun", flush=True)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return "done"


@hold.job("tidy", attempts=2)
async def tidy() -> None:
    print("begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.2)
        print("tidied up", flush=True)


@hold.job("threaded", attempts=2)
async def threaded() -> None:
    print("begun", flush=True)
    await asyncio.to_thread(threading.Event().wait)


@hold.job("blocking", attempts=2)
def blocking() -> None:
    print("begun", flush=True)
    threading.Event().wait()


@hold.job("elsewhere", queue="other")
async def elsewhere() -> None:
    print("elsewhere ran", flush=True)


@hold.job("settings")
async def settings() -> dict[str, object]:
    return hold.settings.model_dump(exclude={"database_url"})
"""


def an_application(folder: Path, text: str = APPLICATION) -> Path:
    """Write the module `app` into *folder*, and return the folder."""
    (folder / "app.py").write_text(text, encoding="utf-8")
    return folder


def holdfast(
    *words: str,
    cwd: Path,
    settings: Mapping[str, str] | None = None,
    through: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, perhaps *through* another program that starts it."""
    environment = _environment(settings or {})
    if not through and _can_be_forked(words, environment):
        return _fork_server().run(["holdfast", *words], cwd=cwd, env=environment, timeout=TIMEOUT * 2)
    return subprocess.run(
        [*through, *_command(words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT * 2,
        check=False,
    )


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of a user's to its end."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=_environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT * 2,
        check=False,
    )


class Running:
    """A command that runs, whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str] | ForkedProcess, *streams: IO[str]) -> None:
        self.process = process
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lines: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams
        ]
        for reader in self._readers:
            reader.start()

    @classmethod
    def of(cls, process: subprocess.Popen[str]) -> Running:
        """Read the pipes of *process*."""
        assert process.stdout is not None
        assert process.stderr is not None
        return cls(process, process.stdout, process.stderr)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._said.put(line)
        self._said.put(None)

    def wait_for(self, text: str) -> str:
        """Wait for the next line, on either stream, that holds *text*."""
        while True:
            try:
                line = self._said.get(timeout=TIMEOUT)
            except queue.Empty:
                raise AssertionError(f"no line with {text!r}, only:\n{self.output}") from None
            if line is None and self.process.poll() is not None:
                raise AssertionError(f"ended before a line with {text!r}:\n{self.output}")
            if line is not None:
                self._lines.append(line)
                if text in line:
                    return line

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end, and return the exit code."""
        code = self.process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join(TIMEOUT)
        while not self._said.empty():
            self._lines.append(self._said.get() or "")
        return code

    @property
    def output(self) -> str:
        """What was said so far, both streams together."""
        return "".join(self._lines)

    @property
    def resident_mb(self) -> float:
        """Memory that the process holds now, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024


def _heeds_ctrl_c() -> None:
    """Undo what a shell does to whatever it starts in the background: there SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def a_process(
    *words: str, cwd: Path, settings: Mapping[str, str] | None = None, anew: bool = False
) -> Iterator[Running]:
    """Run a command while the block runs, *anew* in an interpreter that has imported nothing else."""
    environment = _environment(settings or {})
    forked = not anew and _can_be_forked(words, environment)
    running = _forked(words, cwd, environment) if forked else _started_anew(words, cwd, environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(TIMEOUT)


def _can_be_forked(words: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    return not set(words).intersection(STARTERS) and "LD_PRELOAD" not in environment


def _forked(words: tuple[str, ...], cwd: Path, environment: Mapping[str, str]) -> Running:
    out, output = os.pipe()
    err, errors = os.pipe()
    try:
        process = _fork_server().start(["holdfast", *words], cwd=cwd, env=environment, out=output, err=errors)
    finally:
        os.close(output)
        os.close(errors)
    return Running(process, open(out, encoding="utf-8"), open(err, encoding="utf-8"))


def _started_anew(words: tuple[str, ...], cwd: Path, environment: Mapping[str, str]) -> Running:
    process = subprocess.Popen(
        _command(words),
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heeds_ctrl_c,  # noqa: PLW1509 - it does nothing that a lock could be needed for
    )
    return Running.of(process)


@contextmanager
def a_worker(
    *words: str, cwd: Path, settings: Mapping[str, str], application: str = "app:hold", anew: bool = False
) -> Iterator[Running]:
    """Run `holdfast worker` while the block runs; it has begun to claim when the block begins."""
    with a_process("worker", application, *words, cwd=cwd, settings=settings, anew=anew) as running:
        running.wait_for("worker started")
        yield running


async def apply_schema(dsn: str) -> None:
    """Fill a database, and leave no connection to it."""
    hold = Holdfast(dsn)
    try:
        await hold.apply_schema()
    finally:
        await hold.close()


async def submit(url: str, name: str, *args: Any, **options: Any) -> str:
    """Submit a job of `APPLICATION` from this process, and return its id."""

    async def call(hold: Holdfast) -> str:
        function = _stand_in(hold, name)
        return str((await function.options(**options).submit(*args)).id)

    return await _with(url, call)


async def read(url: str, job_id: str) -> Job:
    """Read a job."""
    return await _with(url, lambda hold: hold.read(job_id))


async def wait(url: str, job_id: str) -> Job:
    """Wait until a job has ended, and read it."""
    return await _with(url, lambda hold: hold.wait(job_id, timeout=TIMEOUT))


async def _with(url: str, use: Callable[[Holdfast], Awaitable[T]]) -> T:
    async with Holdfast(url) as hold:
        return await use(hold)


def _stand_in(hold: Holdfast, name: str) -> Any:
    queue_of = {"elsewhere": "other"}

    async def one(number: int) -> None: ...
    async def reason(why: str) -> None: ...
    async def none() -> None: ...

    function: Any = {"sum": one, "refused": reason}.get(name, none)
    return hold.job(name, queue=queue_of.get(name, "default"))(function)


@cache
def _fork_server() -> ForkServer:
    return ForkServer(*OF_A_COMMAND)


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "holdfast", *words]


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.upper().startswith(OURS)}
    return plain | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"} | dict(settings)
