"""The output of the demo: lines with a progress bar on a terminal, plain lines in a pipe."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from demo.books import JobCounts
from demo.evidence import Finding

WIDEST = 110
MARGIN = 2


class Screen:
    """Prints the steps of the demo. Every line has the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live = console.is_terminal and not console.is_dumb_terminal

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self._began

    def title(self, text: str, promise: str) -> None:
        """Print the title."""
        self._console.print()
        self._console.print(_indented(Text(text, style="bold")))
        self._console.print(_indented(Text(promise, style="dim")))

    def act(self, number: int, headline: str) -> None:
        """Print the headline of a part."""
        self._console.print()
        self._console.print(_indented(Text.assemble((f"{number}  ", "cyan"), (headline, "bold"))))

    def report(self, text: str, *, style: str = "") -> None:
        """Print what happens now."""
        line = Table.grid(padding=(0, 2))
        line.add_column(width=8, justify="right", no_wrap=True, style="dim")
        line.add_column(overflow="fold")
        line.add_row(f"{self.seconds:.1f} s", Text.from_markup(text, style=style))
        self._console.print(line)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a small table."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        self._console.print(_indented(table, 8 + MARGIN))

    @contextmanager
    def bar(self, total: int) -> "Iterator[Bar]":
        """Show the progress of the jobs, below the lines, while the block runs."""
        if not self._live:
            yield PlainBar(self, total)
            return
        columns = (
            TextColumn(" " * 9),
            BarColumn(bar_width=None, style="bright_black", complete_style="cyan", finished_style="green"),
            TextColumn("[bold]{task.completed:,.0f}[/] of {task.total:,.0f} "),
            TextColumn("[dim]{task.fields[doing]}"),
        )
        with Progress(*columns, console=self._console, expand=True) as progress:
            yield LiveBar(progress, progress.add_task("", total=total, doing=""))

    def verdict(self, found: Iterable[Finding]) -> None:
        """Print each promise with what happened, and what broke a promise."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
        table.add_column("Promised", no_wrap=True)
        table.add_column("Happened")
        table.add_column("", no_wrap=True)
        broken = []
        for finding in found:
            mark = Text("kept", style="green") if finding.holds else Text("BROKEN", style="bold red")
            table.add_row(finding.promise, finding.happened, mark)
            if not finding.holds:
                broken.append(finding)
        self._console.print(_indented(table))
        for finding in broken:
            some = ", ".join(finding.culprits[:3]) or "it was not tested"
            self._console.print(_indented(Text(f"{finding.promise}: {some}", style="red")))

    def end(self, text: str, *, style: str = "") -> None:
        """Print the last line."""
        self._console.print(_indented(Text.from_markup(text, style=style)))
        self._console.print()


class Bar:
    """The progress of the jobs."""

    def show(self, counts: JobCounts) -> None:
        """Show the progress."""
        raise NotImplementedError


class LiveBar(Bar):
    """A progress bar on a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, counts: JobCounts) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=counts.completed, doing=f"{doing(counts):<36}")


class PlainBar(Bar):
    """A line for every tenth of the jobs."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total
        self._left = [total * tenth // 10 for tenth in range(1, 11)]

    def show(self, counts: JobCounts) -> None:
        """Print a line, if another tenth was passed."""
        passed = list(takewhile(lambda mark: mark <= counts.completed, self._left))
        if passed:
            del self._left[: len(passed)]
            self._screen.report(f"{counts.completed:,} of {self._total:,} completed; {doing(counts)}")


def doing(counts: JobCounts) -> str:
    """Describe the jobs that have begun and have not ended.

    >>> doing(JobCounts(running=24, orphaned=8, ready=500, parked=12, completed=0, failed=2, retries=40))
    '24 running, 8 orphaned, 12 to retry'
    """
    return f"{counts.running} running, {counts.orphaned} orphaned, {counts.parked} to retry"


def _indented(what: Text | Table, by: int = MARGIN) -> Padding:
    return Padding.indent(what, by)
