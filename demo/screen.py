"""What a person sees: a story with a bar on a terminal, the same story in plain lines in a pipe."""

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

from demo.books import Figures
from demo.evidence import Finding

WIDEST = 110
MARGIN = 2


class Screen:
    """Tells the story. Every line of it bears the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live = console.is_terminal and not console.is_dumb_terminal

    @property
    def seconds(self) -> float:
        """How long the story takes so far."""
        return time.monotonic() - self._began

    def title(self, text: str, promise: str) -> None:
        """Begin."""
        self._console.print()
        self._console.print(_indented(Text(text, style="bold")))
        self._console.print(_indented(Text(promise, style="dim")))

    def act(self, number: int, headline: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.print(_indented(Text.assemble((f"{number}  ", "cyan"), (headline, "bold"))))

    def tell(self, text: str, *, style: str = "") -> None:
        """Say what happens now."""
        line = Table.grid(padding=(0, 2))
        line.add_column(width=8, justify="right", no_wrap=True, style="dim")
        line.add_column(overflow="fold")
        line.add_row(f"{self.seconds:.1f} s", Text.from_markup(text, style=style))
        self._console.print(line)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Show a few rows inside the story."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        self._console.print(_indented(table, 8 + MARGIN))

    @contextmanager
    def bar(self, total: int) -> "Iterator[Bar]":
        """Show how far the jobs are, below the story, while the block runs."""
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
        """Show what was promised beside what happened, and name what broke a promise."""
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
            some = ", ".join(finding.culprits[:3]) or "it was not put to the test"
            self._console.print(_indented(Text(f"{finding.promise}: {some}", style="red")))

    def end(self, text: str, *, style: str = "") -> None:
        """Say the last word."""
        self._console.print(_indented(Text.from_markup(text, style=style)))
        self._console.print()


class Bar:
    """Follows the figures."""

    def show(self, figures: Figures) -> None:
        """Show how things stand."""
        raise NotImplementedError


class LiveBar(Bar):
    """A bar that moves."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, figures: Figures) -> None:
        """Move the bar to where the figures are."""
        self._progress.update(self._task, completed=figures.completed, doing=f"{doing(figures):<36}")


class PlainBar(Bar):
    """A line for every tenth."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total
        self._left = [total * tenth // 10 for tenth in range(1, 11)]

    def show(self, figures: Figures) -> None:
        """Say it in a line, if another tenth was passed."""
        passed = list(takewhile(lambda mark: mark <= figures.completed, self._left))
        if passed:
            del self._left[: len(passed)]
            self._screen.tell(f"{figures.completed:,} of {self._total:,} completed; {doing(figures)}")


def doing(figures: Figures) -> str:
    """Say in a few words what the jobs do that were begun and have not ended.

    >>> doing(Figures(running=24, orphaned=8, ready=500, parked=12, completed=0, failed=2, retries=40))
    '24 running, 8 orphaned, 12 to retry'
    """
    return f"{figures.running} running, {figures.orphaned} orphaned, {figures.parked} to retry"


def _indented(what: Text | Table, by: int = MARGIN) -> Padding:
    return Padding.indent(what, by)
