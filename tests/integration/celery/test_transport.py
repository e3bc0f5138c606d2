"""Dispatches reach the broker of a Celery fleet, confirmed, and carry nothing but the job's id."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Connection, Queue

from holdfast.celery import CeleryTransport
from holdfast.errors import BrokerUnavailable
from holdfast.ports.fleets import Dispatch, DispatchSender
from tests.brokers import BrokerServer, PrivateRabbitMQ
from tests.servers import free_port

DISPATCHES = [Dispatch(f"job-{n}", "shop.grade", 1) for n in range(5)]


@pytest.fixture(params=["confirmed by RabbitMQ", "by Celery's own client"])
def broker(request: pytest.FixtureRequest, rabbitmq_server: BrokerServer) -> str:
    """The address of a broker. A list of addresses is for Celery's own client alone, as is any broker but RabbitMQ."""
    url = rabbitmq_server.url
    return url if request.param == "confirmed by RabbitMQ" else f"{url};{url}"


def declared(broker: str) -> str:
    """Declare a queue as a Celery worker does, and return its name."""
    name = f"fleet-{uuid4().hex}"
    with Connection(broker) as connection:
        Queue(name, routing_key=name)(connection.default_channel).declare()
    return name


@pytest.fixture
def queue(broker: str) -> str:
    return declared(broker)


@pytest.fixture
async def sender(broker: str, queue: str) -> AsyncIterator[DispatchSender]:
    sender = CeleryTransport(broker, queue=queue).open()
    yield sender
    await sender.close()


def received(broker: str, queue: str) -> list[Any]:
    """Take the messages that are in *queue*."""
    with Connection(broker) as connection:
        bound = Queue(queue)(connection.default_channel)
        taken = []
        while (message := bound.get(no_ack=True, accept=["json"])) is not None:
            taken.append(message)
        return taken


async def test_a_dispatch_arrives_as_a_call_of_the_task_with_the_id_of_the_job_alone(
    broker: str, queue: str, sender: DispatchSender
) -> None:
    confirmed = await sender.send("grading", DISPATCHES)

    messages = received(broker, queue)
    assert confirmed == [dispatch.job_id for dispatch in DISPATCHES]
    assert sorted(json.loads(message.body)[0][0] for message in messages) == sorted(confirmed)
    args, kwargs, _ = messages[0].payload
    headers = messages[0].headers
    assert (len(args), kwargs) == (1, {})
    assert (headers["task"], headers["shadow"], headers["root_id"]) == ("holdfast.run", "shop.grade", args[0])
    assert (headers["ignore_result"], messages[0].content_type) == (True, "application/json")
    assert len({message.headers["id"] for message in messages}) == len(messages)


async def test_a_check_names_the_broker_and_its_version(sender: DispatchSender) -> None:
    assert (await sender.check()).startswith("RabbitMQ 3")


async def test_a_sender_that_was_closed_connects_again(sender: DispatchSender) -> None:
    await sender.send("grading", DISPATCHES[:1])
    await sender.close()

    assert await sender.send("grading", DISPATCHES[1:2]) == ["job-1"]


async def test_a_queue_that_no_worker_has_declared_is_named_and_nothing_is_sent(
    rabbitmq_server: BrokerServer,
) -> None:
    sender = CeleryTransport(rabbitmq_server.url, queue="no-such-fleet").open()

    with pytest.raises(
        BrokerUnavailable, match=r"no queue 'no-such-fleet'.*celery -A … worker -Q no-such-fleet"
    ):
        await sender.send("grading", DISPATCHES)
    await sender.close()


@pytest.mark.parametrize("options", ["", "?ssl=0;"])
async def test_a_broker_that_is_away_is_one_clear_line_without_the_password(options: str) -> None:
    sender = CeleryTransport(f"amqp://guest:hidden@127.0.0.1:{free_port()}//{options}").open()

    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1") as caught:
        await sender.send("grading", DISPATCHES)

    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_wrong_password_is_one_clear_line(rabbitmq_server: BrokerServer) -> None:
    wrong = f"amqp://guest:hidden@127.0.0.1:{rabbitmq_server.port}//"
    sender = CeleryTransport(wrong).open()

    with pytest.raises(BrokerUnavailable, match="refused the user or the password") as caught:
        await sender.check()

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("addresses", ["{0}", "{0};{0}"])
async def test_a_sender_goes_on_after_a_restart_of_its_broker(
    addresses: str, private_rabbitmq: PrivateRabbitMQ
) -> None:
    queue = declared(private_rabbitmq.url)
    sender = CeleryTransport(addresses.format(private_rabbitmq.url), queue=queue).open()
    await sender.send("grading", DISPATCHES[:1])

    private_rabbitmq.stop()
    with pytest.raises(BrokerUnavailable):
        await sender.send("grading", DISPATCHES[1:2])
    private_rabbitmq.start()

    assert await sender.send("grading", DISPATCHES[2:3]) == ["job-2"]
    await sender.close()


async def test_a_team_gives_its_app_instead_of_an_address(rabbitmq_server: BrokerServer) -> None:
    app = Celery("team", broker=rabbitmq_server.url, set_as_current=False)
    queue = declared(rabbitmq_server.url)
    sender = CeleryTransport(app, queue=queue, resend=timedelta(seconds=5)).open()

    assert await sender.send("grading", DISPATCHES[:2]) == ["job-0", "job-1"]
    assert len(received(rabbitmq_server.url, queue)) == 2
    await sender.close()
