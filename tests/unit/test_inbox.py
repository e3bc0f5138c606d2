"""Which messages are accepted, and what is stored of those that are not."""

import json
from typing import Any

import pytest

from holdfast.core.failures.failure import ErrorClass
from holdfast.core.messages.broker_message import IncomingMessage
from holdfast.core.messages.dead_message import CONSUME
from holdfast.core.messages.inbox import (
    LARGEST_STORED,
    MOST_HEADERS,
    EarlierMessage,
    InboxAnswer,
    InboxItem,
    InboxOutcome,
    Received,
    ReceivedAs,
    RefusalReason,
    body_from,
    compare,
    dead_message,
    first_routing_key,
    refusal_of_envelope,
    refuse,
    refused_id,
    storable_id,
    stored_body,
    stored_headers,
    trace_of,
)
from tests.builders import a_job

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_message(sent: bytes = b"{}", **fields: Any) -> IncomingMessage:
    return IncomingMessage("grading.request", sent, **fields)


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "Application/JSON", "application/json; charset=utf-8"]
)
def test_a_message_that_is_json_or_does_not_say_what_it_is_may_be_decoded(content_type: str | None) -> None:
    assert refusal_of_envelope(a_message(content_type=content_type), version=1) is None


@pytest.mark.parametrize(
    "content_type", ["application/x-python-serialize", "text/json", "application/jsonlines", "pickle"]
)
def test_another_content_type_is_refused(content_type: str) -> None:
    refusal = refusal_of_envelope(a_message(content_type=content_type), version=1)

    assert refusal is not None
    assert refusal.reason is RefusalReason.CONTENT_TYPE
    assert not refusal.failure.retryable


def test_a_body_may_have_as_many_bytes_as_the_limit_and_no_more() -> None:
    assert refusal_of_envelope(a_message(b"x" * 10), version=1, limit=10) is None
    refusal = refusal_of_envelope(a_message(b"x" * 11), version=1, limit=10)

    assert refusal is not None
    assert (refusal.reason, refusal.failure.error_class) == (RefusalReason.TOO_LARGE, ErrorClass.TOO_LARGE)
    assert "11 bytes, the limit is 10" in refusal.failure.message


@pytest.mark.parametrize(
    ("header", "version", "accepted"),
    [
        (None, 1, True),
        (None, 2, False),
        (2, 2, True),
        ("2", 2, True),
        (b"2", 2, True),
        (2, 1, False),
        ("two", 2, False),
        ("", 1, False),
        ("9" * 10, 1, False),
        ("²", 2, False),
        ([1], 1, False),
    ],
)
def test_a_version_is_known_or_refused(header: object, version: int, *, accepted: bool) -> None:
    headers = {} if header is None else {"x-message-version": header}

    refusal = refusal_of_envelope(a_message(headers=headers), version=version)

    assert (refusal is None) is accepted


def test_letters_of_one_reason_and_queue_are_a_group() -> None:
    one = refuse(RefusalReason.MALFORMED, a_message(), "it is not JSON")
    same = refuse(RefusalReason.MALFORMED, a_message(b"{"), "it has a key twice")
    other = refuse(RefusalReason.SCHEMA, a_message(), "it is not JSON")

    assert one.failure.fingerprint == same.failure.fingerprint != other.failure.fingerprint
    assert not refuse(RefusalReason.CONFLICT, a_message(), "no").failure.retryable
    assert one.failure.context == {"reason": "malformed", "queue": "grading.request"}


def test_the_same_bytes_are_one_refused_message() -> None:
    assert refused_id(a_message(b"{")) == refused_id(a_message(b"{", id="m-1"))
    assert refused_id(a_message(b"{")) != refused_id(a_message(b"}"))


@pytest.mark.parametrize(
    ("found", "kept"), [("m-1", "m-1"), ("", None), (None, None), (5, None), ("a\0", None), ("a" * 201, None)]
)
def test_an_id_is_kept_that_every_store_can_hold(found: object, kept: str | None) -> None:
    assert storable_id(found) == kept


