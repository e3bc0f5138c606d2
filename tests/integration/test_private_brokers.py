"""The private brokers of the tests: they start again with their data, and end with the process that started them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.brokers import BrokerServer

if TYPE_CHECKING:
    from tests.brokers import PrivateRabbitMQ, PrivateRedis

SCRIPT = """
from tests.brokers import {server} as Server
server = Server()
server.start()
print(server._folder, *(process.pid for process in server._processes.values()), flush=True)
input()
"""


def test_redis_keeps_its_address_and_its_data_over_a_restart(private_redis: PrivateRedis) -> None:
    with Redis.from_url(private_redis.url) as client:
        client.set("kept", "yes")

    private_redis.restart()

    with Redis.from_url(private_redis.url) as client:
        assert client.get("kept") == b"yes"


def test_a_killed_server_takes_no_connections_until_it_is_started(private_redis: PrivateRedis) -> None:
    private_redis.kill()

    assert not private_redis.running
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", private_redis.port)):
        pass

    private_redis.start()
    socket.create_connection(("127.0.0.1", private_redis.port)).close()


def test_the_management_api_of_the_private_rabbitmq_answers(private_rabbitmq: PrivateRabbitMQ) -> None:
    port = private_rabbitmq.management_url.rpartition(":")[2]

    socket.create_connection(("127.0.0.1", int(port))).close()


def test_an_address_keeps_its_user_at_another_port() -> None:
    server = BrokerServer("amqp://guest:guest@127.0.0.1:5672/")

    assert (server.port, server.at_port(1)) == (5672, "amqp://guest:guest@127.0.0.1:1/")


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waiting for a process that is not our child needs Linux"
)
@pytest.mark.parametrize(
    ("server", "programs", "fixture"),
    [("PrivateRedis", 1, "private_redis"), ("PrivateRabbitMQ", 2, "private_rabbitmq")],
)
def test_a_test_run_that_is_killed_leaves_no_server_behind(
    server: str, programs: int, fixture: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(fixture)  # skips the test where the server cannot be started
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(server=server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout is not None
    folder, *pids = run.stdout.readline().split()
    started = [os.pidfd_open(int(pid)) for pid in pids]

    run.kill()
    run.communicate()

    assert len(started) == programs
    assert [_ended(pidfd) for pidfd in started] == [True] * programs
    assert folder.startswith(("/tmp/", "/dev/shm/"))


def _ended(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)
