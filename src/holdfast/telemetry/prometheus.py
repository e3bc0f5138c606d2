"""Metrics in the format of Prometheus.

Prometheus is not used while jobs run: metrics are kept in memory, and converted when they are
requested.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from holdfast.core.errors import ConfigError
from holdfast.telemetry.metric_catalog import COUNTERS, GAUGES, HISTOGRAMS, PROVIDER, MetricSpec
from holdfast.telemetry.metric_registry import BOUNDS, EMPTY_HISTOGRAM, Histogram, Key, Labels, MetricRegistry

CONTENT_TYPE = CONTENT_TYPE_LATEST

Gauges = Mapping[str, Sequence[tuple[Sequence[str], float]]]
"""The readings of each gauge: label values, and the value."""


class PrometheusMetrics(MetricRegistry):
    """Metrics that a Prometheus registry exposes, for `Holdfast(metrics=...)` in a process that serves the registry.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> PrometheusMetrics(registry).count("jobs_created", 3)
    >>> registry.get_sample_value("holdfast_jobs_created_total")
    3
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        _register(self, registry)


class MetricsPage:
    """The /metrics page of a worker: its metrics, its gauges, and what else is registered."""

    def __init__(
        self, metrics: object, registry: CollectorRegistry = REGISTRY, *, providers: Iterable[str] = ()
    ) -> None:
        self._registry = registry
        if not isinstance(metrics, MetricRegistry):
            return
        _start_at_zero(metrics, list(providers))
        if not isinstance(metrics, PrometheusMetrics):
            _register(metrics, registry)

    def text(self, gauges: Gauges) -> bytes:
        """Return the page, with the current *gauges*."""
        return generate_latest(self._registry) + generate_latest(_Families(_gauges(gauges)))


def _start_at_zero(metrics: MetricRegistry, providers: Sequence[str]) -> None:
    """Start the series of these providers at zero: only the application knows their names."""
    for name, labels in _provider_series(COUNTERS, providers):
        metrics.count(name, 0, **dict(labels))
    for name, labels in _provider_series(HISTOGRAMS, providers):
        metrics.observe(name, [], **dict(labels))


def _provider_series(catalog: Mapping[str, MetricSpec], providers: Sequence[str]) -> Iterator[Key]:
    for name, spec in catalog.items():
        if PROVIDER in spec.labels:
            yield from ((name, labels) for labels in spec.series(providers))


def _register(metrics: MetricRegistry, registry: CollectorRegistry) -> None:
    try:
        registry.register(_MetricCollector(metrics))
    except ValueError as error:  # the names are taken
        raise ConfigError(
            "the registry already has the metrics of another Holdfast: "
            "make one PrometheusMetrics, and give it to each of them as metrics="
        ) from error


def merged(pages: Mapping[str, str]) -> bytes:
    """Merge the pages of several processes: the label `process` of each sample names its process.

    Sums over processes would decrease when one of them ends, and Prometheus treats a decrease as a restart.
    """
    families: dict[str, Metric] = {}
    for process, page in pages.items():
        for family in text_string_to_metric_families(page):
            known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known.samples += [
                sample._replace(labels={**sample.labels, "process": process}) for sample in family.samples
            ]
    return generate_latest(_Families(families.values()))


class _Families(CollectorRegistry):
    """A registry of given families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class _MetricCollector(Collector):
    """The counters and histograms of a `MetricRegistry`."""

    def __init__(self, metrics: MetricRegistry) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        counts = self._metrics.counts()
        for name, spec in COUNTERS.items():
            yield _counter(name, spec, counts)
        histograms = self._metrics.histograms()
        for name, spec in HISTOGRAMS.items():
            yield _histogram(name, spec, histograms)

    def describe(self) -> Iterator[Metric]:
        """Return the series, so that a registry detects duplicates."""
        return self.collect()


def _counter(name: str, spec: MetricSpec, counts: Mapping[Key, int]) -> Metric:
    family = CounterMetricFamily(f"holdfast_{name}", spec.meaning, labels=spec.labels)
    for labels in _series(name, spec, counts):
        family.add_metric(_values(spec, labels), counts.get((name, labels), 0))
    return family


def _histogram(name: str, spec: MetricSpec, histograms: Mapping[Key, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"holdfast_{name}", spec.meaning, labels=spec.labels)
    bounds = [*map(str, BOUNDS), "+Inf"]
    for labels in _series(name, spec, histograms):
        histogram = histograms.get((name, labels), EMPTY_HISTOGRAM)
        buckets = list(zip(bounds, accumulate(histogram.buckets), strict=True))
        family.add_metric(_values(spec, labels), buckets, histogram.total)
    return family


def _series(name: str, spec: MetricSpec, kept: Iterable[Key]) -> list[Labels]:
    """Return the series of *spec*: those known from the start, and those of providers that were counted."""
    counted = [labels for key, labels in kept if key == name and set(dict(labels)) == set(spec.labels)]
    return list(dict.fromkeys([*spec.series(), *sorted(counted)]))


def _values(spec: MetricSpec, labels: Labels) -> list[str]:
    values = dict(labels)
    return [values[label] for label in spec.labels]


def _gauges(gauges: Gauges) -> Iterator[Metric]:
    for name, readings in gauges.items():
        spec = GAUGES[name]
        family = GaugeMetricFamily(f"holdfast_{name}", spec.meaning, labels=spec.labels)
        for labels, value in readings:
            family.add_metric(labels, value)
        yield family
