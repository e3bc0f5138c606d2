"""A published message is stored completely or not at all, once, and as its type says."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Retryable
from holdfast.core.messages.outbox import MessageFilter, OutboxMessage
from holdfast.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from holdfast.telemetry.metric_registry import MetricRegistry
from tests.contract.conftest import Logger
from tests.contract.messages import GradingRequest, declare_request
from tests.contract.steps import TIMEOUT


async def stored(hold: Holdfast) -> list[OutboxMessage]:
    """Give the messages of the outbox, the oldest first."""
    return (await hold.outbox.list(MessageFilter(limit=1_000)))[::-1]


@pytest.mark.clause("OUT-2")
async def test_a_message_is_stored_as_its_type_says(hold: Holdfast) -> None:
    declare_request(hold)

    message_id = await hold.publish(GradingRequest(requestId="r 1", submissionId="sub_7"))

    [message] = await stored(hold)
    assert (message_id, message.message_id) == ("r%201", "r%201")
    assert (message.message_type, message.aggregate_type, message.aggregate_id) == (
        "grading.request",
        "Submission",
        "sub_7",
    )
    assert json.loads(message.payload) == {"requestId": "r 1", "submissionId": "sub_7", "metadata": {}}
    assert (message.status, message.retry_count, json.loads(message.headers)) == ("pending", 0, {})


async def test_the_caller_may_name_the_aggregate_and_add_headers(hold: Holdfast) -> None:
    declare_request(hold)

    await hold.publish(GradingRequest(requestId="r1"), aggregate="elsewhere", headers={"tenant": "a"})

    [message] = await stored(hold)
    assert message.aggregate_id == "elsewhere"
    assert json.loads(message.headers) == {"tenant": "a"}


async def test_a_version_above_one_travels_in_a_header(hold: Holdfast) -> None:
    declare_request(hold, version=2)

    await hold.publish(GradingRequest(requestId="r1"))

    [message] = await stored(hold)
    assert json.loads(message.headers) == {"x-message-version": "2"}


async def test_a_type_without_identity_and_aggregate_makes_every_message_its_own(hold: Holdfast) -> None:
    class Ping(BaseModel):
        at: int

    hold.broker("local", print)
    hold.message("ping")(Ping)

    ids = [await hold.publish(Ping(at=1)), await hold.publish(Ping(at=1))]

    found = await stored(hold)
    assert [message.id for message in found] == ids
    assert len({message.aggregate_id for message in found}) == 2


async def test_concurrent_publications_are_stored_in_their_order(hold: Holdfast) -> None:
    declare_request(hold)

    await asyncio.gather(*(hold.publish(GradingRequest(requestId=str(number))) for number in range(200)))

    assert [message.message_id for message in await stored(hold)] == [str(number) for number in range(200)]


class Undeclared(BaseModel):
    """A model that no decorator has declared."""


REFUSED: dict[str, tuple[BaseModel, dict[str, Any], type[Exception]]] = {
    "undeclared": (Undeclared(), {}, ConfigError),
    "long aggregate": (GradingRequest(requestId="r", submissionId="s" * 65), {}, PayloadInvalid),
    "empty aggregate": (GradingRequest(requestId="r"), {"aggregate": ""}, PayloadInvalid),
    "aggregate that is no text": (GradingRequest(requestId="r"), {"aggregate": 7}, PayloadInvalid),
    "NUL in the aggregate": (GradingRequest(requestId="r"), {"aggregate": "a\0"}, PayloadInvalid),
    "NUL in the payload": (GradingRequest(requestId="a\0b"), {}, PayloadInvalid),
    "no identity": (GradingRequest(requestId=""), {}, PayloadInvalid),
    "long identity": (GradingRequest(requestId="r" * 201), {}, PayloadInvalid),
    "oversized": (GradingRequest(requestId="r", metadata={"x": "y" * 1_000_001}), {}, PayloadTooLarge),
    "header that is no text": (GradingRequest(requestId="r"), {"headers": {"n": 1}}, PayloadInvalid),
    "oversized headers": (
        GradingRequest(requestId="r"),
        {"headers": {"n": "x" * 20_000}},
        PayloadTooLarge,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_bad_input_is_a_clear_error_and_nothing_is_stored(hold: Holdfast, name: str) -> None:
    declare_request(hold)
    message, options, error = REFUSED[name]

    with pytest.raises(error):
        await hold.publish(message, **options)

    assert await stored(hold) == []


@pytest.mark.clause("OUT-1")
async def test_a_job_that_runs_again_publishes_nothing_twice(hold: Holdfast) -> None:
    declare_request(hold)
    runs: list[list[str]] = []

    @hold.job("announce")
    async def announce() -> None:
        ids = [
            await hold.publish(GradingRequest(requestId="r1", metadata={"try": len(runs)})),
            await hold.publish(GradingRequest(requestId="r1")),
            await hold.publish(GradingRequest(requestId="r2")),
        ]
        runs.append(ids)
        if len(runs) < 3:
            raise Retryable

    job = await announce.submit()
    async with hold.worker(poll=0.05):
        await job.result(timeout=TIMEOUT)

    found = await stored(hold)
    assert [message.message_id for message in found] == ["r1", "r1", "r2"]
    assert {message.job_id for message in found} == {job.id}
    assert runs[0] == runs[1] == runs[2]


async def test_two_jobs_publish_the_same_message_each(hold: Holdfast) -> None:
    declare_request(hold)

    @hold.job("announce")
    def announce(number: int) -> None:
        hold.publish_sync(GradingRequest(requestId="r1"))

    jobs = [await announce.submit(number) for number in range(2)]
    async with hold.worker(poll=0.05):
        for job in jobs:
            await job.result(timeout=TIMEOUT)

    assert len(await stored(hold)) == 2


async def test_plain_code_publishes_without_an_event_loop(hold: Holdfast) -> None:
    declare_request(hold)

    message_id = await asyncio.to_thread(hold.publish_sync, GradingRequest(requestId="r1"))

    assert [message.message_id for message in await stored(hold)] == [message_id]
    hold.close_sync()


async def test_publishing_is_counted(hold: Holdfast) -> None:
    declare_request(hold)

    await hold.publish(GradingRequest(requestId="r1"))

    metrics = hold.runtime.metrics
    assert isinstance(metrics, MetricRegistry)
    assert metrics.value("messages_stored") == 1


async def test_an_operator_retries_and_skips_with_a_reason(hold: Holdfast, logger: Logger) -> None:
    declare_request(hold)
    await hold.publish(GradingRequest(requestId="r1"))
    [message] = await stored(hold)

    retried = await hold.outbox.retry([message.id], actor="kim", reason="none has failed")
    skipped = await hold.outbox.skip([message.id], actor="kim", reason="a test")

    assert (retried, skipped) == ([], [message.id])
    after = await hold.outbox.show(message.id)
    assert after.note is not None
    assert (after.note["action"], after.note["actor"], after.note["reason"]) == ("skipped", "kim", "a test")
    [line] = logger.lines("messages skipped")
    assert (line["actor"], line["reason"], line["messages"]) == ("kim", "a test", 1)
    assert logger.lines("messages retried") == []
    assert (await hold.outbox.stats()).pending == 0
    assert await hold.outbox.routes() == []
    assert await hold.outbox.unblock("rabbitmq/x/y", actor="kim") is None
