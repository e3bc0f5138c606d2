"""What a consumer accepts, and what it refuses: every message is stored, as a job or as a dead letter."""

import json
import pickle
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.core.errors import Permanent, Retryable
from holdfast.core.messages.inbox import LARGEST_STORED, ReceivedAs, RefusalReason
from holdfast.types import Delivery
from tests.contract.conftest import Logger
from tests.contract.consumers import QUEUE, Application, GradingRequest, body
from tests.contract.steps import TIMEOUT

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def app(hold: Holdfast) -> Application:
    """An application with a consumer."""
    made = Application(hold)
    made.consume()
    return made


async def test_a_message_makes_a_job_with_its_id_as_the_key(app: Application, hold: Holdfast) -> None:
    received = await app.receive(body("r-7", text="an essay"))

    assert received.outcome is ReceivedAs.NEW
    assert received.job_id is not None
    job = await hold.read(received.job_id)
    assert json.loads(job.args) == {"request_id": "r-7", "text": "an essay"}
    assert await hold.runtime.store.keys_of([job.id]) == {job.id: "r-7"}


async def test_the_job_of_a_message_runs(app: Application, hold: Holdfast) -> None:
    received = await app.receive(body("r-7", text="an essay"))

    async with hold.worker():
        job = await hold.wait(received.job_id or "", timeout=TIMEOUT)

    assert hold.load_result(job) == "r-7: an essay"


@pytest.mark.clause("OUT-5")
async def test_an_honest_repetition_may_differ_in_its_metadata(app: Application) -> None:
    first = await app.receive(body(metadata={"sentAt": "10:00"}))

    again = await app.receive(body(metadata={"sentAt": "10:05"}))

    assert (again.outcome, again.job_id, again.status) == (ReceivedAs.REPEATED, first.job_id, Status.QUEUED)
    assert len(await app.jobs()) == 1


async def test_another_payload_under_the_same_id_is_a_dead_letter_and_the_original_stands(
    app: Application,
) -> None:
    await app.receive(body(text="one"))

    refused = await app.receive(body(text="two"))

    assert (refused.outcome, refused.reason) == (ReceivedAs.REFUSED, RefusalReason.CONFLICT)
    [letter] = await app.letters()
    assert letter.job_id == refused.job_id
    assert letter.failure.context["reason"] == "conflict"
    assert len(await app.jobs()) == 1


UNPICKLED: list[str] = []


class Poison:
    """Records that it was unpickled."""

    def __reduce__(self) -> Any:
        return record_unpickling, ()


def record_unpickling() -> None:
    UNPICKLED.append("unpickled")


REFUSED = {
    "no JSON": (b"{", {}, RefusalReason.MALFORMED),
    "a key twice": (b'{"requestId": "a", "requestId": "b"}', {}, RefusalReason.MALFORMED),
    "not UTF-8": (b'{"requestId": "\xff"}', {}, RefusalReason.MALFORMED),
    "UTF-16": ('{"requestId": "a"}'.encode("utf-16"), {}, RefusalReason.MALFORMED),
    "NaN": (b'{"requestId": "a", "text": NaN}', {}, RefusalReason.MALFORMED),
    "nested too deeply": (b"[" * 100_000, {}, RefusalReason.MALFORMED),
    "empty": (b"", {}, RefusalReason.MALFORMED),
    "too large": (body(text="x" * 1_000_000), {}, RefusalReason.TOO_LARGE),
    "a pickle": (
        pickle.dumps(Poison()),
        {"content_type": "application/x-python-serialize"},
        RefusalReason.CONTENT_TYPE,
    ),
    "a pickle that says nothing": (
        pickle.dumps(Poison()),
        {"content_type": None},
        RefusalReason.MALFORMED,
    ),
    "text": (body(), {"content_type": "text/plain"}, RefusalReason.CONTENT_TYPE),
    "a list": (b"[]", {}, RefusalReason.SCHEMA),
    "another type": (body("a", text=5), {}, RefusalReason.SCHEMA),
    "a NUL": (body("a", text="\0"), {}, RefusalReason.SCHEMA),
    "no identity": (b'{"requestId": ""}', {}, RefusalReason.IDENTITY),
    "a long identity": (body("a" * 300), {}, RefusalReason.IDENTITY),
    "another version": (body(), {"headers": {"x-message-version": 2}}, RefusalReason.VERSION),
    "no version": (body(), {"headers": {"x-message-version": "new"}}, RefusalReason.VERSION),
}


