"""Traces: which call led to which, over queues, attempts and processes."""

from typing import Protocol

from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.stages import StageKey


class Span(Protocol):
    """A piece of work under way. The code that runs in it, and what that code begins, belongs to it."""

    @property
    def trace(self) -> str:
        """Where work that comes from this one stands, as a W3C `traceparent`."""
        ...

    def end(self, outcome: str, failure: Failure | None = None) -> None:
        """Say what came of it. To be called where it was begun, and once."""
        ...


class Tracer(Protocol):
    """A sink for spans. Where tracing is off, it answers with `None` at once."""

    def here(self) -> str | None:
        """Tell where the running code stands in a trace, as a W3C `traceparent`."""
        ...

    def attempt(self, claim: Claim) -> Span | None:
        """Begin a span for an attempt, below the span that submitted the job: in another process, or long ago."""
        ...

    def stage(self, key: StageKey, attempt: int) -> Span | None:
        """Begin a span for a stage, inside the one that the running code belongs to."""
        ...
