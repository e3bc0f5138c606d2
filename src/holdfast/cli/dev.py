"""`holdfast dev`: a worker that begins again, with the new code, whenever a Python file changes."""

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

from holdfast.cli.exits import ExitCode, say
from holdfast.cli.lengths import length
from holdfast.cli.logging_options import LogLevelOption
from holdfast.cli.serving import SlotsOption, serve
from holdfast.cli.target import ApplicationArgument, AppOption, UrlOption, named_once, served
from holdfast.cli.weights import QueueOption, queues
from holdfast.telemetry.logs import StructuredJournal

LOOK = 0.3
"""Seconds between two looks at the files."""

NO_CODE_OF_YOURS = frozenset({"__pycache__", "node_modules", "site-packages"})


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
            "--grace", parser=length, metavar="TIME", help="How long running jobs may go on after a change."
        ),
    ] = "2s",  # type: ignore[assignment]  # it is read like a word of the command line
    log_level: LogLevelOption = None,
    seat: Annotated[
        Path | None,
        typer.Option("--seat", hidden=True, help="Given by the command to the process it starts."),
    ] = None,
) -> None:
    """Run jobs, and begin again with the new code whenever a Python file changes."""
    if seat is None:
        raise typer.Exit(_reload(Path.cwd()))
    hold = served(named_once(name, application), url)
    hold.settings.ensure_usable()
    usual = hold.settings.worker_options
    options = replace(
        usual, slots=slots or usual.slots, queues=queues(queue) if queue else usual.queues, grace=grace
    )
    journal = StructuredJournal(level=log_level or hold.settings.log_level, as_json=False)
    raise typer.Exit(serve(hold, options, journal, health=seat, development=True))


def _reload(folder: Path) -> int:
    with TemporaryDirectory(prefix="holdfast-") as room:
        return asyncio.run(Reloader(folder, Path(room, "dev.sock")).run())


class Reloader:
    """Keeps one process that works with the code in *folder* as it is now.

    The process is the same command once more, with a *seat*. It gets its orders through its standard input,
    and ends when that does, so that nothing of it stays when this one is killed.
    """

    def __init__(self, folder: Path, seat: Path) -> None:
        self._folder = folder
        self._seat = seat
        self._process: Process | None = None
        self._orders: list[signal.Signals] = []
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Work until told to stop, and give the code that the last process left with."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.order, number)
        code = 0
        while not self._stopping.is_set():
            code = await self.run_once()
        return code

    async def run_once(self) -> int:
        """Run one process until its code has changed, and give the code that it left with."""
        before = python_files(self._folder)  # before the process reads them: what changes meanwhile counts
        # Without bytecode (-B): Python tells it from stale only by the second, and a hurried save falls into one.
        command = [sys.executable, "-B", *sys.orig_argv[1:], "--seat", str(self._seat)]
        self._process = process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE
        )
        for number in self._orders:  # they came while it started
            _tell(process, number)
        ended = asyncio.ensure_future(process.wait())
        ended.add_done_callback(self._told_to_end)
        changed = await self._change_since(before)
        if changed is not None:
            say(f"{changed.relative_to(self._folder)} has changed; beginning again")
            ended.remove_done_callback(self._told_to_end)
            _tell(process, signal.SIGTERM)
        return self._exit_code(await ended)

    def order(self, number: signal.Signals) -> None:
        """Pass an order on; the third ends everything where it stands."""
        self._orders.append(number)
        self._stopping.set()
        if self._process is None:
            return
        if len(self._orders) > 2:
            with suppress(ProcessLookupError):
                self._process.kill()
            os._exit(128 + number)
        _tell(self._process, number)

    async def _change_since(self, before: Mapping[Path, int]) -> Path | None:
        """Wait for a file that is not as it was; none if there is an order to stop."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._stopping.wait()
            now = python_files(self._folder)
            changed = dict(before.items() ^ now.items())
            if changed:
                return min(changed)
        return None

    def _told_to_end(self, ended: "asyncio.Future[int]") -> None:
        if not self._stopping.is_set():
            say(f"the worker has ended with {ended.result()}; it begins again when a Python file changes")

    def _exit_code(self, code: int) -> int:
        if -code in self._orders:
            return ExitCode.DONE  # the signal reached it before it could listen: it had nothing in hand
        return code if code >= 0 else 128 - code


def python_files(folder: Path) -> dict[Path, int]:
    """Tell of each Python file in *folder*, and below, when it was written; environments are passed over."""
    written = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _has_code(Path(place, name))]
        for path in (Path(place, name) for name in names if name.endswith(".py")):
            with suppress(FileNotFoundError):  # an editor may have put another in its place
                written[path] = path.stat().st_mtime_ns
    return written


def _has_code(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in NO_CODE_OF_YOURS
    return not hidden and not (folder / "pyvenv.cfg").exists()


def _tell(process: Process, number: signal.Signals) -> None:
    if process.stdin is not None and process.returncode is None:
        process.stdin.write(bytes([number]))
