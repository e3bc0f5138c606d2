"""How far a long command has come: a bar on a terminal, plain lines elsewhere, and both on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli.exits import say

Tell = Callable[[int, str], None]
"""Takes how many are done, and how that reads in words."""


@contextmanager
def counted(total: int, *, least: int = 1) -> Iterator[Tell]:
    """Give what tells how many of *total* are done; of fewer than the *least*, nothing is told.

    The same words are not said twice.
    """
    if total < least:
        yield lambda *_: None
    elif sys.stderr.isatty():
        with _bar(total) as tell:
            yield tell
    else:
        yield _lines()


def _lines() -> Tell:
    last = ""

    def tell(_: int, words: str) -> None:
        nonlocal last
        if words != last:
            say(words)
        last = words

    return tell


@contextmanager
def _bar(total: int) -> Iterator[Tell]:
    from rich.console import Console  # noqa: PLC0415 - a pipe or a worker needs none of it
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def tell(done: int, words: str) -> None:
            progress.update(task, completed=done, description=words)

        yield tell