@pytest.mark.parametrize(
    ("header", "trace"),
    [(TRACE, TRACE), (TRACE.encode(), TRACE), ("trace-77", None), (None, None), (7, None)],
)
def test_only_a_w3c_trace_is_continued(header: object, trace: str | None) -> None:
    assert trace_of(a_message(headers={"traceparent": header})) == trace


def test_a_body_is_stored_as_text_or_as_base64_and_comes_back_as_it_was() -> None:
    for sent in (b'{"n":1}', "é".encode(), b"\x80\x04", b"a\0b"):
        text, encoding, truncated = stored_body(sent)

        assert not truncated
        assert body_from(text, encoding) == sent
        assert "\0" not in text


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_text_that_is_cut_within_a_character_stays_a_text(offset: int) -> None:
    sent = b"x" * offset + "€".encode() * LARGEST_STORED

    text, encoding, truncated = stored_body(sent)

    assert (encoding, truncated) == ("utf-8", True)
    assert text == "x" * offset + "€" * ((LARGEST_STORED - offset) // 3)


def test_a_large_binary_body_is_cut_too() -> None:
    text, encoding, truncated = stored_body(b"\xff" * (LARGEST_STORED + 1))

    assert (encoding, truncated) == ("base64", True)
    assert len(body_from(text, encoding)) == LARGEST_STORED


def test_headers_are_stored_as_short_texts_and_tables_are_left_out() -> None:
    many = {f"x-{number}": number for number in range(MOST_HEADERS + 5)}

    kept = stored_headers({"a": b"b", "n": 1, "table": {"x": 1}, "list": [1], "nul": "\0", "": "x"})

    assert kept == {"a": "b", "n": "1"}
    assert len(stored_headers(many)) == MOST_HEADERS
    assert stored_headers({"long": "x" * 1_000}) == {"long": "x" * 500}


@pytest.mark.parametrize(
    ("death", "key"),
    [
        ([{"routing-keys": ["retry"]}, {"routing-keys": [b"first"]}], "first"),
        ([{"routing-keys": []}], ""),
        ([{}], ""),
        (["odd"], ""),
        ([], ""),
        (None, ""),
        ([{"routing-keys": [5]}], ""),
    ],
)
def test_the_first_routing_key_is_that_of_the_oldest_death(death: Any, key: str) -> None:
    assert first_routing_key({"x-death": death}) == key


def test_a_dead_message_has_what_its_consumer_needs_to_receive_it_again() -> None:
    message = a_message(b"{", id="m-1", headers={"traceparent": TRACE})

    dead = dead_message("job", "grading", message, refuse(RefusalReason.MALFORMED, message, "it is not JSON"))

    assert (dead.id, dead.name, dead.trace) == ("job", CONSUME, TRACE)
    assert json.loads(dead.args) == {
        "consumer": "grading",
        "body": "{",
        "encoding": "utf-8",
        "truncated": False,
        "message_id": "m-1",
        "headers": {"traceparent": TRACE},
        "routing_key": "",
    }


def test_a_received_message_names_its_reason() -> None:
    refusal = refuse(RefusalReason.VERSION, a_message(), "no")

    assert Received(ReceivedAs.REFUSED, refusal=refusal).reason is RefusalReason.VERSION
    assert Received(ReceivedAs.NEW).reason is None


# Messages of one batch.


def an_item(message_id: str = "m-1", print_of: str = "p") -> InboxItem:
    return InboxItem(message_id, print_of, a_job(key=message_id))


def test_a_message_with_the_job_of_this_very_batch_was_written_by_an_earlier_try() -> None:
    item = an_item()

    assert compare(item, EarlierMessage("p", item.job_id)).outcome is InboxOutcome.NEW
    assert compare(item, EarlierMessage("p", "other")) == InboxAnswer(InboxOutcome.REPEATED, "other")
    assert compare(item, EarlierMessage("q", "other")) == InboxAnswer(InboxOutcome.CONFLICT, "other")
    assert compare(InboxItem("m-1", "p"), EarlierMessage("p")) == InboxAnswer(InboxOutcome.REPEATED)
