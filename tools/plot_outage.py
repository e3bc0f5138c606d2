"""Draw what happens when a provider goes down and comes back, from the timeline that `make outage` writes.

    python -m tools.plot_outage build/outage-postgres.json docs/guides/images/outage.svg

Three panels over one axis of time: calls to the failing provider, jobs that are held for it, and calls to another
provider beside it. Calls lie between one and hundreds a second, so their axes are logarithmic, and each second
is a dot.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT = 760, 56, 16
PANEL, GAP, TOP, BOTTOM = 130, 42, 34, 40
FROM, EVERY = -20, 30
GOOD, BAD, OTHER, HELD, BAND = "#0b6e4f", "#c0392b", "#7a7a7a", "#2f6db5", "#fbe9e7"

Points = list[tuple[float, float]]


class Picture:
    """An SVG with panels below each other; x is in seconds since the provider went down."""

    def __init__(self, until: float, panels: int) -> None:
        self._until = until
        self.height = TOP + panels * PANEL + (panels - 1) * GAP + BOTTOM
        self._elements: list[str] = []

    def x(self, seconds: float) -> float:
        """The x coordinate of an instant."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (seconds - FROM) / (self._until - FROM)

    def add(self, element: str) -> None:
        """Draw something."""
        self._elements.append(element)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333") -> None:
        """Write something."""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')

    def line(self, points: Points, colour: str, *, width: float = 1, dash: str = "") -> None:
        """Draw a line through points of the paper."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def svg(self, title: str) -> str:
        """Give the whole picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            'font-family="sans-serif" font-size="11">'
        )
        paper = f'<rect width="{WIDTH}" height="{self.height}" fill="white"/>'
        return "\n".join([head, f"<title>{title}</title>", paper, *self._elements, "</svg>", ""])


class Panel:
    """One part of the picture, with an axis of its own up to *most*."""

    def __init__(self, picture: Picture, number: int, title: str, most: float, *, log: bool) -> None:
        self._picture = picture
        self._bottom = TOP + number * (PANEL + GAP) + PANEL
        self._most = most
        self._log = log
        picture.text(LEFT, self._bottom - PANEL - 8, title)
        for value in self._ticks():
            self._grid(value)

    def y(self, value: float) -> float:
        """The y coordinate of a value."""
        share = (
            math.log10(max(value, 0.7) / 0.7) / math.log10(self._most / 0.7)
            if self._log
            else value / self._most
        )
        return self._bottom - PANEL * share

    def dots(self, points: Points, colour: str) -> None:
        """Draw each value as a dot."""
        for seconds, value in points:
            x, y = self._picture.x(seconds), self.y(value)
            self._picture.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>')

    def curve(self, points: Points, colour: str) -> None:
        """Draw values as one line."""
        drawn = [(self._picture.x(seconds), self.y(value)) for seconds, value in points]
        self._picture.line(drawn, colour, width=2)

    def note(self, seconds: float, value: float, words: str, colour: str) -> None:
        """Write something above a value, from there on."""
        self._picture.text(self._picture.x(seconds) - 3, self.y(value) - 7, words, colour=colour)

    def _ticks(self) -> list[float]:
        if self._log:
            return [value for value in (1, 10, 100, 1000) if value <= self._most]
        step = 10 ** math.floor(math.log10(self._most))
        return [step * number for number in range(int(self._most // step) + 1)]

    def _grid(self, value: float) -> None:
        y = self.y(value)
        self._picture.line([(LEFT, y), (WIDTH - RIGHT, y)], "#ddd")
        self._picture.text(LEFT - 6, y + 4, f"{value:,.0f}", anchor="end")


def draw(timeline: dict[str, Any]) -> str:
    """Draw a timeline."""
    until = _end(timeline)
    picture = Picture(until, panels=3)
    _times(picture, timeline, until)
    _calls(Panel(picture, 0, "Calls a second to the provider that is down", 200, log=True), timeline)
    most = max(held for _, held in timeline["held"])
    held = Panel(picture, 1, "Jobs that are held for it", most * 1.05, log=False)
    held.curve([*timeline["held"], (until, 0)], HELD)
    other = Panel(picture, 2, "Calls a second to another provider", 200, log=True)
    other.dots([point for point in timeline["other_calls"] if FROM <= point[0] < until], OTHER)
    return picture.svg("A provider is down, and comes back: calls, held jobs, and another provider's calls")


def _end(timeline: dict[str, Any]) -> float:
    """A while after the last call of the backlog."""
    return float(max(second for second, _ in timeline["good_calls"]) + 10)


def _times(picture: Picture, timeline: dict[str, Any], until: float) -> None:
    """Draw what is common to all panels: the time, the outage, and when the breaker closed."""
    top, bottom = TOP - 4, picture.height - BOTTOM
    width = picture.x(timeline["up_at"]) - picture.x(0)
    picture.add(
        f'<rect x="{picture.x(0):.1f}" y="{top}" width="{width:.1f}" height="{bottom - top}" fill="{BAND}"/>'
    )
    picture.text(picture.x(timeline["up_at"]) - 4, top + 12, "the provider is down", anchor="end", colour=BAD)
    closed = picture.x(timeline["closed"][0])
    picture.line([(closed, top), (closed, bottom)], GOOD, dash="4 3")
    picture.text(closed + 4, top + 12, "closed", colour=GOOD)
    for seconds in range(0, int(until), EVERY):
        picture.text(picture.x(seconds), bottom + 16, f"{seconds} s", anchor="middle")


def _calls(panel: Panel, timeline: dict[str, Any]) -> None:
    panel.dots(timeline["failed_calls"], BAD)
    panel.dots(timeline["good_calls"], GOOD)
    first = sum(calls for second, calls in timeline["failed_calls"] if second < timeline["opened"][0] + 10)
    panel.note(0, first, f"{first} calls until it opened", BAD)
    second, trials = next(
        point for point in timeline["failed_calls"] if point[0] >= timeline["opened"][0] + 10
    )
    panel.note(second, trials, f"{trials} trials after each cooldown", BAD)


def main() -> None:
    """Read a timeline, and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("timeline", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(draw(json.loads(options.timeline.read_text())))


if __name__ == "__main__":
    main()
