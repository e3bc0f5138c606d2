"""Jobs run on real arq workers: what happens to workers, dispatches and Redis costs time, and no job."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arq.connections import RedisSettings, create_pool
from redis.asyncio import Redis

from holdfast import Status
from holdfast.arq.protocol import dump_json, load_json
from holdfast.errors import JobFailed
from holdfast.ports.fleets import Dispatch
from tests.integration.arq.arq_process import an_arq_worker, arq
from tests.integration.arq.worker_app import declare
from tests.integration.cli_process import apply_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from holdfast import Holdfast
    from holdfast.app import JobHandle
    from tests.brokers import BrokerServer, PrivateRedis
    from tests.integration.cli_process import Running
    from tests.servers import PostgresServer

HERE = Path(__file__).parent
TIMEOUT = 120.0


class Fleet:
    """An application with its dispatcher in this process, and its arq workers in others."""

    def __init__(self, database: str, redis: str, queue: str, folder: Path) -> None:
        self.queue = queue
        self.folder = folder
        self._redis_url = redis
        self.hold: Holdfast = declare(database, redis, queue, folder)
        self.redis: Redis = Redis.from_url(redis)
        self.environment = {"DATABASE": database, "REDIS": redis, "QUEUE": queue, "FOLDER": str(folder)}

    def worker(self, **settings: str) -> contextlib.AbstractContextManager[Running]:
        return an_arq_worker("worker_app.Worker", cwd=HERE, environment=self.environment | settings)

    async def submit(self, name: str, *args: Any) -> JobHandle[Any]:
        spec = self.hold.runtime.registry.get(name)
        assert spec is not None
        return await self.hold._job_function(spec).submit(*args)

    async def dispatch(self, *job_ids: str) -> None:
        """Send dispatches of jobs, as a dispatcher does that knows no better."""
        sender = self.hold.runtime.registry.transports["grading"].open()
        await sender.send("grading", [Dispatch(job_id, "waiting", 1) for job_id in job_ids])
        await sender.close()

    def go(self, name: str) -> None:
        """Let a waiting job end."""
        (self.folder / f"{name}.go").touch()

    def runs(self, name: str) -> list[str]:
        """Return the processes that have run a job, once for each run."""
        file = self.folder / name
        return file.read_text().split() if file.exists() else []

    async def emptied(self) -> None:
        """Wait until no dispatch is left in Redis; arq's cron jobs are there ahead of their time."""
        await eventually(lambda: self.has_dispatches(0))

    async def has_dispatches(self, number: int) -> bool:
        queued = await self.redis.zrange(self.queue, 0, -1)
        return sum(not arq_id.startswith(b"cron:") for arq_id in queued) == number

    async def close(self) -> None:
        await self.redis.aclose()
        await self.hold.close()


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await holds():
            await asyncio.sleep(0.02)


async def said(running: Running, text: str) -> str:
    """Wait, without blocking the dispatcher, for a line of a worker."""
    return await asyncio.to_thread(running.wait_for, text)


