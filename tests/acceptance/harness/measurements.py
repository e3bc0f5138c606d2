"""Measurements of a long run beside the bounds that they have to meet, as a table and as an exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measurement:
    """A measured value, the bound that was expected, and whether it is met; `None` without a bound."""

    what: str
    value: str
    expected: str = ""
    met: bool | None = None


@dataclass
class Measurements:
    """All measurements of a run."""

    rows: list[Measurement] = field(default_factory=list)

    def record(self, what: str, value: object) -> None:
        """Add a measurement without a bound."""
        self.rows.append(Measurement(what, _written(value)))

    def at_most(self, what: str, value: float, bound: float) -> None:
        """Add a measurement that may not be above *bound*."""
        self.rows.append(Measurement(what, _written(value), f"≤ {_written(bound)}", value <= bound))

    def at_least(self, what: str, value: float, bound: float) -> None:
        """Add a measurement that may not be below *bound*."""
        self.rows.append(Measurement(what, _written(value), f"≥ {_written(bound)}", value >= bound))

    def exactly(self, what: str, value: float, bound: float) -> None:
        """Add a measurement that must equal *bound*."""
        self.rows.append(Measurement(what, _written(value), f"= {_written(bound)}", value == bound))

    @property
    def exit_code(self) -> int:
        """0 if every bound is met, else 1."""
        return 1 if any(row.met is False for row in self.rows) else 0

    def show(self, title: str) -> None:
        """Print the table."""
        widths = [max(len(row.what) for row in self.rows), max(len(row.value) for row in self.rows)]
        lines = [
            f"{row.what:<{widths[0]}}  {row.value:>{widths[1]}}  {row.expected:<10}{_MARKS[row.met]}".rstrip()
            for row in self.rows
        ]
        sys.stdout.write("\n".join([title, "-" * len(title), *lines, ""]))


_MARKS = {None: "", True: "met", False: "MISSED"}


def _written(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