@pytest.mark.parametrize(("sent", "fields", "reason"), REFUSED.values(), ids=list(REFUSED))
async def test_what_cannot_be_accepted_is_a_dead_letter_with_its_reason(
    app: Application, logger: Logger, sent: bytes, fields: dict[str, Any], reason: RefusalReason
) -> None:
    received = await app.receive(sent, **fields)

    assert (received.outcome, received.reason) == (ReceivedAs.REFUSED, reason)
    [letter] = await app.letters()
    assert (letter.name, letter.failure.context["reason"]) == ("holdfast.consume", reason)
    assert letter.failure.context["queue"] == QUEUE
    [line] = logger.lines("message refused")
    assert (line["reason"], line["job_id"]) == (reason, letter.job_id)
    assert await app.jobs() == []


async def test_a_pickle_is_never_unpickled(app: Application) -> None:
    for content_type in ("application/x-python-serialize", "application/json", None):
        await app.receive(pickle.dumps(Poison()), content_type=content_type)

    assert UNPICKLED == []
    pickle.loads(pickle.dumps(Poison()))
    assert UNPICKLED.pop() == "unpickled"


async def test_a_message_of_another_version_is_accepted_where_that_is_declared(hold: Holdfast) -> None:
    app = Application(hold, version=2)
    app.consume()

    received = await app.receive(body(), headers={"x-message-version": b"2"})
    refused = await app.receive(body("r-2"))

    assert received.outcome is ReceivedAs.NEW
    assert refused.reason is RefusalReason.VERSION


async def test_a_refused_message_keeps_its_raw_body(app: Application, hold: Holdfast) -> None:
    text = await app.receive(b'{"requestId": 5}', message_id="m-1", headers={"x-tenant": b"acme"})
    binary = await app.receive(b"\x80\x00")
    large = await app.receive(b"x" * 1_000_001)

    args = [json.loads((await hold.read(one.job_id or "")).args) for one in (text, binary, large)]
    assert (args[0]["body"], args[0]["message_id"]) == ('{"requestId": 5}', "m-1")
    assert args[0]["headers"] == {"x-tenant": "acme"}
    assert (args[1]["body"], args[1]["encoding"]) == ("gAA=", "base64")
    assert (len(args[2]["body"]), args[2]["truncated"]) == (LARGEST_STORED, True)


async def test_a_refused_message_that_is_delivered_again_is_one_dead_letter(app: Application) -> None:
    first = await app.receive(b"{")
    again = await app.receive(b"{")

    assert again.job_id == first.job_id
    assert len(await app.letters()) == 1


async def test_no_value_of_a_refused_body_is_logged(app: Application, logger: Logger) -> None:
    await app.receive(b'{"requestId": {"secret": "hunter2"}}')

    assert "hunter2" not in logger.stream.getvalue()


async def test_a_validator_that_raises_anything_refuses_its_message(hold: Holdfast) -> None:
    app = Application(hold)

    class Broken(GradingRequest):
        def model_post_init(self, _: object) -> None:
            raise ZeroDivisionError("of no use")

    hold.message("broken", identity="requestId")(Broken)
    hold.consumer(Broken, queue=QUEUE)(app.take)

    received = await app.receive(body())

    assert received.reason is RefusalReason.SCHEMA


# The consumer's function.


