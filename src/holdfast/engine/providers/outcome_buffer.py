"""The outcome buffer: how calls to a provider ended, collected until the next exchange with the store."""

from collections import Counter

from holdfast.core.providers.call_reports import CallOutcome, CallReport
from holdfast.ports import Metrics


class OutcomeBuffer:
    """Collects reports for the breaker, and metrics. Of a long run of good calls it keeps what the window holds."""

    def __init__(self, provider: str, window: int, metrics: Metrics) -> None:
        self._provider = provider
        self._window = window
        self._metrics = metrics
        self._reports: list[CallReport] = []
        self._healthy_run = 0
        self._ended: Counter[str] = Counter()
        self._seconds: list[float] = []
        self.failures_met = 0
        """Failures that this worker has met."""
        self.failures_reported = 0
        """Failures of those that are reported: the next call waits until all are."""

    @property
    def has_reports(self) -> bool:
        """Whether there is something to report."""
        return bool(self._reports)

    @property
    def is_saturated(self) -> bool:
        """Whether another good call in a row would say nothing new."""
        return self._healthy_run > self._window

    def count(self, outcome: CallOutcome, seconds: float) -> None:
        """Count a call in the metrics."""
        self._ended[outcome.value] += 1
        self._seconds.append(seconds)

    def add(self, report: CallReport, *, healthy: bool) -> None:
        """Keep a report for the next exchange; a *healthy* call succeeded and was not slow."""
        self._healthy_run = self._healthy_run + 1 if healthy else 0
        if self._healthy_run <= self._window:
            self._reports.append(report)
        self.failures_met += report.outcome is CallOutcome.FAILURE

    def take(self) -> list[CallReport]:
        """Take what there is to report."""
        reports, self._reports, self._healthy_run = self._reports, [], 0
        return reports

    def reported(self, failures: int) -> None:
        """Note that the first *failures* that were met are reported, or lost with their report."""
        self.failures_reported = failures

    def flush(self, waited: list[float]) -> None:
        """Record the metrics of the calls that ended, and the seconds that calls *waited* for their permit."""
        for outcome, count in self._ended.items():
            self._metrics.count("provider_calls", count, provider=self._provider, outcome=outcome)
        for name, values in (("provider_seconds", self._seconds), ("permit_seconds", waited)):
            if values:
                self._metrics.observe(name, list(values), provider=self._provider)
                values.clear()
        self._ended.clear()
