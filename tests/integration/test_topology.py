"""`holdfast topology` compares what is declared with a real RabbitMQ, creates what is missing and changes nothing else."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest

from holdfast.brokers.rabbitmq import RabbitBroker
from holdfast.core.errors import BrokerUnavailable, ConfigError
from holdfast.core.messages.topology import Presence, Topology
from tests.integration.cli_process import an_application, holdfast

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aio_pika.abc import AbstractChannel

    from tests.brokers import PrivateRabbitMQ

APPLICATION = """
from holdfast import Holdfast

hold = Holdfast()
hold.broker("rabbitmq", {url!r}, topology={document!r})
plain = Holdfast()
stream = Holdfast()
stream.broker("redis", "redis://127.0.0.1:1/", topology={document!r})
"""


@pytest.fixture
async def channel(private_rabbitmq: PrivateRabbitMQ) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(private_rabbitmq.url) as connection:
        yield await connection.channel()


@pytest.fixture
def document() -> dict[str, Any]:
    """The topology of grading, under names that only this test uses."""
    mark = uuid.uuid4().hex[:8]
    return {
        "exchange": {"name": f"vstep.{mark}", "type": "direct", "durable": True},
        "queues": [
            {
                "name": f"request.{mark}",
                "durable": True,
                "arguments": {
                    "x-queue-type": "classic",
                    "x-dead-letter-exchange": f"vstep.{mark}",
                    "x-dead-letter-routing-key": f"dlq.{mark}",
                },
            },
            {"name": f"dlq.{mark}", "durable": True, "arguments": {}},
        ],
    }


@pytest.fixture
def folder(tmp_path: Path, private_rabbitmq: PrivateRabbitMQ, document: dict[str, Any]) -> Path:
    return an_application(tmp_path, APPLICATION.format(url=private_rabbitmq.url, document=document))


def topology(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a command; return it with the presence of each part."""
    done = holdfast("topology", *words, "--json", cwd=folder)
    return done, [line["presence"] for line in json.loads(done.stdout)]


def test_print_shows_the_declared_topology_with_its_bindings(folder: Path, document: dict[str, Any]) -> None:
    done = holdfast("topology", "print", "app:hold", cwd=folder)

    assert done.returncode == 0
    assert json.loads(done.stdout) == {"rabbitmq": Topology.of(document).as_document()}


@pytest.mark.clause("GRD-4")
def test_apply_creates_what_is_missing_and_check_confirms_it(
    folder: Path, private_rabbitmq: PrivateRabbitMQ
) -> None:
    management = ("--management", private_rabbitmq.management_url)
    before, missing = topology(folder, "check", "app:hold", *management)
    planned, shown = topology(folder, "apply", "app:hold", "--dry-run", *management)

    applied, created = topology(folder, "apply", "app:hold")
    after, present = topology(folder, "check", "app:hold", *management)
    again, unchanged = topology(folder, "apply", "app:hold", *management)

    assert (before.returncode, set(missing)) == (1, {"missing"})
    assert (planned.returncode, set(shown)) == (0, {"missing"})
    assert (applied.returncode, set(created)) == (0, {"created"})
    assert (after.returncode, set(present)) == (0, {"present"})
    assert (again.returncode, set(unchanged)) == (0, {"present"})
    assert len(missing) == len(present) == 5


def test_without_the_management_api_bindings_are_said_to_be_unchecked(folder: Path) -> None:
    topology(folder, "apply", "app:hold")

    done, found = topology(folder, "check", "app:hold")

    assert done.returncode == 0
    assert found == ["present", "present", "present", "not checked", "not checked"]
    assert "give the address of the management API" in done.stdout


async def test_a_queue_with_other_arguments_is_named_and_left_as_it_is(
    folder: Path, document: dict[str, Any], channel: AbstractChannel
) -> None:
    name = document["queues"][0]["name"]
    queue = await channel.declare_queue(name, durable=True, arguments={"x-max-length": 10})
    await channel.default_exchange.publish(aio_pika.Message(b"kept"), name)

    checked, _ = topology(folder, "check", "app:hold")
    applied, created = topology(folder, "apply", "app:hold")

    assert (checked.returncode, applied.returncode) == (1, 1)
    assert created == ["created", "different", "created", "created", "created"]
    assert "inequivalent arg" in applied.stdout
    assert name in applied.stdout
    assert "is never changed" in applied.stderr
    kept = await queue.get(no_ack=True)
    assert kept.body == b"kept"


async def test_an_exchange_of_another_type_is_named(
    private_rabbitmq: PrivateRabbitMQ, document: dict[str, Any], channel: AbstractChannel
) -> None:
    await channel.declare_exchange(document["exchange"]["name"], "topic", durable=True)
    broker = RabbitBroker(private_rabbitmq.url)

    found = await broker.check_topology(Topology.of(document), management=None)

    assert found[0].presence is Presence.DIFFERENT
    assert "inequivalent arg 'type'" in found[0].detail
    await broker.close()


async def test_a_user_who_may_not_declare_learns_what_exists(
    private_rabbitmq: PrivateRabbitMQ, document: dict[str, Any]
) -> None:
    owner, limited = RabbitBroker(private_rabbitmq.url), RabbitBroker(private_rabbitmq.limited_url)
    await owner.apply_topology(Topology.of(document), management=None)

    found = await limited.check_topology(Topology.of(document), management=None)

    assert {part.presence for part in found} == {Presence.UNKNOWN}
    assert "ACCESS_REFUSED" in found[0].detail
    await owner.close()
    await limited.close()


async def test_a_wrong_address_of_the_management_api_is_one_line(
    private_rabbitmq: PrivateRabbitMQ, document: dict[str, Any]
) -> None:
    broker = RabbitBroker(private_rabbitmq.url)

    with pytest.raises(BrokerUnavailable, match=r"management API at 127\.0\.0\.1:1 cannot be read"):
        await broker.check_topology(Topology.of(document), management="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="must begin with http"):
        await broker.check_topology(Topology.of(document), management="localhost")

    await broker.close()


def test_each_mistake_is_one_line_with_its_exit_code(tmp_path: Path) -> None:
    an_application(tmp_path, APPLICATION.format(url="amqp://guest:hunter2@127.0.0.1:1/", document={}))

    for words, code, line in [
        (("check", "app:plain"), 2, "declares no topology"),
        (("check",), 2, "declared in the application"),
        (("check", "app:stream"), 2, "only RabbitMQ has a topology"),
        (("apply", "app:hold"), 3, "RabbitMQ at 127.0.0.1:1 cannot be reached"),
    ]:
        done = holdfast("topology", *words, cwd=tmp_path)
        assert (done.returncode, line in done.stderr) == (code, True), done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "hunter2" not in done.stderr
