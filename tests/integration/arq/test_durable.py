"""An arq function that was made durable is called as ever, and its calls are jobs."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arq import Retry
from arq.connections import ArqRedis, RedisSettings, create_pool

from holdfast import Holdfast, JobFilter, Status
from holdfast.arq import ArqTransport, durable
from holdfast.errors import ConfigError
from tests.integration.arq.arq_process import an_arq_worker
from tests.integration.cli_process import apply_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers import BrokerServer

HERE = Path(__file__).parent
TIMEOUT = 120.0


@pytest.fixture
def queue() -> str:
    return f"adopted:{uuid.uuid4().hex}"


@pytest.fixture
async def pool(redis_server: BrokerServer, queue: str) -> AsyncIterator[ArqRedis]:
    """The connection of a caller, which knows nothing of Holdfast."""
    made = await create_pool(RedisSettings.from_dsn(redis_server.url), default_queue_name=queue)
    yield made
    await made.aclose(close_connection_pool=True)


async def test_calls_and_cron_jobs_of_an_adopted_function_are_durable_jobs(
    pool: ArqRedis, queue: str, redis_server: BrokerServer, postgres_dsn: str
) -> None:
    await apply_schema(postgres_dsn)
    environment = {"DATABASE": postgres_dsn, "REDIS": redis_server.url, "QUEUE": queue}
    hold = Holdfast(postgres_dsn)
    hold.queue("grading", transport=ArqTransport(redis_server.url, queue=f"{queue}:dispatches", slots=4))
    with (
        an_arq_worker("adopted_app.Old", cwd=HERE, environment=environment),
        an_arq_worker("adopted_app.Old", cwd=HERE, environment=environment),
        an_arq_worker("adopted_app.New", cwd=HERE, environment=environment),
    ):
        async with hold.worker(poll=0.05):
            call = await pool.enqueue_job("grade", "s-1", skill="speaking", _job_id=f"{queue}-1")
            assert call is not None
            short = await pool.enqueue_job("grade", "s-2", _expires=timedelta(hours=1))
            plain = await pool.enqueue_job("untouched", {"any": b"thing"})
            assert short is not None
            assert plain is not None

            assert await plain.result(TIMEOUT, poll_delay=0.05) == {"any": b"thing"}
            job = await hold.wait(await call.result(TIMEOUT, poll_delay=0.05), timeout=TIMEOUT)
            with_deadline = await hold.wait(await short.result(TIMEOUT, poll_delay=0.05), timeout=TIMEOUT)
            await _ticked(hold)

    assert json.loads(job.result or "") == ["s-1", "speaking", 2, "hello"]
    assert (await pool.get(f"{queue}:s-1") or b"").decode() == job.id
    assert job.deadline_at is None
    assert with_deadline.deadline_at is not None
    assert timedelta(minutes=59) < with_deadline.deadline_at - with_deadline.created_at <= timedelta(hours=1)
    await hold.close()


async def _ticked(hold: Holdfast) -> None:
    """Wait until the job of a cron job has ended."""
    async with asyncio.timeout(TIMEOUT):
        while not await hold.find(JobFilter(name="nightly", status=Status.COMPLETED)):
            await asyncio.sleep(0.05)


@pytest.fixture
async def hold(tmp_path: Path) -> AsyncIterator[Holdfast]:
    made = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    await made.apply_schema()
    yield made
    await made.close()


def context(pool: ArqRedis, arq_id: str) -> dict[str, Any]:
    """Return what arq gives a function."""
    from arq.utils import ms_to_datetime, timestamp_ms

    now = timestamp_ms()
    return {"redis": pool, "job_id": arq_id, "job_try": 1, "score": now, "enqueue_time": ms_to_datetime(now)}


async def test_a_tick_of_a_cron_job_that_is_delivered_twice_is_one_job(
    hold: Holdfast, pool: ArqRedis
) -> None:
    @durable(hold, queue="grading")
    async def nightly(ctx: dict[str, Any]) -> None: ...

    ticks = [await nightly(context(pool, f"cron:nightly:{time}")) for time in (1000, 1000, 2000)]

    assert ticks[0] == ticks[1] != ticks[2]
    assert len(await hold.find(JobFilter())) == 2


async def test_a_share_of_the_calls_becomes_jobs_and_the_rest_runs_as_before(
    hold: Holdfast, pool: ArqRedis
) -> None:
    @durable(hold, queue="grading", share=0.25)
    async def grade(ctx: dict[str, Any], number: int) -> int:
        return number

    results = [await grade(context(pool, f"call-{number}"), number) for number in range(200)]
    again = [await grade(context(pool, f"call-{number}"), number) for number in range(200)]

    jobs = [result for result in results if isinstance(result, str)]
    assert 20 < len(jobs) < 80
    assert again == results
    assert len(await hold.find(JobFilter(limit=1000))) == len(jobs)


async def test_arguments_that_are_no_json_run_as_before(hold: Holdfast, pool: ArqRedis) -> None:
    @durable(hold, queue="grading")
    async def measure(ctx: dict[str, Any], value: Any) -> str:
        return type(value).__name__

    assert await measure(context(pool, "call"), object()) == "object"
    assert await hold.find(JobFilter()) == []


async def test_while_the_database_is_away_arq_calls_again_and_no_try_is_spent(
    pool: ArqRedis, tmp_path: Path
) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/missing/jobs.db")

    @durable(hold, queue="grading")
    async def grade(ctx: dict[str, Any]) -> None: ...

    await pool.set("arq:retry:call-away", 4)
    with pytest.raises(Retry):
        await grade(context(pool, "call-away"))

    assert await pool.exists("arq:retry:call-away") == 0
    await hold.close()


async def test_a_call_without_a_worker_runs_the_function(hold: Holdfast) -> None:
    @durable(hold, queue="grading")
    async def grade(ctx: dict[str, Any], n: int) -> int:
        return 2 * n

    assert await grade({}, 4) == 8
    assert grade.job.name.endswith("grade")


def test_what_is_no_arq_function_and_no_share_is_refused() -> None:
    hold = Holdfast("sqlite:///unused.db")

    def plain(ctx: dict[str, Any]) -> None: ...

    with pytest.raises(ConfigError, match="give it an async function"):
        durable(hold, queue="grading")(plain)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="share=2"):
        durable(hold, queue="grading", share=2)
