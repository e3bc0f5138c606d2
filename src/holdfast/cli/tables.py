"""Tables: on a terminal they make do with its width, in a pipe each line is one thing with all of its fields."""

import sys
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import typer

from holdfast.cli.exits import say
from holdfast.cli.lengths import from_now
from holdfast.cli.output import plain

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2
"""Places between two columns."""


class Room(Enum):
    """What becomes of a column on a terminal that is too narrow for its table."""

    WHOLE = auto()
    CUT = auto()
    FOLDED = auto()
    NONE = auto()
    """It is for pipes alone; on a terminal another column says it in fewer words."""


class Column(NamedTuple):
    """A column of a table.

    On a terminal it is left out if all of its cells say one of what is *usual*. If it gives way, *least* is
    the width that it is worth showing in. Of those that can be *spared*, the highest goes first.
    """

    name: str
    room: Room = Room.WHOLE
    usual: tuple[str, ...] = ()
    least: int = 8
    spared: int = 0


class Cell(NamedTuple):
    """A value with two spellings: all of it for a pipe, and the few words that a terminal has room for."""

    whole: object
    short: str


def moment(at: datetime | None, now: datetime) -> Cell | None:
    """Give an instant to a pipe, and to people how far from *now* it is."""
    return None if at is None else Cell(at, short=from_now(at, now))


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Show *rows*; in a pipe without a heading, so that each line is one thing."""
    if sys.stdout.isatty():
        _draw(
            [_Filled(column, [_short(row[number]) for row in rows]) for number, column in enumerate(columns)]
        )
    else:
        for row in rows:
            typer.echo("\t".join(_whole(cell) for cell in row))


def show_rows(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, nothing: str) -> None:
    """Show *rows*; if there are none, say *nothing* on stderr: a pipe then gets no line."""
    if rows:
        show_table(columns, rows)
    else:
        say(nothing)


def _whole(cell: object) -> str:
    return plain(cell.whole if isinstance(cell, Cell) else cell)


def _short(cell: object) -> str:
    return plain(cell.short if isinstance(cell, Cell) else cell)


class _Filled(NamedTuple):
    """A column with what stands in it on a terminal."""

    column: Column
    cells: Sequence[str]

    def tells(self) -> bool:
        """Whether it is worth its room: some cell says something, or there is nothing but headings to show."""
        if self.column.room is Room.NONE:
            return False
        return not self.cells or any(cell not in self.column.usual for cell in self.cells)

    def needs(self) -> int:
        """Count the places that it cannot do without."""
        from rich.cells import cell_len  # noqa: PLC0415 - some characters are two places wide

        widest = max(cell_len(text) for text in (self.column.name, *self.cells))
        return widest if self.column.room is Room.WHOLE else min(widest, self.column.least)

    def text(self, words: str) -> "Text":
        """Give *words* as they stand in this column: on one line, or on as many as they take."""
        from rich.text import Text  # noqa: PLC0415

        return Text(words, no_wrap=True, overflow="ellipsis") if self.column.room is Room.CUT else Text(words)


def _draw(columns: Sequence[_Filled]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - a pipe or a worker needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(highlight=False)
    telling = [each for each in columns if each.tells()]
    kept = _fitting(telling, console.width)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for each in kept:
        # One that must not be wrapped keeps its width, and only the others give way.
        table.add_column(each.text(each.column.name), no_wrap=each.column.room is Room.WHOLE, overflow="fold")
    for row in zip(*([each.text(cell) for cell in each.cells] for each in kept), strict=True):
        table.add_row(*row)
    console.print(table)
    if missing := [each.column.name for each in telling if each not in kept]:
        console.print(f"no room for: {', '.join(missing)}", style="dim")


def _fitting(columns: Sequence[_Filled], room: int) -> list[_Filled]:
    """Spare columns until the others fit, or none is left that can be spared."""
    kept = list(columns)
    while sum(each.needs() + GAP for each in kept) > room:
        spared = max(kept, key=lambda each: each.column.spared)
        if not spared.column.spared:
            break
        kept.remove(spared)
    return kept
