"""What the engine reports: log lines, metrics and traces."""

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.stages import StageKey


class Logger(Protocol):
    """A structured log. Fields are values that were redacted before."""

    @property
    def verbose(self) -> bool:
        """Whether routine lines are logged: ask once per batch, to save rendering them."""
        ...

    def debug(self, event: str, **fields: Any) -> None:
        """Log a routine change."""
        ...

    def info(self, event: str, **fields: Any) -> None:
        """Log a change that may interest an operator."""
        ...

    def warning(self, event: str, **fields: Any) -> None:
        """Log a condition that an operator should look at."""
        ...

    def error(self, event: str, **fields: Any) -> None:
        """Log a condition that requires an operator to act."""
        ...


class Metrics(Protocol):
    """A sink for metrics. Calls are made once per batch, never once per job, and from more than one thread."""

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add *amount* to a counter."""
        ...

    def observe(self, name: str, values: Sequence[float], **labels: str) -> None:
        """Add durations, in seconds, to a distribution."""
        ...


class Span(Protocol):
    """A span of a trace. Code that runs in it, and the spans that this code begins, belong to it."""

    @property
    def trace(self) -> str:
        """The trace context of work that this span causes, as a W3C `traceparent`."""
        ...

    def end(self, outcome: str, failure: Failure | None = None) -> None:
        """End the span with its outcome. Called once, in the context in which it was begun."""
        ...


class Tracer(Protocol):
    """A sink for spans. Where tracing is off, it returns `None`."""

    def here(self) -> str | None:
        """Return the trace context of the running code, as a W3C `traceparent`."""
        ...

    def attempt(self, claim: Claim) -> Span | None:
        """Begin a span for an attempt, below the span that submitted the job: in another process, or long ago."""
        ...

    def stage(self, key: StageKey, attempt: int) -> Span | None:
        """Begin a span for a stage, inside the one that the running code belongs to."""
        ...
