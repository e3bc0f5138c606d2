"""Traces across queues, attempts and processes."""

from typing import Protocol

from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.stages import StageKey


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
