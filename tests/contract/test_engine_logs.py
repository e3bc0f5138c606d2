"""Each change that an operator may ask about is one line with the same fields."""

import asyncio
import io
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
import structlog

from holdfast import Backoff, Holdfast, JobFailed, Permanent, Retryable, Status
from holdfast.core.jobs.transitions import time_out
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.engine.worker.settler import Settler
from holdfast.errors import JobCancelled, StoreUnavailable
from holdfast.ports import Store
from holdfast.telemetry.logs import JobContextFilter
from tests.builders import a_job
from tests.contract.conftest import Logger
from tests.contract.steps import TIMEOUT, a_claim


def answered(status: int) -> Callable[[], Exception]:
    request = httpx.Request("POST", "https://gateway.test/v1")
    response = httpx.Response(status, request=request)
    return lambda: httpx.HTTPStatusError("no", request=request, response=response)


def fields(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: line.get(name) for name in names}


@pytest.mark.clause("OBS-1")
async def test_a_retry_and_the_end_of_it_are_logged(hold: Holdfast, logger: Logger) -> None:
    error = answered(500)

    @hold.job("call", attempts=2)
    async def call() -> None:
        raise error()

    async with hold.worker(poll=0.05):
        job = await call.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)

    [retry], [failed] = logger.lines("job retry scheduled"), logger.lines("job failed")
    names = ["job_id", "status", "attempt", "gateway_status", "error_class", "error_code", "level"]
    common = {"job_id": job.id, "gateway_status": 500, "error_class": "UPSTREAM_5XX", "error_code": "GW_5XX"}
    assert fields(retry, *names) == common | {"status": "queued", "attempt": 1, "level": "info"}
    assert fields(failed, *names) == common | {"status": "failed", "attempt": 2, "level": "warning"}
    assert all(isinstance(line["duration_ms"], int) and line["duration_ms"] >= 0 for line in (retry, failed))
    assert retry["delay_ms"] == 0
    assert "timestamp" in retry


@pytest.mark.clause("OBS-1")
async def test_a_completion_is_a_routine_line(hold: Holdfast, logger: Logger) -> None:
    @hold.job("quick")
    async def quick() -> None:
        return None

    async with hold.worker(poll=0.05):
        job = await quick.submit()
        await job.result(timeout=TIMEOUT)

    [line] = logger.lines("job completed")
    names = ("job_id", "status", "attempt", "level")
    assert fields(line, *names) == {"job_id": job.id, "status": "completed", "attempt": 1, "level": "debug"}
    assert isinstance(line["duration_ms"], int)


@pytest.mark.clause("OBS-1")
async def test_a_failed_stage_is_named(hold: Holdfast, logger: Logger) -> None:
    @hold.stage("llm", attempts=2, backoff=Backoff.constant("10ms"))
    async def llm() -> None:
        raise Retryable("overloaded")

    @hold.job("review")
    async def review() -> None:
        await llm()

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await (await review.submit()).result(timeout=TIMEOUT)

    assert [line["stage"] for line in logger.lines("job retry scheduled") + logger.lines("job failed")] == [
        "llm",
        "llm",
    ]
    assert logger.lines("job retry scheduled")[0]["delay_ms"] == 10
    assert [fields(line, "stage", "status") for line in logger.lines("stage stored")] == [
        {"stage": "llm", "status": "failed"}
    ]


@pytest.mark.clause("OBS-1")
async def test_letting_go_and_cancelling_are_logged(hold: Holdfast, logger: Logger) -> None:
    begun = asyncio.Event()

    @hold.job("work")
    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    job = await work.submit()
    async with hold.worker(poll=0.05, grace=0):
        await asyncio.wait_for(begun.wait(), TIMEOUT)
    begun.clear()
    async with hold.worker(poll=0.05):
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)

    [released], [cancelled] = logger.lines("job released"), logger.lines("job cancelled")
    assert fields(released, "job_id", "status", "reason") == {
        "job_id": job.id,
        "status": "queued",
        "reason": "worker shut down",
    }
    assert fields(cancelled, "job_id", "status", "attempt") == {
        "job_id": job.id,
        "status": "cancelled",
        "attempt": 1,
    }
    assert len(logger.lines("worker started")) == len(logger.lines("worker stopped")) == 2


