"""Traces through OpenTelemetry, for applications that use it.

An application that never imports it has no spans to propagate and no exporter: then nothing is
imported here either. With the API alone, without an SDK, jobs propagate the context of their submitter.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.stages import StageKey

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider

Attributes = Mapping[str, str | int]

_MODULE = "opentelemetry.trace"


class OpenTelemetry:
    """The `Tracer` port on OpenTelemetry's API. Spans go to *provider*, or to the one that is set for the process."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider
        self._api: _Api | None = None

    def here(self) -> str | None:
        api = self._loaded_api()
        if api is None:
            return None
        context = api.trace.get_current_span().get_span_context()
        return _traceparent(context) if context.is_valid else None

    def attempt(self, claim: Claim) -> "_ActiveSpan | None":
        api = self._api or self._loaded_api()
        if api is None or (claim.trace is None and not api.configured()):
            return None
        attributes: Attributes = {
            "holdfast.job.id": claim.id,
            "holdfast.job.name": claim.name,
            "holdfast.job.queue": claim.queue,
            "holdfast.job.attempt": claim.attempt,
            "holdfast.job.generation": claim.generation,
        }
        return api.begin(claim.name, attributes, api.parent(claim.trace), kind=api.trace.SpanKind.CONSUMER)

    def stage(self, key: StageKey, attempt: int) -> "_ActiveSpan | None":
        api = self._loaded_api()
        if api is None or not api.trace.get_current_span().is_recording():
            return None
        attributes: Attributes = {"holdfast.stage": str(key), "holdfast.stage.attempt": attempt}
        return api.begin(key.name, attributes, None, kind=api.trace.SpanKind.INTERNAL)

    def _loaded_api(self) -> "_Api | None":
        if self._api is None and _MODULE in sys.modules:
            self._api = _Api(self._provider)
        return self._api


class _Api:
    """The imported parts of OpenTelemetry."""

    def __init__(self, provider: "TracerProvider | None") -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - an extra, and only if the application uses it
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self.trace = trace
        self._context = context
        self._w3c = TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer = trace.get_tracer("holdfast", tracer_provider=provider)

    def configured(self) -> bool:
        """Whether spans are collected: without an SDK, creating them only costs time."""
        return self._provider is not None or not isinstance(
            self.trace.get_tracer_provider(), self.trace.ProxyTracerProvider
        )

    def parent(self, trace: str | None) -> "Context":
        """Return a stored context. The current context of the worker is never a parent."""
        empty = self._context.Context()
        return empty if trace is None else self._w3c.extract({"traceparent": trace}, context=empty)

    def begin(
        self, name: str, attributes: Attributes, parent: "Context | None", *, kind: Any
    ) -> "_ActiveSpan":
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes)
        token = self._context.attach(self.trace.set_span_in_context(span, parent))
        return _ActiveSpan(span, lambda: self._context.detach(token), error=self.trace.StatusCode.ERROR)


class _ActiveSpan:
    """A span that is current until it ends."""

    def __init__(self, span: "Span", leave: Callable[[], None], *, error: Any) -> None:
        self._span = span
        self._leave = leave
        self._error = error

    @property
    def trace(self) -> str:
        return _traceparent(self._span.get_span_context())

    def end(self, outcome: str, failure: Failure | None = None) -> None:
        self._span.set_attribute("holdfast.outcome", outcome)
        if failure is not None:
            # The message is redacted; the text and stack of the exception are not, and are omitted.
            self._span.set_attribute("error.type", failure.error_class.value)
            self._span.set_status(self._error, failure.message)
        self._span.end()
        self._leave()


def _traceparent(context: "SpanContext") -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
