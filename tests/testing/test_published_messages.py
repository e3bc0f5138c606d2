"""What the code under test publishes is captured, and leaves the process nowhere."""

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Retryable
from holdfast.core.messages.broker_message import OutgoingMessage
from holdfast.testing import Simulation, inline, simulation


class Greeting(BaseModel):
    """A message about a person."""

    name: str
    language: str = "en"


@pytest.fixture
def sent() -> list[OutgoingMessage]:
    """What reached the broker."""
    return []


@pytest.fixture
def hold(sent: list[OutgoingMessage]) -> Holdfast:
    made = Holdfast("sqlite:///never-opened.db")
    made.broker("local", sent.append)
    made.message("greeting", identity="name", aggregate="name")(Greeting)
    return made


async def test_inline_jobs_capture_what_they_publish(hold: Holdfast, sent: list[OutgoingMessage]) -> None:
    tries: list[int] = []

    @hold.job("greet")
    async def greet(name: str) -> None:
        await hold.publish(Greeting(name=name), headers={"tenant": "a"})
        tries.append(1)
        if len(tries) < 2:
            raise Retryable

    with inline(hold) as ended:
        await greet.submit("Ada")
        await hold.publish(Greeting(name="Bob", language="de"), within=object())

    first, second = ended.published
    assert first.message == Greeting(name="Ada")
    assert (first.type, first.id, first.aggregate, first.headers) == (
        "greeting",
        "Ada",
        "Ada",
        {"tenant": "a"},
    )
    assert second.message == Greeting(name="Bob", language="de")
    assert len(tries) == 2
    assert sent == []


def test_plain_jobs_capture_what_they_publish(hold: Holdfast) -> None:
    @hold.job("greet")
    def greet(name: str) -> None:
        hold.publish_sync(Greeting(name=name))

    with inline(hold) as ended:
        greet.submit_sync("Ada")
        hold.publish_sync(Greeting(name="Bob"), within=object())

    assert [each.message for each in ended.published] == [Greeting(name="Ada"), Greeting(name="Bob")]


def test_a_simulation_captures_what_is_published(hold: Holdfast, sent: list[OutgoingMessage]) -> None:
    @hold.job("greet")
    async def greet(name: str) -> None:
        await hold.publish(Greeting(name=name))

    async def test(sim: Simulation) -> None:
        job = await greet.submit("Ada")
        await job.result()
        await hold.publish(Greeting(name="Bob"))
        await sim.advance("1m")

    with simulation(hold) as sim:
        sim.run(test(sim))

    assert [each.message for each in sim.published] == [Greeting(name="Ada"), Greeting(name="Bob")]
    assert sent == []


async def test_the_outbox_of_a_test_can_be_inspected(hold: Holdfast) -> None:
    with inline(hold):
        await hold.publish(Greeting(name="Ada"))

        assert [message.message_id for message in await hold.outbox.list()] == ["Ada"]
