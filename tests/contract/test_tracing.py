"""One trace leads from the submitter through the queue to attempts, stages and the jobs that a job submits."""

import asyncio
import re
from collections.abc import Iterator
from contextvars import Context
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Backoff, Holdfast, JobFailed, JobHandle, Permanent, Redactor, Retryable
from holdfast.engine.runtime import Runtime
from holdfast.telemetry.tracing import OpenTelemetry
from holdfast.types import Pattern
from holdfast.wiring.assemble import assemble
from tests.contract.conftest import Database, Logger
from tests.contract.steps import TIMEOUT


class Traces:
    """Collects spans, and makes those of a submitter."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        """Give the spans of that name, in the order in which they began."""
        found = [span for span in self._spans.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def ids(self) -> set[int]:
        """Give the ids of all traces."""
        return {context_of(span).trace_id for span in self._spans.get_finished_spans()}


def context_of(span: Any) -> Any:
    return span.get_span_context()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return int(context_of(span).span_id)


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    yield made
    made.provider.shutdown()


@pytest.fixture
def hold(database: Database, logger: Logger, traces: Traces) -> Holdfast:
    def traced(*args: Any, **kwargs: Any) -> Runtime:
        return replace(assemble(*args, **kwargs), tracer=OpenTelemetry(traces.provider))

    return Holdfast(
        database.url,
        attempts=3,
        backoff=Backoff.none(),
        redactor=Redactor(patterns=[Pattern("word", re.compile("hunter2"))]),
        logger=logger.writer,
        assemble=traced,
    )


async def ended(job: JobHandle[Any]) -> None:
    """Wait for a job's end, whatever it is."""
    try:
        await job.result(timeout=TIMEOUT)
    except JobFailed:
        return


@pytest.mark.clause("OBS-3")
async def test_an_attempt_belongs_to_its_submitters_span(hold: Holdfast, traces: Traces) -> None:
    @hold.job("greet", queue="hall")
    async def greet(name: str) -> str:
        return name

    async with hold, hold.worker(poll=0.05, queues=["hall"]):
        with traces.tracer.start_as_current_span("request"):
            job = await greet.submit("Ada")
        await ended(job)

    [request], [attempt] = traces.named("request"), traces.named("greet")
    assert context_of(attempt).trace_id == context_of(request).trace_id
    assert parent_of(attempt) == id_of(request)
    assert attempt.kind is trace.SpanKind.CONSUMER
    assert dict(attempt.attributes or {}) == {
        "holdfast.job.id": job.id,
        "holdfast.job.name": "greet",
        "holdfast.job.queue": "hall",
        "holdfast.job.attempt": 1,
        "holdfast.job.generation": 1,
        "holdfast.outcome": "completed",
    }


@pytest.mark.clause("OBS-3")
async def test_retries_stand_beside_each_other_in_the_same_trace(hold: Holdfast, traces: Traces) -> None:
    outages = iter([Retryable("overloaded"), Retryable("overloaded")])

    @hold.job("flaky")
    async def flaky() -> None:
        for outage in outages:
            raise outage

    async with hold, hold.worker(poll=0.05):
        with traces.tracer.start_as_current_span("request"):
            job = await flaky.submit()
        await ended(job)

    [request], attempts = traces.named("request"), traces.named("flaky")
    assert [span.attributes and span.attributes["holdfast.job.attempt"] for span in attempts] == [1, 2, 3]
    assert [span.attributes and span.attributes["holdfast.outcome"] for span in attempts] == [
        "retry",
        "retry",
        "completed",
    ]
    assert {parent_of(span) for span in attempts} == {id_of(request)}
    assert [span.status.status_code for span in attempts] == [
        trace.StatusCode.ERROR,
        trace.StatusCode.ERROR,
        trace.StatusCode.UNSET,
    ]


@pytest.mark.clause("OBS-3")
async def test_a_stage_belongs_to_its_attempt_and_is_traced_when_it_runs(
    hold: Holdfast, traces: Traces
) -> None:
    outages = iter([Retryable("overloaded")])

    @hold.stage()
    async def fetch() -> int:
        return 1

    @hold.stage(backoff=Backoff.none())
    async def ask(number: int) -> int:
        for outage in outages:
            raise outage
        return number

    @hold.job("review")
    async def review() -> int:
        return await ask(await fetch())

    async with hold, hold.worker(poll=0.05):
        with traces.tracer.start_as_current_span("request"):
            job = await review.submit()
        await ended(job)

    first, second = traces.named("review")
    [fetched], asked = traces.named("fetch"), traces.named("ask")
    assert parent_of(fetched) == id_of(first)
    assert [parent_of(span) for span in asked] == [id_of(first), id_of(second)]
    assert [span.attributes and span.attributes["holdfast.outcome"] for span in asked] == ["failed", "done"]
    assert len(traces.ids()) == 1


