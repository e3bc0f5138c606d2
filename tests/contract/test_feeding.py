"""Messages that are fed to a consumer directly, and calls of jobs that are stored later."""

import pytest
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.core.errors import ConfigError, PayloadInvalid
from holdfast.types import Delivery, JobCall, ReceivedAs, RefusalReason
from tests.contract.consumers import QUEUE, Application, GradingRequest
from tests.contract.steps import TIMEOUT


@pytest.fixture
def app(hold: Holdfast) -> Application:
    """An application with a consumer."""
    made = Application(hold)
    made.consume()
    return made


async def test_a_message_is_fed_as_a_model_as_fields_or_as_a_body(app: Application, hold: Holdfast) -> None:
    forms = (
        GradingRequest(requestId="r-1"),
        {"requestId": "r-2"},
        '{"requestId": "r-3"}',
        b'{"requestId": "r-4"}',
    )

    received = [await hold.feed(GradingRequest, form) for form in forms]

    assert [one.outcome for one in received] == [ReceivedAs.NEW] * 4
    assert [one.message_id for one in received] == ["r-1", "r-2", "r-3", "r-4"]


async def test_what_is_fed_takes_the_path_of_a_received_message(app: Application, hold: Holdfast) -> None:
    first = await hold.feed(GradingRequest, {"requestId": "r-1"})
    again = await hold.feed(GradingRequest, {"requestId": "r-1"}, queue=QUEUE)
    refused = await hold.feed(GradingRequest, "{", message_id="m-1", headers={"x-tenant": "acme"})

    assert (again.outcome, again.job_id) == (ReceivedAs.REPEATED, first.job_id)
    assert refused.reason is RefusalReason.MALFORMED
    assert [letter.job_id for letter in await app.letters()] == [refused.job_id]


async def test_only_a_consumer_that_is_declared_is_fed(hold: Holdfast) -> None:
    app = Application(hold)

    with pytest.raises(ConfigError, match="feed\\(\\) needs one consumer of GradingRequest"):
        await hold.feed(GradingRequest, {})
    app.consume()
    with pytest.raises(ConfigError, match="on the queue 'other'"):
        await hold.feed(GradingRequest, {}, queue="other")
    with pytest.raises(ConfigError, match="BaseModel is not declared as a message"):
        await hold.feed(BaseModel, {})


async def test_a_call_is_checked_when_it_is_made_and_stored_when_it_is_submitted(hold: Holdfast) -> None:
    app = Application(hold)

    call = app.grade.options(key="once").call("r-1", "an essay")

    assert isinstance(call, JobCall)
    assert await app.jobs() == []
    handle, again = await call.submit(), await call.submit()
    assert handle.id == again.id
    async with hold.worker():
        assert await handle.result(timeout=TIMEOUT) == "r-1: an essay"
    with pytest.raises(PayloadInvalid):
        app.grade.call("r-1", 5)  # type: ignore[arg-type]  # refused at once


@pytest.mark.parametrize("prefetch", [0, 70_000, "many", True])
def test_a_prefetch_is_a_number_that_a_broker_takes(hold: Holdfast, prefetch: int) -> None:
    app = Application(hold)

    with pytest.raises(ConfigError, match="prefetch"):
        hold.consumer(GradingRequest, queue=QUEUE, prefetch=prefetch)(app.take)


def test_a_consumer_takes_a_message_or_a_message_and_its_delivery(hold: Holdfast) -> None:
    Application(hold)

    def takes_three(_: GradingRequest, __: Delivery, ___: int) -> None:
        """Take more than there is."""

    for wrong in (takes_three, lambda: None, 5):
        with pytest.raises(
            ConfigError, match=r"give it a function of \(message\) or of \(message, delivery\)"
        ):
            hold.consumer(GradingRequest, queue=QUEUE)(wrong)  # type: ignore[arg-type]  # refused when it is declared
    assert hold._registry.consumers == {}


def test_a_consumer_needs_a_declared_message(hold: Holdfast) -> None:
    hold.broker("rabbitmq", "amqp://localhost")

    with pytest.raises(ConfigError, match="GradingRequest is not declared as a message"):
        hold.consumer(GradingRequest, queue=QUEUE)(lambda _: None)
