"""What a message type says about a message: its JSON, its identity, its aggregate."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel

from holdfast.core.messages.broker_message import Route
from holdfast.engine.messages.message_type import LONGEST_ID, MessageType, ensure_paths, value_at
from holdfast.engine.messages.new_message import identity_of, keyed, new_message
from holdfast.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from holdfast.wiring.system import SystemIds


class Callback(BaseModel):
    """A callback, whose names in the JSON differ from those in Python."""

    request_id: str = Field(alias="requestId")
    status: str = "completed"
    attempt: int = 1
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    metadata: dict[str, Any] = {}


ROUTE = Route("rabbitmq", "vstep.exchange", "grading.callback")
CALLBACK = MessageType(
    "grading.callback",
    Callback,
    ROUTE,
    identity=("requestId", "status", "attempt"),
    aggregate_type="Submission",
    aggregate="metadata.submission",
)
PLAIN = MessageType("plain", Callback, ROUTE, aggregate_type="plain")
NEW_ID = SystemIds().job_id()


def a_callback(**fields: Any) -> Callback:
    return Callback(**{"requestId": "r1", "metadata": {"submission": "sub_1"}, **fields})


def test_a_message_is_written_by_the_names_of_its_json() -> None:
    text = CALLBACK.dump(a_callback())

    assert text.startswith('{"requestId":"r1","status":"completed","attempt":1,"at":"2030-01-01T00:00:00Z"')


def test_a_message_that_is_read_is_the_one_that_was_written() -> None:
    message, text = CALLBACK.load(CALLBACK.dump(a_callback(attempt=2)).encode())

    assert message == a_callback(attempt=2)
    assert text == CALLBACK.dump(a_callback(attempt=2))


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("{", "not JSON"),
        (b"\xff", "UTF-8"),
        ('{"requestId": "a", "requestId": "b"}', "twice"),
        ('{"status": "x"}', "does not fit its schema: requestId"),
        ('"text"', "does not fit its schema: it"),
        ('{"requestId": "r", "attempt": "secret"}', "does not fit its schema: attempt$"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_without_quoting_it(body: str | bytes, match: str) -> None:
    with pytest.raises(PayloadInvalid, match=match):
        CALLBACK.load(body)


def test_the_identity_is_made_of_all_declared_fields() -> None:
    ids = {CALLBACK.message_id(CALLBACK.dump(a_callback(requestId="a:b", attempt=n))) for n in (1, 2)}

    assert ids == {"a%3Ab:completed:1", "a%3Ab:completed:2"}
    assert PLAIN.message_id(PLAIN.dump(a_callback())) is None


@pytest.mark.parametrize("missing", ["", "x" * (LONGEST_ID + 1)])
def test_an_identity_that_is_empty_or_too_long_is_refused(missing: str) -> None:
    with pytest.raises(PayloadInvalid, match="identi"):
        CALLBACK.message_id(CALLBACK.dump(a_callback(requestId=missing)))


def test_the_aggregate_may_be_deeper_in_the_json() -> None:
    assert CALLBACK.aggregate_id(CALLBACK.dump(a_callback())) == "sub_1"
    assert PLAIN.aggregate_id(PLAIN.dump(a_callback())) is None
    with pytest.raises(PayloadInvalid, match=r"metadata\.submission"):
        CALLBACK.aggregate_id(CALLBACK.dump(a_callback(metadata={})))


@pytest.mark.parametrize("found", [None, "", {}, []])
def test_what_is_no_text_or_number_identifies_nothing(found: Any) -> None:
    with pytest.raises(PayloadInvalid, match="'a'"):
        value_at({"a": found}, "a", "it")


def test_numbers_and_truth_values_identify_a_message() -> None:
    assert [value_at({"a": value}, "a", "it") for value in (7, True, 1.5, "x")] == ["7", "true", "1.5", "x"]
    with pytest.raises(PayloadInvalid):
        value_at({"a": "text"}, "a.b", "it")


def test_fields_that_an_honest_resend_changes_are_not_in_the_fingerprint() -> None:
    first, again, other = (
        CALLBACK.fingerprint(CALLBACK.dump(a_callback(**fields)))
        for fields in ({}, {"metadata": {"submission": "sub_1", "try": 2}}, {"status": "failed"})
    )

    assert first == again != other


def test_a_payload_that_is_no_object_has_no_fields() -> None:
    class Number(RootModel[int]):
        """A message that is a number."""

    odd = MessageType("odd", Number, ROUTE, identity=("a",))

    with pytest.raises(PayloadInvalid, match="must be a JSON object"):
        odd.message_id(odd.dump(Number(7)))


def test_the_schema_has_the_names_of_the_json() -> None:
    assert "requestId" in CALLBACK.schema()["properties"]


def test_a_path_that_the_model_does_not_have_is_refused() -> None:
    ensure_paths(Callback, ("requestId", "metadata.submission"), "message 'x'")

    with pytest.raises(ConfigError, match="its fields are at, attempt, metadata, requestId, status"):
        ensure_paths(Callback, ("request_id",), "message 'x'")


def test_a_new_message_belongs_to_the_aggregate_that_it_names() -> None:
    declared = new_message(CALLBACK, a_callback(), id=NEW_ID)
    given = new_message(CALLBACK, a_callback(), id=NEW_ID, aggregate="other")
    alone = new_message(PLAIN, a_callback(), id=NEW_ID)

    assert [each.aggregate_id for each in (declared, given, alone)] == ["sub_1", "other", NEW_ID]


def test_a_trace_is_sent_along_unless_the_caller_sets_another() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    traced = new_message(PLAIN, a_callback(), id=NEW_ID, trace=trace)
    own = new_message(PLAIN, a_callback(), id=NEW_ID, trace=trace, headers={"traceparent": "00-b"})

    assert (traced.headers, traced.trace) == (f'{{"traceparent":"{trace}"}}', trace)
    assert own.headers == '{"traceparent":"00-b"}'


def test_a_keyed_message_has_the_same_id_in_every_attempt() -> None:
    first = keyed(new_message(PLAIN, a_callback(), id=NEW_ID), "k", job_id="j")
    again = keyed(new_message(PLAIN, a_callback(), id=SystemIds().job_id()), "k", job_id="j")

    assert first == again
    assert (first.key, first.job_id, first.aggregate_id) == ("k", "j", first.id)
    assert keyed(new_message(CALLBACK, a_callback(), id=NEW_ID), "k", job_id="j").aggregate_id == "sub_1"


def test_messages_of_a_job_differ_by_their_identity_or_by_what_they_say() -> None:
    def identity(message_type: MessageType, **fields: Any) -> str:
        return identity_of(message_type, new_message(message_type, a_callback(**fields), id=NEW_ID))

    later = datetime(2031, 1, 1, tzinfo=UTC)
    assert identity(CALLBACK) == identity(CALLBACK, at=later) != identity(CALLBACK, attempt=2)
    assert identity(PLAIN) != identity(PLAIN, at=later)


def test_a_message_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        new_message(CALLBACK, a_callback(metadata={"submission": "s" * 1_000_001}), id=NEW_ID)