@pytest.mark.clause("OBS-3")
async def test_a_job_that_a_job_submits_carries_the_trace_on(hold: Holdfast, traces: Traces) -> None:
    @hold.job("child")
    async def child(number: int) -> int:
        return number

    @hold.stage()
    async def delegate() -> str:
        return (await child.submit(2)).id

    @hold.job("parent")
    async def parent() -> int:
        other = await delegate()
        return await (await child.submit(1)).result() + len(other)

    async with hold, hold.worker(poll=0.05):
        with traces.tracer.start_as_current_span("request"):
            job = await parent.submit()
        await ended(job)
        async with asyncio.timeout(TIMEOUT):
            while len(traces.named("child")) < 2:
                await asyncio.sleep(0.005)

    [delegated], (first, *_) = traces.named("delegate"), traces.named("parent")
    assert {parent_of(span) for span in traces.named("child")} == {id_of(delegated), id_of(first)}
    assert len(traces.ids()) == 1


@pytest.mark.clause("OBS-3")
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_handler_finds_the_attempt_as_its_current_span(
    hold: Holdfast, traces: Traces, *, is_async: bool
) -> None:
    def call_out() -> int:
        with traces.tracer.start_as_current_span("call"):
            return 1

    if is_async:

        @hold.job("caller")
        async def caller() -> int:
            return call_out()
    else:

        @hold.job("caller")
        def caller() -> int:
            return call_out()

    async with hold, hold.worker(poll=0.05):
        await ended(await caller.submit())

    [attempt], [call] = traces.named("caller"), traces.named("call")
    assert parent_of(call) == id_of(attempt)


@pytest.mark.clause("OBS-3")
async def test_a_plain_stage_of_a_plain_job_belongs_to_its_attempt(hold: Holdfast, traces: Traces) -> None:
    @hold.stage()
    def fetch() -> int:
        return 1

    @hold.job("plain")
    def plain() -> int:
        return fetch()

    async with hold, hold.worker(poll=0.05):
        await ended(await plain.submit())

    [attempt], [stage] = traces.named("plain"), traces.named("fetch")
    assert parent_of(stage) == id_of(attempt)


@pytest.mark.clause("OBS-3")
async def test_log_lines_name_the_trace_and_the_attempts_span(
    hold: Holdfast, traces: Traces, logger: Logger
) -> None:
    @hold.job("hopeless")
    async def hopeless() -> None:
        raise Permanent("no")

    async with hold, hold.worker(poll=0.05):
        with traces.tracer.start_as_current_span("request"):
            job = await hopeless.submit()
        await ended(job)

    [line], [attempt] = logger.lines("job failed"), traces.named("hopeless")
    assert line["traceId"] == f"{context_of(attempt).trace_id:032x}"
    assert line["spanId"] == f"{id_of(attempt):016x}"


async def test_a_failure_is_recorded_by_its_redacted_message_and_nothing_else(
    hold: Holdfast, traces: Traces
) -> None:
    @hold.job("hopeless")
    async def hopeless() -> None:
        raise Permanent("refused with hunter2")

    async with hold, hold.worker(poll=0.05):
        await ended(await hopeless.submit())

    [attempt] = traces.named("hopeless")
    assert "hunter2" not in attempt.to_json()
    assert re.fullmatch(r"refused with \[word:[0-9a-f]+…\]", attempt.status.description or "")


async def test_a_job_submitted_outside_any_trace_begins_one(hold: Holdfast, traces: Traces) -> None:
    @hold.job("alone")
    async def alone() -> None:
        return None

    with traces.tracer.start_as_current_span("startup"):
        async with hold, hold.worker(poll=0.05):
            job = await asyncio.create_task(alone.submit(), context=Context())
            await ended(job)
            stored = await hold.read(job.id)

    [attempt] = traces.named("alone")
    assert (attempt.parent, stored.trace) == (None, None)


async def test_without_a_tracer_a_job_still_passes_its_trace_on(database: Database, traces: Traces) -> None:
    hold = Holdfast(database.url)  # no provider is set for this process, so there are no spans

    @hold.job("child")
    async def child() -> None:
        return None

    @hold.job("parent")
    async def parent() -> str:
        return (await child.submit()).id

    async with hold, hold.worker(poll=0.05):
        with traces.tracer.start_as_current_span("request") as request:
            job = await parent.submit()
        child_id = await job.result(timeout=TIMEOUT)
        stored = await hold.read(child_id)

    context = request.get_span_context()
    assert (stored.trace or "").startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert [span.name for span in traces.named("parent")] == []
