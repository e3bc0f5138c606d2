"""Messages that a user's test feeds to a consumer."""

from typing import Any

from pydantic import BaseModel

from holdfast import Holdfast, Status
from holdfast.testing import inline, simulation
from holdfast.types import Delivery, JobCall, ReceivedAs

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db")
rabbit = hold.broker("rabbitmq", "amqp://nowhere.invalid")


@hold.message("request", identity="id", broker=rabbit)
class Request(BaseModel):
    """A message of another system."""

    id: str


@hold.job("greet")
async def greet(name: str) -> str:
    return f"hello {name}"


@hold.consumer(Request, queue="requests")
def take(request: Request, delivery: Delivery) -> JobCall[Any]:
    delivery.connection.execute("SELECT 1")
    return greet.call(request.id)


async def test_the_job_of_a_message_has_run_when_it_was_fed_inline() -> None:
    with inline(hold) as ended:
        received = await hold.feed(Request, Request(id="ann"))
        again = await hold.feed(Request, {"id": "ann"})

    assert (received.outcome, again.outcome) == (ReceivedAs.NEW, ReceivedAs.REPEATED)
    assert again.status is Status.COMPLETED
    assert [hold.load_result(job) for job in ended] == ["hello ann"]


def test_a_message_is_fed_inline_without_an_event_loop() -> None:
    with inline(hold) as ended:
        hold.feed_sync(Request, {"id": "bob"})

    assert [hold.load_result(job) for job in ended] == ["hello bob"]


def test_a_message_is_fed_in_a_simulation() -> None:
    async def scenario() -> Any:
        async with hold.worker():
            received = await hold.feed(Request, {"id": "cy"})
            return hold.load_result(await hold.wait(received.job_id or ""))

    with simulation(hold, seed=1) as world:
        assert world.run(scenario()) == "hello cy"