@pytest.mark.clause("OBS-1")
async def test_a_job_that_its_worker_ends_at_the_deadline_is_logged_as_one_that_the_sweep_ends(
    hold: Holdfast, logger: Logger
) -> None:
    @hold.job("slow", deadline=1.0)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with hold.worker(poll=60):  # no sweep comes by
        job = await slow.submit()
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result(timeout=TIMEOUT)

    [line] = logger.lines("job timed out")
    names = ("job_id", "jobs", "status", "attempt", "level")
    assert fields(line, *names) == {
        "job_id": job.id,
        "jobs": 1,
        "status": "failed",
        "attempt": 1,
        "level": "warning",
    }
    assert logger.lines("job failed") == logger.lines("write fenced") == []


async def test_a_job_that_the_sweep_ended_beside_its_worker_is_nothing_to_warn_of(
    hold: Holdfast, logger: Logger, store: Store
) -> None:
    """The worker claimed it too late, never ran its function, and tried to write the same."""
    claim = await a_claim(store, a_job(deadline=timedelta(microseconds=1)))
    assert await store.expire(limit=10) == [claim.id]

    settler = a_settler(hold)
    settler.post(AttemptOutcome(time_out(claim), claim.attempt, 0.0))
    await settler.drain()

    assert logger.lines() == []


async def test_a_job_that_was_stopped_for_a_deadline_which_has_not_come_is_given_back_with_its_attempt(
    hold: Holdfast, logger: Logger, store: Store
) -> None:
    claim = await a_claim(store, a_job(deadline=timedelta(hours=1)))

    settler = a_settler(hold)
    settler.post(AttemptOutcome(time_out(claim), claim.attempt, 0.0))
    await settler.drain()

    job = await store.get(claim.id)
    assert (job.status, job.attempt, job.losses) == (Status.QUEUED, 0, 0)
    assert [line["reason"] for line in logger.lines("job released")] == ["its deadline has not come"]


def a_settler(hold: Holdfast) -> Settler:
    """Make one that writes and logs as those of workers do."""
    return Settler("worker", hold.runtime)


async def test_every_line_about_a_job_has_its_name_and_queue(hold: Holdfast, logger: Logger) -> None:
    begun = asyncio.Event()

    @hold.stage("first")
    async def first() -> int:
        return 1

    @hold.job("steps", queue="own", attempts=2)
    async def steps() -> None:
        await first()
        await hold.sleep(0.01)
        raise Retryable("not yet")

    @hold.job("endless", queue="own")
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @hold.job("slow", queue="own", deadline=0.05)
    async def slow() -> None:
        return None

    late = await slow.options(delay="1h").submit()
    failing, running = await steps.submit(), await endless.submit()
    await hold.signal(failing.id, "other")
    async with hold.worker(queues=["own"], poll=0.05, grace=0):
        for job in (failing, late):
            with pytest.raises(JobFailed):
                await job.result(timeout=TIMEOUT)
        await asyncio.wait_for(begun.wait(), TIMEOUT)
    await hold.dead_letters.discard(failing.id, "not needed", actor="ada")

    about_jobs = [line for line in logger.lines() if line.get("job_id")]
    names = {failing.id: "steps", running.id: "endless", late.id: "slow"}
    expected = {
        "signal sent",
        "stage stored",
        "job parked",
        "job retry scheduled",
        "job failed",
        "job released",
        "job timed out",
        "dead letters updated",
    }
    assert {line["event"] for line in about_jobs} >= expected
    assert [line for line in about_jobs if line.get("name") != names[line["job_id"]]] == []
    assert [line for line in about_jobs if line.get("queue") != "own"] == []


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_a_handler_logs_names_its_job(hold: Holdfast, kind: str) -> None:
    contexts, plain = [], io.StringIO()
    logger, handler = logging.getLogger("application"), logging.StreamHandler(plain)
    handler.addFilter(JobContextFilter())
    handler.setFormatter(logging.Formatter("%(message)s %(job_id)s %(job_name)s %(job_queue)s."))
    logger.addHandler(handler)

    def say() -> None:
        contexts.append(structlog.contextvars.merge_contextvars(None, "info", {"event": "hello"}))
        logger.warning("hello")

    @hold.job("async")
    async def on_the_loop() -> None:
        say()

    @hold.job("sync")
    def in_a_thread() -> None:
        say()

    try:
        async with hold.worker(poll=0.05):
            job = await (on_the_loop if kind == "async" else in_a_thread).submit()
            await job.result(timeout=TIMEOUT)
        logger.warning("outside")
    finally:
        logger.removeHandler(handler)

    assert contexts == [{"event": "hello", "job_id": job.id, "job_name": kind, "job_queue": "default"}]
    assert plain.getvalue() == f"hello {job.id} {kind} default.\noutside   .\n"


