"""Prints tables: fitted to the width of a terminal; in a pipe, one line per row with all fields."""

import sys
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import typer

from holdfast.cli.exit_codes import print_status
from holdfast.cli.options.durations import format_relative
from holdfast.cli.views.output import plain

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2
"""Spaces between two columns."""


class Fit(Enum):
    """How a column is fitted to a terminal that is too narrow for its table."""

    WHOLE = auto()
    CUT = auto()
    FOLDED = auto()
    NONE = auto()
    """Printed only in pipes; on a terminal another column has a shorter text."""


class Column(NamedTuple):
    """A column of a table.

    On a terminal it is omitted if all of its cells are in *omit_if*. *min_width* is the width to which it may
    be cut. If the table does not fit, the column with the highest *drop_order* is omitted first; 0 is never.
    """

    name: str
    fit: Fit = Fit.WHOLE
    omit_if: tuple[str, ...] = ()
    min_width: int = 8
    drop_order: int = 0


class Cell(NamedTuple):
    """A value with two texts: the full one for a pipe, and a short one for a terminal."""

    whole: object
    short: str


def moment(at: datetime | None, now: datetime) -> Cell | None:
    """Return a cell with an instant for a pipe, and its distance from *now* for a terminal."""
    return None if at is None else Cell(at, short=format_relative(at, now))


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print *rows*; in a pipe without a heading, so that each line is one row."""
    if sys.stdout.isatty():
        _draw(
            [
                _FilledColumn(column, [_short(row[number]) for row in rows])
                for number, column in enumerate(columns)
            ]
        )
    else:
        for row in rows:
            typer.echo("\t".join(_whole(cell) for cell in row))


def show_rows(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, if_empty: str) -> None:
    """Print *rows*; if there are none, print *if_empty* on stderr."""
    if rows:
        show_table(columns, rows)
    else:
        print_status(if_empty)


def _whole(cell: object) -> str:
    return plain(cell.whole if isinstance(cell, Cell) else cell)


def _short(cell: object) -> str:
    return plain(cell.short if isinstance(cell, Cell) else cell)


class _FilledColumn(NamedTuple):
    """A column with its cells on a terminal."""

    column: Column
    cells: Sequence[str]

    def is_informative(self) -> bool:
        """Whether the column is printed: it has no cells, or one that is not in `omit_if`."""
        if self.column.fit is Fit.NONE:
            return False
        return not self.cells or any(cell not in self.column.omit_if for cell in self.cells)

    def required_width(self) -> int:
        """Return the minimum width in terminal cells."""
        from rich.cells import cell_len  # noqa: PLC0415 - some characters are two places wide

        widest = max(cell_len(text) for text in (self.column.name, *self.cells))
        return widest if self.column.fit is Fit.WHOLE else min(widest, self.column.min_width)

    def text(self, words: str) -> "Text":
        """Return *words* as a cell of this column: cut to one line, or wrapped."""
        from rich.text import Text  # noqa: PLC0415

        return Text(words, no_wrap=True, overflow="ellipsis") if self.column.fit is Fit.CUT else Text(words)


def _draw(columns: Sequence[_FilledColumn]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - a pipe or a worker needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(highlight=False)
    informative = [each for each in columns if each.is_informative()]
    kept = _fit_columns(informative, console.width)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for each in kept:
        # A column that must not be wrapped keeps its width; the others shrink.
        table.add_column(each.text(each.column.name), no_wrap=each.column.fit is Fit.WHOLE, overflow="fold")
    for row in zip(*([each.text(cell) for cell in each.cells] for each in kept), strict=True):
        table.add_row(*row)
    console.print(table)
    if missing := [each.column.name for each in informative if each not in kept]:
        console.print(f"columns omitted: {', '.join(missing)}", style="dim")


def _fit_columns(columns: Sequence[_FilledColumn], fit: int) -> list[_FilledColumn]:
    """Drop columns until the others fit, or no column may be dropped."""
    kept = list(columns)
    while sum(each.required_width() + GAP for each in kept) > fit:
        drop_order = max(kept, key=lambda each: each.column.drop_order)
        if not drop_order.column.drop_order:
            break
        kept.remove(drop_order)
    return kept