async def test_a_function_that_asks_for_nothing_records_the_message(hold: Holdfast) -> None:
    app, seen = Application(hold), []
    app.consume(lambda request: seen.append(request.requestId))

    received = [await app.receive(body("r-1")), await app.receive(body("r-1"))]

    assert [one.outcome for one in received] == [ReceivedAs.NEW, ReceivedAs.REPEATED]
    assert await app.jobs() == []


async def test_an_async_function_is_awaited(hold: Holdfast) -> None:
    app = Application(hold)

    async def take(request: GradingRequest) -> Any:
        return app.grade.options(priority=5).call(request.requestId, "async")

    app.consume(take)

    received = await app.receive(body())

    assert (await hold.read(received.job_id or "")).priority == 5


async def test_a_trace_is_continued_and_other_trace_ids_are_left_alone(
    app: Application, hold: Holdfast
) -> None:
    w3c = await app.receive(body("r-1"), headers={"traceparent": TRACE.encode()})
    other = await app.receive(body("r-2"), headers={"traceparent": "trace-77"})

    assert (await hold.read(w3c.job_id or "")).trace == TRACE
    assert (await hold.read(other.job_id or "")).trace is None


async def test_a_function_that_fails_for_good_makes_a_dead_letter_at_once(hold: Holdfast) -> None:
    app = Application(hold)

    def take(_: GradingRequest) -> Any:
        raise Permanent("this tenant is gone")

    app.consume(take)

    received = await app.receive(body())

    assert (received.outcome, received.reason) == (ReceivedAs.REFUSED, RefusalReason.CONSUMER_FAILED)
    [letter] = await app.letters()
    assert "this tenant is gone" in letter.failure.message


async def test_a_function_whose_failure_may_pass_postpones_its_message(
    hold: Holdfast, logger: Logger
) -> None:
    app = Application(hold)

    def take(_: GradingRequest) -> Any:
        raise Retryable("the tenant's database is away")

    app.consume(take)

    received = await app.receive(body())

    assert received.outcome is ReceivedAs.POSTPONED
    assert await app.letters() == []
    assert [line["message_id"] for line in logger.lines("message postponed")] == ["r-1"]


async def test_a_function_that_raises_for_a_repeated_message_changes_nothing(hold: Holdfast) -> None:
    app, calls = Application(hold), []

    def take(request: GradingRequest) -> Any:
        calls.append(request)
        if len(calls) > 1:
            raise Permanent("this submission is graded already")
        return app.take(request)

    app.consume(take)
    first = await app.receive(body())

    again = await app.receive(body())

    assert (again.outcome, again.job_id) == (ReceivedAs.REPEATED, first.job_id)
    assert await app.letters() == []


@pytest.mark.parametrize("wrong", ["a text", 5])
async def test_a_function_that_returns_something_else_is_a_failure_of_its_message(
    hold: Holdfast, wrong: Any
) -> None:
    app = Application(hold)
    app.consume(lambda _: wrong)

    received = await app.receive(body())

    assert received.reason is RefusalReason.CONSUMER_FAILED


async def test_a_call_with_a_key_of_its_own_is_refused(hold: Holdfast) -> None:
    app = Application(hold)
    app.consume(lambda request: app.grade.options(key="mine").call(request.requestId, ""))

    received = await app.receive(body())

    assert received.reason is RefusalReason.CONSUMER_FAILED
    assert await app.jobs() == []


async def test_a_function_with_a_delivery_is_called_for_new_messages_only(hold: Holdfast) -> None:
    app = Application(hold)
    seen: list[Delivery] = []

    def take(request: GradingRequest, delivery: Delivery) -> Any:
        seen.append(delivery)
        return app.take(request)

    app.consume(take)
    for _ in range(3):
        await app.receive(body(), headers={"x-tenant": "acme", "traceparent": TRACE})

    [delivery] = seen
    assert (delivery.message_id, delivery.trace, delivery.redelivered) == ("r-1", TRACE, False)
    assert delivery.headers["x-tenant"] == "acme"
    assert delivery.connection is not None
