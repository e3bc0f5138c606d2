"""What is encoded is distinguished from what is not, and a text that cannot be decoded stays as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.envelope import ensure_open, is_encoded, unwrap, wrap
from holdfast.errors import PayloadEncrypted

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)


def backwards(text: str) -> str:
    return text[::-1]


def refuse(text: str) -> str:
    raise LookupError(text)


@given(JSON)
def test_a_text_comes_back_as_it_was(value: object) -> None:
    text = json.dumps(value)

    encoded = wrap(text, backwards)

    assert is_encoded(encoded)
    assert unwrap(encoded, backwards) == text


@given(JSON)
def test_no_json_is_taken_for_an_encoded_text(value: object) -> None:
    text = json.dumps(value)

    assert not is_encoded(text)
    assert unwrap(text, refuse) == text
    ensure_open(text, "the result")


def test_what_cannot_be_decoded_stays_as_it_is_and_is_refused_where_it_is_needed() -> None:
    kept = unwrap("~secret", refuse)

    assert kept == "~secret"
    assert is_encoded(kept)
    with pytest.raises(
        PayloadEncrypted, match=r"^the result is encoded, .* give Holdfast\(codec=…\) the codec"
    ):
        ensure_open(kept, "the result")


@pytest.mark.parametrize("given", ['{"a":1,"a":2}', "no JSON", '[{"b":NaN}]'])
def test_what_a_codec_gives_that_is_no_strict_json_counts_as_not_decoded(given: str) -> None:
    assert unwrap("~x", lambda _: given) == "~x"


def test_nothing_stays_nothing() -> None:
    assert wrap(None, backwards) is None
    assert unwrap(None, backwards) is None
    assert not is_encoded(None)