@pytest.fixture(scope="module")
def shared(
    postgres_server: PostgresServer, redis_server: BrokerServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """A database, a queue and a worker that tests of this module share."""
    database = postgres_server.create_database(apply_schema)
    folder = tmp_path_factory.mktemp("shared")
    names: dict[str, Any] = {
        "database": database,
        "redis": redis_server.url,
        "queue": f"jobs:{uuid.uuid4().hex}",
        "folder": folder,
    }
    with Fleet(**names).worker() as running:
        running.wait_for("fleet runner started")
        yield names
    postgres_server.drop_database(database)


@pytest.fixture
async def fleet(shared: dict[str, Any]) -> AsyncIterator[Fleet]:
    """A fleet with one worker, whose dispatcher runs."""
    made = Fleet(**shared)
    async with made.hold.worker(poll=0.05):
        yield made
    await made.close()


@pytest.fixture
async def own(
    postgres_server: PostgresServer, redis_server: BrokerServer, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """A fleet of this test alone, without a worker; its dispatcher runs."""
    database = postgres_server.create_database(apply_schema)
    made = Fleet(database, redis_server.url, f"jobs:{uuid.uuid4().hex}", tmp_path)
    async with made.hold.worker(poll=0.05):
        yield made
    await made.close()
    postgres_server.drop_database(database)


@pytest.mark.clause("GRD-2")
async def test_jobs_run_on_an_arq_worker(fleet: Fleet) -> None:
    doubles = [await fleet.submit("double", n) for n in range(50)]
    plain = await fleet.submit("plain", 1)

    assert [await handle.result(timeout=TIMEOUT) for handle in doubles] == [2 * n for n in range(50)]
    assert await plain.result(timeout=TIMEOUT) == 2
    await fleet.emptied()
    job = await doubles[0].read()
    assert [event.kind for event in await fleet.hold.events(job.id)] == ["queued", "processing", "completed"]


async def test_functions_hooks_and_cron_jobs_of_the_team_work_beside_them(fleet: Fleet) -> None:
    name = uuid.uuid4().hex
    pool = await create_pool(
        RedisSettings.from_dsn(fleet.environment["REDIS"]),
        job_serializer=dump_json,
        job_deserializer=load_json,
    )

    await pool.enqueue_job("greet", name, _queue_name=fleet.queue)

    await eventually(lambda: _exists(fleet.redis, name))
    assert await fleet.redis.get(name) == f"hello {name}".encode()
    await eventually(lambda: _exists(fleet.redis, f"{fleet.queue}:tick"))
    await pool.aclose(close_connection_pool=True)


async def test_marks_of_calls_in_progress_do_not_outlive_a_killed_worker_for_long(fleet: Fleet) -> None:
    name = uuid.uuid4().hex
    pool = await create_pool(
        RedisSettings.from_dsn(fleet.environment["REDIS"]),
        job_serializer=dump_json,
        job_deserializer=load_json,
    )
    handle = await fleet.submit("waiting", name)
    own_call = await pool.enqueue_job("hold_on", name, _queue_name=fleet.queue)
    assert own_call is not None
    await eventually(lambda: _exists(fleet.redis, f"{name}:begun"))
    await eventually(lambda: _ran(fleet, name))

    queued = [arq_id.decode() for arq_id in await fleet.redis.zrange(fleet.queue, 0, -1)]
    [dispatch] = [arq_id for arq_id in queued if not arq_id.startswith("cron:") and arq_id != own_call.job_id]
    await eventually(lambda: _lives(fleet.redis, dispatch, at_most=30_000))
    assert 200_000 < await fleet.redis.pttl(f"arq:in-progress:{own_call.job_id}") <= 310_000
    fleet.go(name)
    await handle.result(timeout=TIMEOUT)
    await fleet.redis.set(f"{name}:go", 1)
    await fleet.emptied()
    await pool.aclose(close_connection_pool=True)


async def test_a_dispatch_whose_worker_was_killed_before_it_owned_it_is_freed(own: Fleet) -> None:
    handle = await own.submit("double", 4)
    await eventually(lambda: own.has_dispatches(1))
    [arq_id] = [found.decode() for found in await own.redis.zrange(own.queue, 0, -1)]
    await own.redis.set(f"arq:in-progress:{arq_id}", "1", px=2_592_000_000)
    await own.redis.zadd(own.queue, {arq_id: 1_700_000_000_000})
    await own.hold.runtime.store.dispatches.claim("dead", [handle.id], lease=timedelta(days=1))

    with own.worker():
        await own.emptied()

    assert await own.redis.exists(f"arq:in-progress:{arq_id}") == 0


async def _lives(redis: Redis, arq_id: str, *, at_most: int) -> bool:
    """Whether a call is marked as in progress, for so many milliseconds at most."""
    left: int = await redis.pttl(f"arq:in-progress:{arq_id}")
    return 0 < left <= at_most


async def _exists(redis: Redis, name: str) -> bool:
    return bool(await redis.exists(name))


@pytest.mark.clause("JOB-3", "postgres")
async def test_a_dispatch_that_arrives_twice_or_late_or_for_an_ended_job_runs_nothing(fleet: Fleet) -> None:
    name = uuid.uuid4().hex
    handle = await fleet.submit("waiting", name)
    await eventually(lambda: _ran(fleet, name))

    await fleet.dispatch(*[handle.id] * 3)  # while it runs
    await eventually(lambda: fleet.has_dispatches(1))
    fleet.go(name)
    await handle.result(timeout=TIMEOUT)
    await fleet.dispatch(handle.id, str(uuid.uuid4()))  # after its end, and for no job at all
    await fleet.emptied()

    assert len(fleet.runs(name)) == 1
    assert (await handle.read()).attempt == 1


async def _ran(fleet: Fleet, name: str) -> bool:
    return bool(fleet.runs(name))


@pytest.mark.clause("RET-4")
async def test_a_wait_that_a_service_asks_for_is_kept_by_the_database(fleet: Fleet) -> None:
    handles = [await fleet.submit("limited", seconds) for seconds in (200, 4000)]

    waits = [await _wait_of(handle) for handle in handles]

    assert 195 < waits[0] < 260
    assert 295 < waits[1] <= 300


async def _wait_of(handle: JobHandle[Any]) -> float:
    """Return the seconds between the failure of an attempt and the next."""

    async def waits() -> bool:
        return (await handle.read()).retry_after is not None

    await eventually(waits)
    job = await handle.read()
    assert job.retry_after is not None
    return (job.retry_after - job.updated_at).total_seconds()


@pytest.mark.clause("STG-2", "postgres")
async def test_each_stage_has_its_own_attempts_on_an_arq_worker(fleet: Fleet) -> None:
    handle = await fleet.submit("staged")

    assert await handle.result(timeout=TIMEOUT) == [2, 2]
    assert [len(fleet.runs(f"{handle.id}.{stage}")) for stage in ("first", "second")] == [2, 2]


@pytest.mark.clause("BRK-2", "postgres")
async def test_while_a_breaker_is_open_no_call_is_made_and_no_attempt_is_lost(fleet: Fleet) -> None:
    await fleet.hold.providers.open("model", actor="ann", reason="test")
    handle = await fleet.submit("calling")

    async def held() -> bool:
        return (await handle.read()).held_by is not None

    await eventually(held)
    assert fleet.runs("called") == []
    assert (await handle.read()).attempt == 0
    await fleet.hold.providers.close("model", actor="ann", reason="test")
    await handle.result(timeout=TIMEOUT)
    assert len(fleet.runs("called")) == 1


@pytest.mark.clause("JOB-7", "postgres")
async def test_on_sigterm_a_job_is_released_with_its_attempt_and_done_by_the_next_worker(own: Fleet) -> None:
    with own.worker() as first:
        handle = await own.submit("waiting", "slow")
        await said(first, "begun slow")
        first.signal(signal.SIGTERM)
        await said(first, "own hook ran")
        await asyncio.to_thread(first.end)
    own.go("slow")
    with own.worker():
        await handle.result(timeout=TIMEOUT)
        await own.emptied()

    assert (await handle.read()).attempt == 1
    assert len(own.runs("slow")) == 2
    assert "job released" in first.output


@pytest.mark.clause("JOB-7", "postgres")
async def test_on_sigterm_running_jobs_may_finish_and_no_other_starts(own: Fleet) -> None:
    with own.worker(WAIT="60") as first:
        handle = await own.submit("waiting", "slow")
        await said(first, "begun slow")
        first.signal(signal.SIGTERM)
        await said(first, "to be completed")
        late = await own.submit("double", 1)
        own.go("slow")
        assert await handle.result(timeout=TIMEOUT) == first.process.pid
        await asyncio.to_thread(first.end)

    assert (await late.read()).status is Status.QUEUED


@pytest.mark.clause("GRD-8")
async def test_a_killed_workers_jobs_are_done_by_the_next_of_this_machine_before_their_lease_expires(
    own: Fleet,
) -> None:
    lease = {"WORKER_LEASE_TTL_SEC": "3600"}
    with own.worker(**lease) as first:
        handle = await own.submit("waiting", "slow")
        await said(first, "begun slow")
        first.signal(signal.SIGKILL)
        await asyncio.to_thread(first.end)
    own.go("slow")
    with own.worker(**lease) as second:
        assert await handle.result(timeout=TIMEOUT) == second.process.pid
        await own.emptied()

    assert len(own.runs("slow")) == 2


@pytest.mark.clause("JOB-6", "postgres")
async def test_a_suspended_worker_that_lost_its_lease_writes_nothing(own: Fleet) -> None:
    lease = {"WORKER_LEASE_TTL_SEC": "2"}
    with own.worker(**lease) as suspended, contextlib.ExitStack() as stack:
        handle = await own.submit("waiting", "slow")
        await said(suspended, "begun slow")
        suspended.signal(signal.SIGSTOP)
        other = stack.enter_context(own.worker(**lease))
        await said(other, "begun slow")
        own.go("slow")
        assert await handle.result(timeout=TIMEOUT) == other.process.pid
        ended = await handle.read()

        suspended.signal(signal.SIGCONT)
        await said(suspended, "lost")

        assert await handle.read() == ended


@pytest.mark.clause("JOB-10", "postgres")
async def test_a_job_that_crashes_its_worker_each_time_fails_and_takes_no_other_with_it(own: Fleet) -> None:
    neighbour = await own.submit("waiting", "slow")
    crashing = await own.submit("crash")

    async def ended() -> bool:
        return (await crashing.read()).status.ended

    while not await ended():
        with own.worker() as running:
            await eventually(lambda: _crashed_or(running, ended))
        own.go("slow")  # it may have been the cause of the first crash, and runs alone now
    with own.worker():
        await neighbour.result(timeout=TIMEOUT)

    assert (await crashing.read()).status is Status.FAILED
    with pytest.raises(JobFailed, match="worker"):
        await crashing.result(timeout=TIMEOUT)


async def _crashed_or(running: Running, ended: Callable[[], Awaitable[bool]]) -> bool:
    return running.process.poll() is not None or await ended()


async def test_a_worker_that_cannot_use_its_database_ends_with_one_clear_line(
    postgres_dsn: str, redis_server: BrokerServer, tmp_path: Path
) -> None:
    fleet = Fleet(postgres_dsn, redis_server.url, f"jobs:{uuid.uuid4().hex}", tmp_path)

    ended = await asyncio.to_thread(arq, "worker_app.Worker", cwd=HERE, environment=fleet.environment)

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("holdfast: ")]
    assert "schema" in line
    await fleet.close()


async def test_after_flushall_every_job_is_dispatched_again(
    postgres_server: PostgresServer, private_redis: PrivateRedis, tmp_path: Path
) -> None:
    database = postgres_server.create_database(apply_schema)
    fleet = Fleet(database, private_redis.url, "jobs", tmp_path)
    async with fleet.hold.worker(poll=0.05):
        handles = [await fleet.submit("double", n) for n in range(20)]
        await eventually(lambda: fleet.has_dispatches(8))  # as many as are outstanding at a time
        await fleet.redis.flushall()

        with fleet.worker():
            assert [await handle.result(timeout=TIMEOUT) for handle in handles] == [2 * n for n in range(20)]
    await fleet.close()
    postgres_server.drop_database(database)


@pytest.mark.clause("GRD-3")
async def test_while_redis_is_away_jobs_wait_and_one_line_says_so(
    postgres_server: PostgresServer,
    private_redis: PrivateRedis,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = postgres_server.create_database(apply_schema)
    fleet = Fleet(database, private_redis.url, "jobs", tmp_path)
    private_redis.stop()
    async with fleet.hold.worker(poll=0.05):
        handle = await fleet.submit("double", 4)
        await eventually(lambda: _logged(caplog))
        private_redis.start()
        with fleet.worker():
            assert await handle.result(timeout=TIMEOUT) == 8
    await fleet.close()
    postgres_server.drop_database(database)


async def _logged(caplog: pytest.LogCaptureFixture) -> bool:
    lines = [line for line in caplog.messages if "fleet broker unavailable" in line]
    assert all("cannot be reached" in line and len(line.splitlines()) == 1 for line in lines)
    return len(lines) == 1
