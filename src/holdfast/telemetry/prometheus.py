"""Figures as Prometheus reads them.

Nothing of Prometheus is touched while jobs run: figures are kept as they always are, and put into
Prometheus' words when somebody asks for them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from holdfast.core.errors import ConfigError
from holdfast.telemetry.figures import BOUNDS, NOTHING, Figures, Key, Labels, Spread
from holdfast.telemetry.names import COUNTERS, GAUGES, PROVIDER, SPREADS, Figure

CONTENT_TYPE = CONTENT_TYPE_LATEST

Gauges = Mapping[str, Sequence[tuple[Sequence[str], float]]]
"""For each gauge its readings: the values of its labels, and its own."""


class PrometheusMetrics(Figures):
    """Figures that a Prometheus registry shows, for `Holdfast(metrics=...)` in a process that has a page for them.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> PrometheusMetrics(registry).count("jobs_created", 3)
    >>> registry.get_sample_value("holdfast_jobs_created_total")
    3
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        _show(self, registry)


class Page:
    """What a worker answers to Prometheus: its figures, the gauges read last, and what else is registered."""

    def __init__(
        self, figures: object, registry: CollectorRegistry = REGISTRY, *, providers: Iterable[str] = ()
    ) -> None:
        self._registry = registry
        if not isinstance(figures, Figures):
            return
        _begin(figures, list(providers))
        if not isinstance(figures, PrometheusMetrics):
            _show(figures, registry)

    def text(self, gauges: Gauges) -> bytes:
        """Write everything down, with *gauges* as they are now."""
        return generate_latest(self._registry) + generate_latest(_Families(_gauges(gauges)))


def _begin(figures: Figures, providers: Sequence[str]) -> None:
    """Have the series of these providers begin at zero: their names are known to the application alone."""
    for name, labels in _of_providers(COUNTERS, providers):
        figures.count(name, 0, **dict(labels))
    for name, labels in _of_providers(SPREADS, providers):
        figures.observe(name, [], **dict(labels))


def _of_providers(listed: Mapping[str, Figure], providers: Sequence[str]) -> Iterator[Key]:
    for name, figure in listed.items():
        if PROVIDER in figure.labels:
            yield from ((name, labels) for labels in figure.series(providers))


def _show(figures: Figures, registry: CollectorRegistry) -> None:
    try:
        registry.register(_Collected(figures))
    except ValueError as error:  # the names are taken
        raise ConfigError(
            "the registry shows figures of another Holdfast already: "
            "make one PrometheusMetrics, and give it to each of them as metrics="
        ) from error


def merged(pages: Mapping[str, str]) -> bytes:
    """Join the pages of several processes: each sample says in the label `process` whose it is.

    Sums over processes would fall when one of them ends, and Prometheus takes a fall for a restart of all.
    """
    families: dict[str, Metric] = {}
    for process, page in pages.items():
        for family in text_string_to_metric_families(page):
            known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known.samples += [_of(process, sample) for sample in family.samples]
    return generate_latest(_Families(families.values()))


def _of(process: str, sample: Sample) -> Sample:
    return sample._replace(labels={**sample.labels, "process": process})


class _Families(CollectorRegistry):
    """Families that are there already, where a registry is expected."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class _Collected(Collector):
    """The counters and distributions of `Figures`."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        counts = self._figures.counts()
        for name, figure in COUNTERS.items():
            yield _counter(name, figure, counts)
        spreads = self._figures.spreads()
        for name, figure in SPREADS.items():
            yield _histogram(name, figure, spreads)

    def describe(self) -> Iterator[Metric]:
        """Name the series, so that a registry notices when somebody else has them already."""
        return self.collect()


def _counter(name: str, figure: Figure, counts: Mapping[Key, int]) -> Metric:
    family = CounterMetricFamily(f"holdfast_{name}", figure.meaning, labels=figure.labels)
    for labels in _shown(name, figure, counts):
        family.add_metric(_values(figure, labels), counts.get((name, labels), 0))
    return family


def _histogram(name: str, figure: Figure, spreads: Mapping[Key, Spread]) -> Metric:
    family = HistogramMetricFamily(f"holdfast_{name}", figure.meaning, labels=figure.labels)
    bounds = [*map(str, BOUNDS), "+Inf"]
    for labels in _shown(name, figure, spreads):
        spread = spreads.get((name, labels), NOTHING)
        buckets = list(zip(bounds, accumulate(spread.classes), strict=True))
        family.add_metric(_values(figure, labels), buckets, spread.total)
    return family


def _shown(name: str, figure: Figure, kept: Iterable[Key]) -> list[Labels]:
    """Give the series of *figure*: those that are known from the start, and those of providers, as they come up."""
    counted = [labels for key, labels in kept if key == name and set(dict(labels)) == set(figure.labels)]
    return list(dict.fromkeys([*figure.series(), *sorted(counted)]))


def _values(figure: Figure, labels: Labels) -> list[str]:
    values = dict(labels)
    return [values[label] for label in figure.labels]


def _gauges(gauges: Gauges) -> Iterator[Metric]:
    for name, readings in gauges.items():
        figure = GAUGES[name]
        family = GaugeMetricFamily(f"holdfast_{name}", figure.meaning, labels=figure.labels)
        for labels, value in readings:
            family.add_metric(labels, value)
        yield family
