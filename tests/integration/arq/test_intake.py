"""Calls that programs enqueue in Redis become durable jobs, or dead letters: none is lost, none runs twice."""

from __future__ import annotations

import asyncio
import json
import pickle
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from holdfast import Holdfast, JobFilter, Status
from holdfast.arq import IntakeSettings
from tests.integration.arq.arq_process import an_arq_worker
from tests.integration.cli_process import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast import Job
    from tests.brokers import BrokerServer
    from tests.integration.cli_process import Running
    from tests.nodejs import NodePrograms

HERE = Path(__file__).parent
DAY = 86_400_000


class Producer:
    """A program that enqueues calls with commands of Redis alone, and a view of what became of them."""

    def __init__(self, url: str, database: str, queue: str) -> None:
        self.url = url
        self.database = database
        self.queue = queue
        self.redis: Redis = Redis.from_url(url)
        self.hold = Holdfast(database)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "DATABASE": self.database,
            "REDIS": self.url,
            "QUEUE": self.queue,
            "HOLDFAST_LOG_FORMAT": "json",
        }

    async def enqueue(
        self, body: bytes | dict[str, Any], *, arq_id: str | None = None, after: int = 0, lifetime: int = DAY
    ) -> str:
        """Enqueue a call as the documentation says, due *after* milliseconds."""
        arq_id = arq_id or uuid.uuid4().hex
        seconds, micros = await self.redis.time()
        now = seconds * 1000 + micros // 1000
        if isinstance(body, dict):
            body = json.dumps({"t": None, "a": [], "k": {}, "et": now} | body).encode()
        async with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.psetex(f"arq:job:{arq_id}", lifetime, body)
            pipeline.zadd(self.queue, {arq_id: now + after})
            await pipeline.execute()
        return arq_id

    async def taken(self) -> None:
        """Wait until nothing is enqueued any more."""
        async with asyncio.timeout(TIMEOUT):
            while await self.redis.zcard(self.queue):
                await asyncio.sleep(0.02)

    async def jobs(self, name: str) -> list[Job]:
        """Return the jobs of a name, with their arguments."""
        found = await self.hold.find(JobFilter(limit=1000))
        return [await self.hold.read(job.id) for job in found if job.name == name]

    async def close(self) -> None:
        await self.redis.aclose()
        await self.hold.close()


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("intake")
    return {"database": f"sqlite:///{folder}/jobs.db", "queue": f"enqueued:{uuid.uuid4().hex}"}


@pytest.fixture
async def producer(redis_server: BrokerServer, names: dict[str, str]) -> AsyncIterator[Producer]:
    producer = Producer(redis_server.url, **names)
    await producer.hold.apply_schema()
    yield producer
    await producer.close()


@pytest.fixture(scope="module")
def intake(redis_server: BrokerServer, names: dict[str, str]) -> Iterator[Running]:
    """An intake that the tests of this module share."""

    async def prepare() -> dict[str, str]:
        producer = Producer(redis_server.url, **names)
        await producer.hold.apply_schema()
        await producer.close()
        return producer.environment

    environment = asyncio.run(prepare())
    with an_arq_worker("intake_app.Intake", cwd=HERE, environment=environment) as running:
        running.wait_for("Starting worker")
        yield running


@pytest.fixture
async def fresh(redis_server: BrokerServer, tmp_path: Path) -> AsyncIterator[Producer]:
    """A producer with a queue and a database of its own."""
    producer = Producer(redis_server.url, f"sqlite:///{tmp_path}/jobs.db", f"enqueued:{uuid.uuid4().hex}")
    await producer.hold.apply_schema()
    yield producer
    await producer.close()


async def test_an_enqueued_call_becomes_a_job_and_is_deleted(intake: Running, producer: Producer) -> None:
    arq_id = await producer.enqueue({"f": "grade", "a": ["s-1"], "k": {"skill": "speaking"}})

    await producer.taken()

    [job] = [job for job in await producer.jobs("grade") if "s-1" in job.args]
    assert json.loads(job.args) == {"submission": "s-1", "skill": "speaking"}
    assert job.status is Status.QUEUED
    assert await producer.redis.exists(f"arq:job:{arq_id}") == 0


async def test_a_call_that_is_enqueued_again_with_its_id_makes_no_second_job(
    intake: Running, producer: Producer
) -> None:
    arq_id = await producer.enqueue({"f": "grade", "a": ["s-2"]})
    await producer.taken()

    await producer.enqueue({"f": "grade", "a": ["s-2"]}, arq_id=arq_id)
    await producer.taken()

    assert len([job for job in await producer.jobs("grade") if "s-2" in job.args]) == 1


