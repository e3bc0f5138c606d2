"""Medians, ratios and bars from the raw records of a run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.engines import ENGINES

if TYPE_CHECKING:
    from collections.abc import Sequence

Record = dict[str, Any]

HEADLINE = {"pickup": "p50_ms"}
"""The metric by which a measure is judged, where it is not `per_second`."""


@dataclass(frozen=True)
class Series:
    """The results of one setting, by round."""

    measure: str
    store: str
    engine: str
    setting: str
    results: dict[int, dict[str, float]]

    def values(self, metric: str) -> list[float]:
        return [result[metric] for result in self.results.values() if metric in result]

    def median(self, metric: str | None = None) -> float:
        return statistics.median(self.values(metric or self.headline))

    @property
    def headline(self) -> str:
        return HEADLINE.get(self.measure, "per_second")


@dataclass(frozen=True)
class Bar:
    """A target for Holdfast: the ratio of its *measure* to another engine's."""

    title: str
    measure: str
    beside: tuple[str, str, str]
    """Measure, store and engine on the other side."""
    at_least: float | None = None
    at_most: float | None = None
    store: str = "postgres"

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.at_least if self.at_least is not None else ratio <= (self.at_most or 0)

    @property
    def expected(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


BARS = (
    Bar("drain, beside PgQueuer", "drain", ("drain", "postgres", "pgqueuer"), at_least=2),
    Bar("three stages, beside DBOS", "stages", ("stages", "postgres", "dbos"), at_least=30),
    Bar("pickup p50, beside PgQueuer", "pickup", ("pickup", "postgres", "pgqueuer"), at_most=1.1),
    Bar("submit_many, beside PgQueuer's lists", "submit-bulk", ("submit-bulk", "postgres", "pgqueuer"), at_least=1.5),
    Bar("one by one, beside PgQueuer", "submit-one", ("submit-one", "postgres", "pgqueuer"), at_least=1),
    Bar("100 tasks, beside own one by one", "submit-tasks", ("submit-one", "postgres", "holdfast"), at_least=5),
    Bar("drain, beside Procrastinate", "drain", ("drain", "postgres", "procrastinate"), at_least=2),
    Bar("drain, beside Dramatiq on RabbitMQ", "drain", ("drain", "rabbitmq", "dramatiq"), at_least=1),
    Bar("SQLite drain, beside Huey", "drain", ("drain", "sqlite", "huey"), at_least=2, store="sqlite"),
    Bar("with a provider, beside none", "call-breaker", ("call", "postgres", "holdfast"), at_least=0.8),
    Bar("with a limit, beside none", "call-limit", ("call", "postgres", "holdfast"), at_least=0.8),
    Bar("SQLite with a provider, beside none", "call-breaker", ("call", "sqlite", "holdfast"), at_least=0.8, store="sqlite"),
    Bar("SQLite with a limit, beside none", "call-limit", ("call", "sqlite", "holdfast"), at_least=0.8, store="sqlite"),
    Bar("SQLite drain, beside own on PostgreSQL", "drain", ("drain", "postgres", "holdfast"), at_least=1, store="sqlite"),
)  # fmt: skip


class Report:
    """The records of a run, grouped; every table is made from it."""

    def __init__(self, records: list[Record]) -> None:
        self.failures = [record for record in records if "error" in record]
        grouped: dict[tuple[str, str, str, str], dict[int, dict[str, float]]] = defaultdict(dict)
        for record in records:
            if "result" in record:
                grouped[tuple(record["key"])][record["round"]] = record["result"]
        self.series = [Series(*key, results) for key, results in grouped.items()]

    def best(self, measure: str, store: str, engine: str) -> Series | None:
        """Return the setting with the best median, the engine's defaults among them."""
        found = [s for s in self.series if (s.measure, s.store, s.engine) == (measure, store, engine)]
        if not found:
            return None
        pick = min if measure in HEADLINE else max
        return pick(found, key=lambda series: series.median())

    def best_of_each(self, measure: str) -> list[Series]:
        """Return the best setting of every engine in every store, the best of all first."""
        places = dict.fromkeys((s.store, s.engine) for s in self.series if s.measure == measure)
        found = [series for place in places if (series := self.best(measure, *place))]
        return sorted(found, key=lambda series: series.median(), reverse=measure not in HEADLINE)

    def ratio(self, bar: Bar) -> float | None:
        """Return the median over the rounds of ours divided by theirs, each at its best setting."""
        ours, theirs = self.best(bar.measure, bar.store, "holdfast"), self.best(*bar.beside)
        if ours is None or theirs is None:
            return None
        rounds = ours.results.keys() & theirs.results.keys()
        ratios = [ours.results[r][ours.headline] / theirs.results[r][theirs.headline] for r in rounds]
        return statistics.median(ratios) if ratios else None

    def bars(self) -> list[dict[str, Any]]:
        ratios = [(bar, self.ratio(bar)) for bar in BARS]
        return [
            {"title": bar.title, "expected": bar.expected, "ratio": ratio, "met": bar.met_by(ratio)}
            for bar, ratio in ratios
            if ratio is not None
        ]

    def text(self) -> str:
        tables = [self._medians(), self._bars(), self._memory(), self._failed()]
        return "\n\n".join(table for table in tables if table)

    def _medians(self) -> str:
        rows = [("measure", "store", "engine", "setting", "median", "from", "to", "")]
        for series in sorted(self.series, key=lambda s: (s.measure, s.store)):
            values = series.values(series.headline)
            best = series is self.best(series.measure, series.store, series.engine)
            rows.append(
                (series.measure, series.store, ENGINES[series.engine], series.setting,
                 formatted(series.median(), series.headline), formatted(min(values), series.headline),
                 formatted(max(values), series.headline), self._remark(series, best=best))
            )  # fmt: skip
        return _table(rows)

    def _remark(self, series: Series, *, best: bool) -> str:
        if series.measure == "pickup":
            return f"p95 {series.median('p95_ms'):.2f} ms"
        return "best" if best else ""

    def _bars(self) -> str:
        rows = [("bar", "expected", "ratio", "")]
        rows += [
            (bar["title"], bar["expected"], f"{bar['ratio']:.2f}", "met" if bar["met"] else "MISSED")
            for bar in self.bars()
        ]
        return _table(rows) if len(rows) > 1 else ""

    def _memory(self) -> str:
        rows = [("worker's memory", "store", "before", "idle", "peak draining")]
        for store in ("postgres", "sqlite", "rabbitmq"):
            for engine, name in ENGINES.items():
                drained = self.best("drain", store, engine) or self.best("stages", store, engine)
                idle = self.best("pickup", store, engine)
                if drained:
                    rows.append((name, store, _mb(drained, "rss_before_mb"), _mb(idle, "rss_idle_mb"),
                                 _mb(drained, "rss_peak_mb")))  # fmt: skip
        return _table(rows) if len(rows) > 1 else ""

    def _failed(self) -> str:
        return "\n".join(f"FAILED {' '.join(record['key'])}: {record['error']}" for record in self.failures)


def formatted(value: float, name: str) -> str:
    """Format a value of the metric *name*."""
    return f"{value:.2f} ms" if name.endswith("_ms") else f"{value:,.0f}/s"


def _mb(series: Series | None, name: str) -> str:
    return f"{series.median(name):.0f} MB" if series else "-"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]])
