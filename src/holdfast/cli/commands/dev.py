"""`holdfast dev`: a worker that restarts whenever a Python file changes."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from holdfast.cli.exit_codes import ExitCode, print_status
from holdfast.cli.options.app_loader import (
    ApplicationArgument,
    AppOption,
    UrlOption,
    application_reference,
    resolve_for_worker,
)
from holdfast.cli.options.durations import parse_duration
from holdfast.cli.options.logging_options import LogLevelOption
from holdfast.cli.options.queue_option import QueueOption, queues
from holdfast.cli.process.worker_process import SlotsOption, serve
from holdfast.telemetry.logs import StructuredLogger

POLL_SECONDS = 0.3
"""Seconds between two checks of the files."""

IGNORED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


def run(
    name: ApplicationArgument = None,
    *,
    application: AppOption = None,
    url: UrlOption = None,
    slots: SlotsOption = None,
    queue: QueueOption = None,
    grace: Annotated[
        timedelta,
        typer.Option(
            "--grace",
            parser=parse_duration,
            metavar="TIME",
            help="How long running jobs may continue after a change.",
        ),
    ] = "2s",  # type: ignore[assignment]  # it is read like a word of the command line
    log_level: LogLevelOption = None,
    seat: Annotated[
        Path | None,
        typer.Option(
            "--seat", hidden=True, help="Internal: set by the command for the process that it starts."
        ),
    ] = None,
) -> None:
    """Run jobs, and restart the worker whenever a Python file changes."""
    if seat is None:
        with TemporaryDirectory(prefix="holdfast-") as folder:
            code = asyncio.run(Reloader(Path.cwd(), Path(folder, "dev.sock")).run())
        raise typer.Exit(code)
    hold = resolve_for_worker(application_reference(name, application), url)
    hold.settings.ensure_usable()
    defaults = hold.settings.worker_options
    options = replace(
        defaults,
        slots=slots or defaults.slots,
        queues=queues(queue) if queue else defaults.queues,
        grace=grace,
    )
    logger = StructuredLogger(level=log_level or hold.settings.log_level, as_json=False)
    raise typer.Exit(serve(hold, options, logger, health=seat, development=True))


class Reloader:
    """Runs one worker process with the current code in *folder*.

    The process is the same command with a *seat*. It receives signals through its standard input,
    and ends when that is closed, so it does not survive if its parent is killed.
    """

    def __init__(self, folder: Path, seat: Path) -> None:
        self._folder = folder
        self._seat = seat
        self._process: Process | None = None
        self._signals: list[signal.Signals] = []
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal stops it, and return the exit code of the last process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.forward_signal, number)
        code = 0
        while not self._stopping.is_set():
            code = await self.run_once()
        return code

    async def run_once(self) -> int:
        """Run one process until a file changes, and return its exit code."""
        before = python_files(self._folder)  # before the process reads them, so that no change is missed
        # Without bytecode (-B): Python detects stale bytecode by the second, and two saves may fall into one.
        command = [sys.executable, "-B", *sys.orig_argv[1:], "--seat", str(self._seat)]
        self._process = process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE
        )
        for number in self._signals:  # signals received while it started
            _forward(process, number)
        ended = asyncio.ensure_future(process.wait())
        ended.add_done_callback(self._report_exit)
        changed = await self._wait_for_change(before)
        if changed is not None:
            print_status(f"{changed.relative_to(self._folder)} has changed; restarting the worker")
            ended.remove_done_callback(self._report_exit)
            _forward(process, signal.SIGTERM)
        return self._exit_code(await ended)

    def forward_signal(self, number: signal.Signals) -> None:
        """Forward a signal; the third kills the processes and exits at once."""
        self._signals.append(number)
        self._stopping.set()
        if self._process is None:
            return
        if len(self._signals) > 2:
            with suppress(ProcessLookupError):
                self._process.kill()
            os._exit(128 + number)
        _forward(self._process, number)

    async def _wait_for_change(self, before: Mapping[Path, int]) -> Path | None:
        """Wait for a changed file and return it, or `None` if a signal stops the command."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._stopping.wait()
            now = python_files(self._folder)
            changed = dict(before.items() ^ now.items())
            if changed:
                return min(changed)
        return None

    def _report_exit(self, ended: "asyncio.Future[int]") -> None:
        if not self._stopping.is_set():
            print_status(
                f"the worker exited with code {ended.result()}; it restarts when a Python file changes"
            )

    def _exit_code(self, code: int) -> int:
        if -code in self._signals:
            return ExitCode.DONE  # the signal arrived before its handler was installed: it ran no job
        return code if code >= 0 else 128 - code


def python_files(folder: Path) -> dict[Path, int]:
    """Return the modification time of each Python file below *folder*; virtual environments are skipped."""
    written = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _has_code(Path(root, name))]
        for path in (Path(root, name) for name in names if name.endswith(".py")):
            with suppress(FileNotFoundError):  # an editor may have replaced it
                written[path] = path.stat().st_mtime_ns
    return written


def _has_code(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in IGNORED_FOLDERS
    return not hidden and not (folder / "pyvenv.cfg").exists()


def _forward(process: Process, number: signal.Signals) -> None:
    if process.stdin is not None and process.returncode is None:
        process.stdin.write(bytes([number]))