async def test_jobs_of_several_names_and_queues_each_log_as_themselves(hold: Holdfast) -> None:
    said: dict[str, dict[str, Any]] = {}

    def say(place: str) -> None:
        said[place] = dict(structlog.contextvars.merge_contextvars(None, "info", {}))

    first = hold.job("first")(say)
    second = hold.job("second", queue="slow")(say)
    submitted = {}
    async with hold.worker(poll=0.05, queues=["default", "slow"]):
        for number in range(2):
            for job in (first, second):
                place = f"{job.spec.name} {number}"
                submitted[place] = await job.submit(place)
        for handle in submitted.values():
            await handle.result(timeout=TIMEOUT)

    assert said == {
        place: {
            "job_id": handle.id,
            "job_name": place.split()[0],
            "job_queue": "slow" if "second" in place else "default",
        }
        for place, handle in submitted.items()
    }


async def test_an_outage_of_the_store_is_one_line_at_its_beginning_and_one_at_its_end(
    hold: Holdfast, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, away, refused = hold.runtime.store, True, Counter[str]()

    def failing(part: object, name: str) -> Any:
        real = getattr(part, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if away:
                refused[name] += 1
                raise StoreUnavailable("the database does not answer")
            return await real(*args, **kwargs)

        return call

    @hold.job("quick")
    async def quick() -> None:
        return None

    async with hold.worker(poll=0.01) as worker:
        job = await quick.submit()
        await job.result(timeout=TIMEOUT)
        # Reads of one service still succeed, as during a failover: that does not end the outage.
        for part, name in ((store, "claim"), (store, "promote"), (store.providers, "holders")):
            monkeypatch.setattr(part, name, failing(part, name))
        async with asyncio.timeout(TIMEOUT):
            while min(refused[name] for name in ("claim", "promote", "holders")) < 3:
                await asyncio.sleep(0.01)
        away = False
        async with asyncio.timeout(TIMEOUT):
            while not logger.lines("store available"):
                await asyncio.sleep(0.01)
    assert worker.stopped

    [began], [ended] = logger.lines("store unavailable"), logger.lines("store available")
    assert fields(began, "level", "message") == {
        "level": "warning",
        "message": "the database does not answer",
    }
    assert ended["level"] == "info"
    assert ended["duration_ms"] > 0
    assert [line for line in logger.lines() if "put off" in line["event"]] == []


async def test_no_argument_and_no_stack_is_logged(hold: Holdfast, logger: Logger) -> None:
    @hold.job("secretive", attempts=2)
    async def secretive(password: str) -> str:
        raise Permanent("refused")

    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed):
            await (await secretive.submit("hunter2")).result(timeout=TIMEOUT)

    text = logger.stream.getvalue()
    assert "refused" in text
    assert "hunter2" not in text
    assert "Traceback" not in text
