"""Metrics, as they are kept and as Prometheus and Grafana see them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.cli.process.worker_health import OTHER_QUEUES, STATES
from holdfast.core.providers.breaker_state import STATES as PROVIDER_STATES
from holdfast.errors import ConfigError
from holdfast.telemetry.metric_catalog import CALLS, COUNTERS, GAUGES, HISTOGRAMS, OUTCOMES
from holdfast.telemetry.metric_registry import BOUNDS, MetricRegistry
from holdfast.telemetry.prometheus import MetricsPage, PrometheusMetrics, merged
from holdfast.types import PublicCode
from tests.pages import DOCS, ROOT, table, words

DASHBOARD = ROOT / "deploy/grafana/holdfast.json"
GAUGE_READINGS: Any = {name: [(["x"] * len(metric.labels), 1.0)] for name, metric in GAUGES.items()}


def sample(text: str, name: str, **labels: str) -> float | None:
    """Read one sample of a page."""
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found[0] if found else None


def a_page(metrics: MetricRegistry, *providers: str) -> str:
    return MetricsPage(metrics, CollectorRegistry(), providers=providers).text(GAUGE_READINGS).decode()


def exposed() -> set[str]:
    """Name every series that a worker shows."""
    families = text_string_to_metric_families(a_page(MetricRegistry(), "llm"))
    return {sample.name for family in families for sample in family.samples}


@pytest.mark.clause("OBS-2")
def test_a_counter_is_zero_before_anything_was_counted() -> None:
    page = a_page(MetricRegistry())

    assert sample(page, "holdfast_jobs_completed_total") == 0
    assert sample(page, "holdfast_jobs_failed_total", code="GW_5XX") == 0


@pytest.mark.clause("OBS-2")
def test_failures_are_labelled_by_their_code() -> None:
    metrics = MetricRegistry()
    metrics.count("jobs_failed", 2, code="GW_5XX")
    metrics.count("jobs_failed", 1, code="IO_ERROR")

    page = a_page(metrics)

    assert sample(page, "holdfast_jobs_failed_total", code="GW_5XX") == 2
    assert sample(page, "holdfast_jobs_failed_total", code="IO_ERROR") == 1


def test_every_public_code_is_there_from_the_start() -> None:
    page = a_page(MetricRegistry())

    for code in PublicCode:
        assert sample(page, "holdfast_jobs_failed_total", code=code.value) == 0


@pytest.mark.clause("OBS-2")
def test_the_metrics_of_a_declared_provider_are_zero_before_anything_was_counted() -> None:
    page = a_page(MetricRegistry(), "llm", "speech")

    for provider in ("llm", "speech"):
        assert sample(page, "holdfast_provider_openings_total", provider=provider) == 0
        assert sample(page, "holdfast_provider_seconds_count", provider=provider) == 0
        for outcome in CALLS:
            assert sample(page, "holdfast_provider_calls_total", provider=provider, outcome=outcome) == 0


@pytest.mark.clause("OBS-2")
def test_calls_are_labelled_by_provider_and_outcome() -> None:
    metrics = MetricRegistry()
    metrics.count("provider_calls", 3, provider="llm", outcome="failure")
    metrics.observe("provider_seconds", [0.2, 0.4], provider="llm")

    page = a_page(metrics, "llm")

    assert sample(page, "holdfast_provider_calls_total", provider="llm", outcome="failure") == 3
    assert sample(page, "holdfast_provider_calls_total", provider="llm", outcome="success") == 0
    assert sample(page, "holdfast_provider_seconds_count", provider="llm") == 2


def test_a_provider_that_was_not_known_from_the_start_is_shown_once_it_is_counted() -> None:
    metrics = MetricRegistry()
    page = MetricsPage(metrics, CollectorRegistry())
    metrics.count("jobs_held", 5, provider="elsewhere")
    metrics.count("jobs_held", 7)  # without its label it belongs to no provider

    text = page.text({}).decode()

    assert sample(text, "holdfast_jobs_held_total", provider="elsewhere") == 5
    assert text.count("holdfast_jobs_held_total{") == 1


def test_lengths_fall_into_classes_that_include_their_bound() -> None:
    metrics = MetricRegistry()
    metrics.observe("attempt_seconds", [0.01, 0.02, 7200], outcome="failed")

    page = a_page(metrics)

    def below(bound: str) -> float | None:
        return sample(page, "holdfast_attempt_seconds_bucket", outcome="failed", le=bound)

    assert (below("0.005"), below("0.01"), below("0.025")) == (0, 1, 2)
    assert (below(str(BOUNDS[-1])), below("+Inf")) == (2, 3)
    assert sample(page, "holdfast_attempt_seconds_sum", outcome="failed") == pytest.approx(7200.03)
    assert sample(page, "holdfast_attempt_seconds_count", outcome="failed") == 3


def test_the_page_has_what_the_application_registered_itself() -> None:
    registry = CollectorRegistry()
    Counter("orders", "Orders taken", registry=registry).inc(4)

    page = MetricsPage(MetricRegistry(), registry).text({}).decode()

    assert sample(page, "orders_total") == 4


def test_metrics_that_are_registered_already_are_shown_once() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    metrics.count("jobs_created")

    page = MetricsPage(metrics, registry).text({}).decode()

    assert page.count("# TYPE holdfast_jobs_created_total counter") == 1
    assert sample(page, "holdfast_jobs_created_total") == 1


def test_metrics_of_others_are_left_to_them() -> None:
    page = MetricsPage(object(), CollectorRegistry()).text(GAUGE_READINGS).decode()

    assert sample(page, "holdfast_worker_slots") == 1
    assert "holdfast_jobs_created_total" not in page


def test_the_pages_of_several_processes_are_one_that_says_whose_each_sample_is() -> None:
    first, second = MetricRegistry(), MetricRegistry()
    first.count("jobs_completed", 3)
    second.count("jobs_completed", 4)

    page = merged({"1": a_page(first), "2": a_page(second)}).decode()

    assert sample(page, "holdfast_jobs_completed_total", process="1") == 3
    assert sample(page, "holdfast_jobs_completed_total", process="2") == 4
    assert page.count("# TYPE holdfast_jobs_completed_total counter") == 1


def test_a_second_holdfast_with_metrics_of_its_own_is_asked_to_share_them() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry)

    with pytest.raises(ConfigError, match="give it to each of them"):
        PrometheusMetrics(registry)
    with pytest.raises(ConfigError, match="give it to each of them"):
        MetricsPage(MetricRegistry(), registry)


def test_every_outcome_is_there_before_anything_was_measured() -> None:
    page = a_page(MetricRegistry())

    for outcome in OUTCOMES:
        assert sample(page, "holdfast_attempt_seconds_count", outcome=outcome) == 0


def test_a_page_of_no_process_is_empty() -> None:
    assert merged({}) == generate_latest(CollectorRegistry())


def test_every_series_of_the_dashboard_is_one_that_workers_show() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]

    used = {name for query in queries for name in re.findall(r"\bholdfast_\w+", query)}

    assert len(used) > 10
    assert used <= exposed()


def test_every_series_of_the_alerts_is_one_that_workers_show() -> None:
    alerts = (DOCS / "guides/watching.md").read_text(encoding="utf-8").partition("alerts to begin with:")[2]

    used = set(re.findall(r"\bholdfast_\w+", alerts.partition("Each process counts")[0]))

    assert len(used) > 5
    assert used <= exposed()


def test_the_dashboard_is_one_that_grafana_can_show() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    cells = [cell for panel in panels for cell in _cells(**panel["gridPos"])]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells), "no panel lies over another"
    assert max(column for column, _ in cells) < 24
    for panel in panels:
        for target in panel.get("targets", []):
            assert target["expr"].count("(") == target["expr"].count(")")
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def _cells(x: int, y: int, w: int, h: int) -> list[tuple[int, int]]:
    return [(x + column, y + row) for column in range(w) for row in range(h)]


def test_every_label_of_the_dashboard_is_one_that_workers_show() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    known = {
        label
        for metric in [*COUNTERS.values(), *HISTOGRAMS.values(), *GAUGES.values()]
        for label in metric.labels
    }

    grouped = [labels for query in queries for labels in re.findall(r"\bby \(([^)]*)\)", query)]
    used = {label.strip() for labels in grouped for label in labels.split(",")}

    assert used
    assert used <= known | {"le", "instance"}


def test_the_reference_lists_every_series_with_its_labels() -> None:
    rows = table(DOCS / "reference/metrics.md", "Series")
    documented = {words(row[0])[0]: words(row[2]) for row in rows}

    kinds = ((COUNTERS, "_total"), (HISTOGRAMS, ""), (GAUGES, ""))
    assert documented == {
        f"holdfast_{name}{ending}": list(metric.labels)
        for metrics, ending in kinds
        for name, metric in metrics.items()
    }


def test_the_reference_lists_every_value_of_a_label() -> None:
    rows = table(DOCS / "reference/metrics.md", "Series")
    means = {words(row[0])[0]: words(row[3]) for row in rows}

    assert set(OUTCOMES) <= set(means["holdfast_attempt_seconds"])
    assert set(STATES) <= set(means["holdfast_queue_depth"])
    assert set(CALLS) <= set(means["holdfast_provider_calls_total"])
    assert set(PROVIDER_STATES) <= set(means["holdfast_provider_state"])
    assert OTHER_QUEUES in (DOCS / "reference/metrics.md").read_text(encoding="utf-8")


class _Held(int):
    """An amount that takes its time to be added, while the metrics are locked."""

    def __new__(cls, adding: threading.Event, go: threading.Event) -> _Held:
        made = super().__new__(cls, 1)
        made.adding, made.go = adding, go
        return made

    adding: threading.Event
    go: threading.Event

    def __radd__(self, other: int) -> int:
        self.adding.set()
        self.go.wait()
        return other + 1


def test_a_process_that_is_forked_while_a_thread_counts_can_count_and_begins_at_zero() -> None:
    metrics, adding, go = MetricRegistry(), threading.Event(), threading.Event()
    metrics.count("jobs_created", 3)
    counting = threading.Thread(target=metrics.count, args=("jobs_created", _Held(adding, go)))
    counting.start()
    assert adding.wait(10)

    child = os.fork()
    if child == 0:
        signal.alarm(10)  # one that waits for ever is ended by it, and has no exit code
        metrics.count("jobs_created")
        os._exit(metrics.value("jobs_created"))
    _, status = os.waitpid(child, 0)
    go.set()
    counting.join()

    assert os.waitstatus_to_exitcode(status) == 1
    assert metrics.value("jobs_created") == 4
