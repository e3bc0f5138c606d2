"""The results of a run as one picture.

Dots and not bars: the engines lie up to a thousand times apart, so the axis is logarithmic, and on such an
axis the length of a bar means nothing. A line through a dot leads from the worst round to the best.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bench.engines import ENGINES
from bench.report import formatted

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from bench.report import Report, Series

TITLES = {
    "drain": "No-op jobs drained per second",
    "stages": "Jobs of three stages per second",
    "call": "Jobs of one stage per second",
    "call-breaker": "The same, with a provider",
    "call-limit": "The same, with a provider and a limit on its calls",
    "pickup": "From submit to handler, median (less is better)",
    "submit-one": "Submitted one after the other, per second",
    "submit-tasks": "Submitted from 100 tasks, per second",
    "submit-bulk": "Submitted in lists, per second",
}
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "rabbitmq": "RabbitMQ"}
OURS, THEIRS = "#0b6e4f", "#7a7a7a"


def draw(report: Report, path: Path, *, caption: str) -> None:
    """Draw every measure of *report* that was made, each engine at its best setting, into *path*."""
    panels = {measure: report.best_of_each(measure) for measure in TITLES}
    panels = {measure: found for measure, found in panels.items() if found}
    if not panels:
        return
    picture = Figure(figsize=(9, 0.9 + sum(0.9 + 0.34 * len(found) for found in panels.values())))
    rows = picture.subplots(
        len(panels), 1, squeeze=False, height_ratios=[len(found) + 1 for found in panels.values()]
    )
    for axes, (measure, found) in zip(rows[:, 0], panels.items(), strict=True):
        _panel(axes, TITLES[measure], found)
    picture.supxlabel(caption, fontsize=7, color=THEIRS)
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


def _panel(axes: Axes, title: str, found: list[Series]) -> None:
    for row, series in enumerate(found):
        values, middle = series.values(series.headline), series.median()
        colour = OURS if series.engine == "holdfast" else THEIRS
        axes.plot([min(values), max(values)], [row, row], color=colour, linewidth=2)
        axes.plot(middle, row, "o", color=colour)
        axes.annotate(
            formatted(middle, series.headline), (max(values), row), xytext=(8, -3), textcoords="offset points", fontsize=8
        )  # fmt: skip
    axes.set_yticks(range(len(found)), [_named(series) for series in found], fontsize=8)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_title(title, fontsize=9, loc="left")
    _spread_out(axes, [value for series in found for value in series.values(series.headline)])


def _spread_out(axes: Axes, values: list[float]) -> None:
    """Give the axis whole decades, with room for the values at its end."""
    axes.set_xscale("log")
    axes.set_xlim(
        10 ** math.floor(math.log10(min(values) / 1.5)), 10 ** math.ceil(math.log10(max(values) * 3))
    )
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _named(series: Series) -> str:
    return f"{ENGINES[series.engine]}, {STORES[series.store]} ({series.setting})"