async def test_a_known_id_with_another_content_keeps_the_first_job_and_leaves_a_dead_letter(
    intake: Running, producer: Producer
) -> None:
    arq_id = await producer.enqueue({"f": "grade", "a": ["first"]})
    await producer.taken()

    await producer.enqueue({"f": "grade", "a": ["changed"]}, arq_id=arq_id)
    await producer.taken()

    assert len([job for job in await producer.jobs("grade") if "first" in job.args]) == 1
    assert not [job for job in await producer.jobs("grade") if "changed" in job.args]
    [letter] = [job for job in await producer.jobs("holdfast.consume") if "changed" in job.args]
    assert letter.failure is not None
    assert letter.failure.context["reason"] == "conflict"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pickle.dumps({"f": "grade", "a": ["s-3"], "k": {}, "t": None, "et": 1}), "content_type"),
        (b"garbage \xff\x00", "malformed"),
        (b'["f", "grade"]', "schema"),
        (b"[" * 50_000, "malformed"),
        ({"f": "unknown"}, "schema"),
        ({"f": "secret"}, "schema"),
        ({"f": "holdfast.take"}, "schema"),
        ({"f": "grade", "a": ["s-3"], "k": {"colour": "red"}}, "schema"),
        ({"f": "grade", "a": [{"no": "text"}]}, "schema"),
        ({"f": "grade", "a": "s-3"}, "schema"),
        ({"f": ["grade"], "et": "yesterday", "t": 99_999}, "schema"),
    ],
    ids=[
        "pickle",
        "bytes",
        "list",
        "deep",
        "unknown function",
        "function that is not exposed",
        "function of the intake",
        "unknown argument",
        "wrong type",
        "arguments that are no list",
        "nothing that fits",
    ],
)
async def test_what_cannot_become_a_job_becomes_a_dead_letter_with_its_body(
    intake: Running, producer: Producer, body: bytes | dict[str, Any], reason: str
) -> None:
    mark = uuid.uuid4().hex
    if isinstance(body, dict):
        body = {"et": 1_700_000_000_000} | body | {"mark": mark}
    before = {job.id for job in await producer.jobs("holdfast.consume")}

    await producer.enqueue(body)
    await producer.taken()

    [letter] = [job for job in await producer.jobs("holdfast.consume") if job.id not in before]
    assert letter.status is Status.FAILED
    assert letter.failure is not None
    assert letter.failure.context["reason"] == reason
    assert letter.failure.context["queue"] == producer.queue
    assert json.loads(letter.args)["encoding"] == (
        "base64" if reason == "content_type" or b"\xff" in _raw(body) else "utf-8"
    )
    if isinstance(body, dict):
        assert mark in json.loads(letter.args)["body"]


def _raw(body: bytes | dict[str, Any]) -> bytes:
    return body if isinstance(body, bytes) else b""


async def test_a_refused_call_becomes_a_job_after_its_body_was_corrected(fresh: Producer) -> None:
    class Intake(IntakeSettings):
        hold = fresh.hold
        jobs = [fresh.hold.job("grade")(grade)]  # noqa: RUF012 - as arq's settings are written
        queue_name = fresh.queue

    await fresh.enqueue({"f": "grade", "a": ["r-1"], "k": {"colour": "red"}}, arq_id="r-1")
    with an_arq_worker("intake_app.Intake", cwd=HERE, environment=fresh.environment):
        await fresh.taken()
    [letter] = await fresh.jobs("holdfast.consume")

    corrected = json.dumps({"t": None, "f": "grade", "a": ["r-1"], "k": {}, "et": 1})
    await fresh.hold.dead_letters.triage(letter.id, "data", actor="ann")
    await fresh.hold.dead_letters.remediate(
        letter.id, "corrected by hand", actor="ann", correct={"body": corrected}
    )
    plan = await fresh.hold.dead_letters.plan(letter.id, safe="the inbox makes it once", actor="ann")
    assert plan.token is not None, plan.refused
    await fresh.hold.dead_letters.replay(plan.token, actor="ann")
    async with fresh.hold.worker(poll=0.05):
        async with asyncio.timeout(TIMEOUT):
            while not [job for job in await fresh.jobs("grade") if job.status is Status.COMPLETED]:
                await asyncio.sleep(0.05)

    [job] = await fresh.jobs("grade")
    assert json.loads(job.args)["submission"] == "r-1"


