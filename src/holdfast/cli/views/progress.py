"""Reports progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli.exit_codes import print_status

ReportProgress = Callable[[int, str], None]
"""Called with the number of finished items, and a text that describes the progress."""


@contextmanager
def progress_reporter(total: int, *, least: int = 1) -> Iterator[ReportProgress]:
    """Return a function that reports progress towards *total*; below *least* items it reports nothing.

    A text that has not changed is not printed again.
    """
    if total < least:
        yield lambda *_: None
    elif sys.stderr.isatty():
        with _bar(total) as report:
            yield report
    else:
        yield _lines()


def _lines() -> ReportProgress:
    last = ""

    def report(_: int, text: str) -> None:
        nonlocal last
        if text != last:
            print_status(text)
        last = text

    return report


@contextmanager
def _bar(total: int) -> Iterator[ReportProgress]:
    from rich.console import Console  # noqa: PLC0415 - a pipe or a worker needs none of it
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def report(done: int, text: str) -> None:
            progress.update(task, completed=done, description=text)

        yield report
