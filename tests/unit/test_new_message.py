"""What the application publishes becomes a message that the outbox can hold, or is refused with what is wrong."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.core.messages.broker_message import Route
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.messages.new_message import Aggregate, new_message
from holdfast.errors import PayloadInvalid

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Graded(BaseModel):
    request_id: str
    submission: str | None = None
    score: float = 7.5


def a_type(**options: Any) -> MessageType:
    given = {"name": "graded", "model": Graded, "aggregate_type": "Submission", **options}
    return MessageType(route=Route("rabbitmq", "exchange", "graded"), **given)


def test_a_message_has_the_aggregate_and_the_identity_that_its_type_declares() -> None:
    declared = a_type(identity=("request_id",), aggregate="submission")

    made = new_message(declared, Graded(request_id="r1", submission="s1"), id="m1", key="k", job_id="j1")

    assert (made.aggregate_type, made.aggregate_id) == ("Submission", "s1")
    assert (made.id, made.message_type, made.message_id, made.key, made.job_id) == (
        "m1",
        "graded",
        "r1",
        "k",
        "j1",
    )
    assert json.loads(made.payload) == {"request_id": "r1", "submission": "s1", "score": 7.5}


def test_a_given_aggregate_comes_before_the_declared_one_and_the_job_last() -> None:
    declared, message = a_type(aggregate="submission"), Graded(request_id="r1", submission="s1")
    job = Aggregate("grade", "j1")

    given = new_message(declared, message, id="m1", aggregate="s2", otherwise=job)
    of_job = new_message(a_type(), message, id="m1", otherwise=job)

    assert (given.aggregate_type, given.aggregate_id) == ("Submission", "s2")
    assert (of_job.aggregate_type, of_job.aggregate_id) == ("grade", "j1")


@pytest.mark.parametrize("aggregate", ["", "s" * 65], ids=["empty", "too long"])
def test_an_aggregate_that_the_outbox_cannot_hold_is_refused(aggregate: str) -> None:
    with pytest.raises(PayloadInvalid, match="aggregate"):
        new_message(a_type(), Graded(request_id="r1"), id="m1", aggregate=aggregate)


def test_a_payload_that_is_no_strict_json_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match="graded"):
        new_message(a_type(), Graded(request_id="r1\x00"), id="m1", aggregate="s1")


@pytest.mark.parametrize(
    ("version", "trace", "headers"),
    [
        (1, None, {}),
        (2, None, {"x-message-version": "2"}),
        (1, TRACE, {"traceparent": TRACE}),
        (1, "trace-of-another-kind", {}),
    ],
)
def test_the_headers_have_a_later_version_and_the_trace(
    version: int, trace: str | None, headers: dict[str, str]
) -> None:
    made = new_message(a_type(version=version), Graded(request_id="r1"), id="m", aggregate="s", trace=trace)

    assert json.loads(made.headers) == headers
    assert made.trace == trace
