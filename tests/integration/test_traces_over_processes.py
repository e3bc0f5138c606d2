"""One trace over two processes and a retry; and nothing of OpenTelemetry where it is not used."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from holdfast import Holdfast, Status
from tests.integration.cli_process import a_worker, an_application, apply_schema, wait

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare

APPLICATION = """
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from holdfast import Backoff, Holdfast

SPANS = (Path(__file__).parent / "spans.jsonl").open("a")


def in_one_line(span):
    return span.to_json(indent=None) + "\\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=SPANS, formatter=in_one_line)))
trace.set_tracer_provider(provider)

hold = Holdfast()
outages = iter([ConnectionError("no route")])


@hold.stage(attempts=3, backoff=Backoff.none())
async def ask(question: str) -> str:
    for outage in outages:
        raise outage
    with trace.get_tracer("app").start_as_current_span("call"):
        return question


@hold.job("child")
async def child() -> None:
    return None


@hold.job("parent")
async def parent(question: str) -> str:
    answer = await ask(question)
    await (await child.submit()).result()
    return answer
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


def spans(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Give what the worker traced, by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (folder / "spans.jsonl").read_text(encoding="utf-8").splitlines():
        span = json.loads(line)
        found.setdefault(span["name"], []).append(span)
    return found


@pytest.mark.clause("OBS-3")
async def test_one_trace_leads_through_another_process_over_a_retry_to_a_child_job(
    url: str, tmp_path: Path
) -> None:
    folder = an_application(tmp_path, APPLICATION)
    tracer = TracerProvider().get_tracer("submitter")

    async with Holdfast(url) as hold:

        @hold.job("parent")
        async def parent(question: str) -> str:
            return question  # only its name and its arguments matter here

        with tracer.start_as_current_span("request") as request:
            job_id = (await parent.submit("why")).id
    with a_worker(cwd=folder, settings={"DATABASE_URL": url}) as worker:
        job = await wait(url, job_id)
        retry = json.loads(worker.wait_for('"event": "job retry scheduled"'))

    context = request.get_span_context()
    trace_id, request_id = f"0x{context.trace_id:032x}", f"0x{context.span_id:016x}"
    found = spans(folder)
    everything = [span for same in found.values() for span in same]
    assert job.status is Status.COMPLETED
    assert {span["context"]["trace_id"] for span in everything} == {trace_id}
    assert {span["parent_id"] for span in found["parent"]} == {request_id}
    assert [span["attributes"]["holdfast.outcome"] for span in found["ask"]] == ["failed", "done"]
    assert [span["parent_id"] for span in found["call"]] == [found["ask"][1]["context"]["span_id"]]
    parents = {span["context"]["span_id"] for span in found["parent"]}
    assert {span["parent_id"] for span in found["child"]} <= parents
    assert (f"0x{retry['traceId']}", f"0x{retry['spanId']}") == (
        trace_id,
        found["parent"][0]["context"]["span_id"],
    )


UNTRACED = """
import asyncio
import sys

from holdfast import Holdfast

hold = Holdfast("sqlite:///jobs.db")


@hold.stage()
async def stage() -> int:
    return 1


@hold.job("job")
async def job() -> int:
    return await stage()


async def main() -> None:
    async with hold, hold.worker():
        await (await job.submit()).result(timeout=30)


asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))))
"""


def test_an_application_that_uses_neither_loads_neither_traces_nor_metrics(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNTRACED], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"
