"""Dispatches reach Redis in arq's protocol, all or none; what goes wrong is one clear line."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.arq import ArqTransport
from holdfast.errors import BrokerUnavailable
from holdfast.ports.fleets import Dispatch
from tests.integration.cli_process import an_application, holdfast
from tests.servers import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers import BrokerServer, PrivateRedis

JOBS = [str(uuid.UUID(int=number)) for number in range(1, 6)]
DISPATCHES = [Dispatch(job_id, "grade", 1) for job_id in JOBS]


async def test_a_dispatch_names_its_job_and_carries_nothing_else(redis_server: BrokerServer) -> None:
    queue = f"jobs:{uuid.uuid4().hex}"
    sender = ArqTransport(redis_server.url, queue=queue, slots=5).open()
    redis: Redis = Redis.from_url(redis_server.url)

    assert await sender.send("grading", DISPATCHES) == JOBS
    assert await sender.send("grading", DISPATCHES[:1]) == JOBS[:1]

    ids = [arq_id.decode() for arq_id in await redis.zrange(queue, 0, -1)]
    calls = [json.loads(await redis.get(f"arq:job:{arq_id}") or b"") for arq_id in ids]
    assert [call["a"] for call in calls] == [[job_id] for job_id in [*JOBS, JOBS[0]]]
    assert {(call["f"], call["t"], len(call)) for call in calls} == {("holdfast.run", None, 5)}
    assert len(set(ids)) == 6
    assert f"6 dispatches in {queue!r}" in await sender.check()
    await sender.close()
    await redis.aclose()


async def test_a_redis_that_is_away_is_one_clear_line() -> None:
    port = free_port()
    sender = ArqTransport(f"redis://:secret@127.0.0.1:{port}/0", slots=5).open()

    with pytest.raises(BrokerUnavailable) as raised:
        await sender.send("grading", DISPATCHES)

    assert f"Redis at 127.0.0.1:{port}/0 cannot be reached" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    await sender.close()


async def test_a_wrong_password_is_one_clear_line_and_a_right_one_works_afterwards(
    private_redis: PrivateRedis,
) -> None:
    redis: Redis = Redis.from_url(private_redis.url)
    await redis.config_set("requirepass", "right")
    wrong = ArqTransport(f"redis://:wrong@127.0.0.1:{private_redis.port}/0", slots=5).open()
    none = ArqTransport(private_redis.url, slots=5).open()
    right = ArqTransport(f"redis://:right@127.0.0.1:{private_redis.port}/0", slots=5).open()

    for sender in (wrong, none):
        with pytest.raises(BrokerUnavailable, match="refused the user or the password"):
            await sender.send("grading", DISPATCHES)
    assert await right.send("grading", DISPATCHES) == JOBS
    for sender in (wrong, none, right):
        await sender.close()
    await redis.aclose()


async def test_a_key_that_is_no_queue_sends_nothing(redis_server: BrokerServer) -> None:
    queue = f"jobs:{uuid.uuid4().hex}"
    redis: Redis = Redis.from_url(redis_server.url)
    await redis.set(queue, "text")
    sender = ArqTransport(redis_server.url, queue=queue, slots=5).open()

    with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
        await sender.send("grading", DISPATCHES)

    await sender.close()
    await redis.aclose()


async def test_a_server_that_evicts_keys_is_reported(private_redis: PrivateRedis) -> None:
    redis: Redis = Redis.from_url(private_redis.url)
    sender = ArqTransport(private_redis.url, slots=5).open()
    assert await sender.warnings() == []

    await redis.config_set("maxmemory-policy", "allkeys-lru")

    assert await sender.warnings() == [
        "maxmemory-policy is allkeys-lru, which drops dispatches: set it to noeviction"
    ]
    await sender.close()
    await redis.aclose()


async def test_doctor_reports_the_fleet_and_a_server_that_evicts_keys(
    private_redis: PrivateRedis, tmp_path: Path
) -> None:
    application = f"""
from holdfast import Holdfast
from holdfast.arq import ArqTransport

hold = Holdfast("sqlite:///jobs.db")
hold.queue("grading", transport=ArqTransport({private_redis.url!r}, slots=5))
"""
    an_application(tmp_path, application)
    redis: Redis = Redis.from_url(private_redis.url)

    found = [await asyncio.to_thread(_fleet_check, tmp_path)]
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    found.append(await asyncio.to_thread(_fleet_check, tmp_path))
    await redis.aclose()
    private_redis.stop()
    found.append(await asyncio.to_thread(_fleet_check, tmp_path))

    assert [check["health"] for check in found] == ["ok", "warn", "fail"]
    assert found[0]["detail"].startswith("arq on Redis ")
    assert found[0]["detail"].endswith("0 dispatches in 'holdfast:queue'")
    assert (
        "maxmemory-policy is allkeys-lru, which drops dispatches: set it to noeviction" in found[1]["detail"]
    )
    assert "cannot be reached" in found[2]["detail"]


def _fleet_check(folder: Path) -> dict[str, str]:
    report = json.loads(holdfast("doctor", "--app", "app:hold", "--json", cwd=folder).stdout)
    [check] = [check for check in report["checks"] if check["name"] == "fleet grading"]
    return dict(check)
