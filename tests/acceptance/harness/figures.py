"""Figures of a long run beside the bars that they have to meet, as a table and as an exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """Something that was measured, what was wanted of it, and whether it is so; `None` if nothing was wanted."""

    what: str
    value: str
    wanted: str = ""
    met: bool | None = None


@dataclass
class Figures:
    """All figures of a run."""

    rows: list[Figure] = field(default_factory=list)

    def tell(self, what: str, value: object) -> None:
        """Note a figure of which nothing is wanted."""
        self.rows.append(Figure(what, _written(value)))

    def at_most(self, what: str, value: float, bar: float) -> None:
        """Note a figure that may not be above its bar."""
        self.rows.append(Figure(what, _written(value), f"≤ {_written(bar)}", value <= bar))

    def at_least(self, what: str, value: float, bar: float) -> None:
        """Note a figure that may not be below its bar."""
        self.rows.append(Figure(what, _written(value), f"≥ {_written(bar)}", value >= bar))

    def exactly(self, what: str, value: float, bar: float) -> None:
        """Note a figure that has to be what it has to be."""
        self.rows.append(Figure(what, _written(value), f"= {_written(bar)}", value == bar))

    @property
    def exit_code(self) -> int:
        """0 if every bar is met, else 1."""
        return 1 if any(row.met is False for row in self.rows) else 0

    def show(self, title: str) -> None:
        """Print the table."""
        widths = [max(len(row.what) for row in self.rows), max(len(row.value) for row in self.rows)]
        lines = [
            f"{row.what:<{widths[0]}}  {row.value:>{widths[1]}}  {row.wanted:<10}{_MARKS[row.met]}".rstrip()
            for row in self.rows
        ]
        sys.stdout.write("\n".join([title, "-" * len(title), *lines, ""]))


_MARKS = {None: "", True: "met", False: "MISSED"}


def _written(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