async def grade(submission: str, *, skill: str = "writing") -> str:
    return submission


async def test_a_deferred_call_becomes_a_job_at_once_and_is_due_at_its_time(
    intake: Running, producer: Producer
) -> None:
    await producer.enqueue({"f": "grade", "a": ["later"]}, after=3_600_000, lifetime=DAY + 3_600_000)

    await producer.taken()

    [job] = [job for job in await producer.jobs("grade") if "later" in job.args]
    assert job.retry_after is not None
    assert 3500 < (job.retry_after - job.created_at).total_seconds() < 3700
    assert job.deadline_at is None


async def test_the_lifetime_that_a_producer_chose_is_the_deadline(
    intake: Running, producer: Producer
) -> None:
    await producer.enqueue({"f": "grade", "a": ["soon"]}, lifetime=3_600_000)

    await producer.taken()

    [job] = [job for job in await producer.jobs("grade") if "soon" in job.args]
    assert job.deadline_at is not None
    assert 3500 < (job.deadline_at - job.created_at).total_seconds() < 3700


@pytest.mark.clause("GRD-2")
async def test_a_program_in_node_enqueues_with_commands_of_redis_alone(
    intake: Running, producer: Producer, node: NodePrograms
) -> None:
    for _ in range(2):  # the second run repeats every id
        await asyncio.to_thread(node.run, HERE / "node/enqueue.js", producer.url, producer.queue, "25")
    await producer.taken()

    jobs = [job for job in await producer.jobs("grade") if "node" in job.args]
    assert sorted(json.loads(job.args)["submission"] for job in jobs) == sorted(
        f"node-{n}: khá" for n in range(25)
    )


async def test_a_killed_or_stopped_intake_loses_nothing_and_doubles_nothing(fresh: Producer) -> None:
    for number in range(300):
        await fresh.enqueue({"f": "grade", "a": [f"k-{number}"]}, arq_id=f"{fresh.queue}-{number}")

    for end in (signal.SIGKILL, signal.SIGTERM):
        with an_arq_worker("intake_app.Intake", cwd=HERE, environment=fresh.environment) as running:
            running.wait_for("holdfast.take")
            running.signal(end)
            running.end()
    with an_arq_worker("intake_app.Intake", cwd=HERE, environment=fresh.environment):
        await fresh.taken()

    submissions = [json.loads(job.args)["submission"] for job in await fresh.jobs("grade")]
    assert sorted(submissions) == sorted(f"k-{number}" for number in range(300))


async def test_an_id_or_a_score_that_arq_cannot_read_becomes_a_dead_letter(fresh: Producer) -> None:
    binary, endless = uuid.UUID(int=2**127).bytes, b"endless"
    for arq_id, score in ((binary, 1.0), (endless, float("-inf"))):
        body = json.dumps({"t": None, "f": "grade", "a": [str(arq_id)], "k": {}, "et": 1})
        await fresh.redis.set(b"arq:job:" + arq_id, body)
        await fresh.redis.zadd(fresh.queue, {arq_id: score})
    await fresh.enqueue({"f": "grade", "a": ["fine"]})

    with an_arq_worker("intake_app.Intake", cwd=HERE, environment=fresh.environment):
        await fresh.taken()

    assert [json.loads(job.args)["submission"] for job in await fresh.jobs("grade")] == ["fine"]
    letters = await fresh.jobs("holdfast.consume")
    assert [letter.failure.context["reason"] for letter in letters if letter.failure] == ["identity"] * 2
    assert await fresh.redis.exists(b"arq:job:" + binary) == 0


async def test_while_the_database_is_away_calls_stay_in_redis(fresh: Producer, tmp_path: Path) -> None:
    with an_arq_worker("intake_app.Intake", cwd=HERE, environment=fresh.environment) as running:
        running.wait_for("Starting worker")
        lock = await asyncio.to_thread(_lock, tmp_path / "jobs.db")
        await fresh.enqueue({"f": "grade", "a": ["outage"]})
        await asyncio.to_thread(running.wait_for, "call not stored")
        assert await fresh.redis.zcard(fresh.queue) == 1

        await asyncio.to_thread(lock.close)
        await fresh.taken()

    assert [json.loads(job.args)["submission"] for job in await fresh.jobs("grade")] == ["outage"]


def _lock(database: Path) -> Any:
    import sqlite3

    connection = sqlite3.connect(database, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection
