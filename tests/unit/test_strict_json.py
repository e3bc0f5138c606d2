"""Strict JSON: what is encoded, in which form, and what is refused in which words."""

import importlib.util
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import strict_json
from holdfast.core.errors import PayloadInvalid, PayloadTooLarge
from holdfast.core.strict_json import DEFAULT_LIMIT, MAX_DEPTH, decode, encode, ensure_storable, fingerprint

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=20,
)


class Colour(Enum):
    """A word that JSON does not know."""

    RED = "red"


class Size(StrEnum):
    """A word that is text already."""

    LARGE = "large"


@dataclass
class Point:
    """Something with fields."""

    x: int
    at: date


def nested(depth: int, value: Any = "core") -> Any:
    for number in range(depth):
        value = [value] if number % 2 else {"inner": value}
    return value


@given(JSON)
def test_what_json_knows_comes_back_as_it_was(value: Any) -> None:
    assert json.loads(encode(value, what="argument")) == value


def test_text_is_written_without_spaces_and_keys_keep_their_order() -> None:
    assert encode({"b": [1, 2.5, None], "a": "é"}, what="argument") == '{"b":[1,2.5,null],"a":"é"}'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (datetime(2024, 2, 29, 12, 30, tzinfo=UTC), "2024-02-29T12:30:00+00:00"),
        (date(2024, 2, 29), "2024-02-29"),
        (time(12, 30), "12:30:00"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("0.10"), "0.10"),
        (PurePosixPath("a/b.pdf"), "a/b.pdf"),
        (timedelta(seconds=1.5), 1.5),
        (Colour.RED, "red"),
        (Size.LARGE, "large"),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (frozenset({"a"}), ["a"]),
        (b"text", "text"),
        (Point(1, date(2024, 2, 29)), {"x": 1, "at": "2024-02-29"}),
        ({"inner": [Colour.RED]}, {"inner": ["red"]}),
    ],
    ids=repr,
)
def test_what_json_does_not_know_is_written_in_its_standard_form(value: Any, written: Any) -> None:
    assert json.loads(encode(value, what="argument")) == written


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("nan"), "strict JSON"),
        ([float("inf")], "strict JSON"),
        ({(1, 2): 3}, "strict JSON: .*keys must be str"),
        (10**5_000, "strict JSON"),
        (b"\xff", "strict JSON"),
        (object(), "strict JSON: a object is not JSON; annotate the parameter, or convert it first"),
        (Point, "strict JSON: a type is not JSON"),
        (datetime(2024, 2, 29), "holds a datetime without a time zone; use an aware one$"),
        ("a\ud800b", "holds a lone surrogate"),
        ("a\0b", "holds a NUL character.*remove it"),
        ({"a\0b": 1}, "holds a NUL character"),
        ("\\\0", "holds a NUL character"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_a_value_that_not_every_store_could_keep_is_refused_by_name(value: Any, complaint: str) -> None:
    with pytest.raises(PayloadInvalid, match=f"^argument of job 'x' (cannot be written as )?{complaint}"):
        encode(value, what="argument of job 'x'")


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\", "[{" * 200, "\x1b \x7f \u2028"])
def test_text_that_only_looks_dangerous_passes(text: str) -> None:
    assert json.loads(encode(text, what="argument")) == text


def test_a_hundred_levels_pass_and_one_more_does_not() -> None:
    assert json.loads(encode(nested(MAX_DEPTH), what="argument")) == nested(MAX_DEPTH)
    with pytest.raises(PayloadInvalid, match=r"^result is nested too deeply; at most 100 levels are kept"):
        encode(nested(MAX_DEPTH + 1), what="result")


def test_a_hundred_thousand_levels_are_refused_in_the_same_words() -> None:
    with pytest.raises(PayloadInvalid, match=r"^result is nested too deeply; at most 100 levels are kept"):
        encode(nested(100_000), what="result")


def test_a_wide_value_is_not_taken_for_a_deep_one() -> None:
    wide = [nested(MAX_DEPTH - 1), *([number] for number in range(MAX_DEPTH * 2))]

    assert json.loads(encode(wide, what="argument")) == wide


@pytest.mark.parametrize("core", ["core", [], {}])
def test_levels_are_counted_alike_whatever_is_in_the_innermost(core: Any) -> None:
    levels = MAX_DEPTH if core == "core" else MAX_DEPTH - 1
    beside: Any = []  # so that the number of brackets alone does not decide

    encode([beside, nested(levels - 1, core)], what="argument")
    with pytest.raises(PayloadInvalid, match="nested too deeply"):
        encode([beside, nested(levels, core)], what="argument")


@pytest.mark.parametrize("text", ["x" * 8, "é" * 4])
def test_the_limit_counts_bytes_and_may_be_reached(text: str) -> None:
    assert encode(text, what="argument", limit=10) == f'"{text}"'
    with pytest.raises(PayloadTooLarge, match=r"^argument has 10 bytes, the limit is 9; store it elsewhere"):
        encode(text, what="argument", limit=9)


def test_a_million_bytes_are_kept_unless_another_limit_is_set() -> None:
    encode("x" * (DEFAULT_LIMIT - 2), what="argument")
    with pytest.raises(PayloadTooLarge, match="1,000,001 bytes, the limit is 1,000,000"):
        encode("x" * (DEFAULT_LIMIT - 1), what="argument")


def test_a_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint('{"a":1,"b":{"c":2,"d":3}}') == fingerprint('{"b": {"d": 3, "c": 2}, "a": 1}')


@given(JSON, JSON)
def test_different_values_have_different_fingerprints(one: Any, other: Any) -> None:
    texts = [encode(value, what="argument") for value in (one, other)]
    canonical = [json.dumps(value, sort_keys=True) for value in (one, other)]

    assert (fingerprint(texts[0]) == fingerprint(texts[1])) == (canonical[0] == canonical[1])


def test_a_fingerprint_that_was_stored_yesterday_is_still_the_same() -> None:
    assert fingerprint('{"text":"é","n":1}') == "2a7ad609c696ece062afc1b70d421d8b"


def loaded_again(module: ModuleType) -> Any:
    """Load *module* a second time, beside the first."""
    spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def a_ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def refusal(module: Any, value: Any) -> str:
    try:
        module.encode(value, what="argument")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_where_python_has_no_quick_encoder_the_same_text_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"b": [1, 2.5, None, Colour.RED], "a": "é\x1b"}
    monkeypatch.setattr("json.encoder.c_make_encoder", None)

    slow = loaded_again(strict_json)

    assert slow.encode(value, what="argument") == encode(value, what="argument")
    for refused in (a_ring(), {(1, 2): 3}, object, nested(100_000), datetime(2024, 2, 29)):
        assert refusal(slow, refused) == refusal(strict_json, refused) != ""
    assert "strict JSON" in refusal(slow, float("nan"))


@given(JSON)
def test_what_was_encoded_is_read_back_strictly(value: Any) -> None:
    assert decode(encode(value, what="argument"), what="argument") == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1,"a":1}',
        '{"a":1,"\\u0061":2}',
        '[{"b":{"a":1,"c":0,"a":2}}]',
        b'{"a":1,"a":2}',
    ],
)
def test_an_object_that_has_a_key_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(PayloadInvalid, match=r"^the file has the key 'a' twice in one object; give it once$"):
        decode(text, what="the file")


def test_the_same_key_in_two_objects_is_fine() -> None:
    assert decode('[{"a":1},{"a":{"a":2}}]', what="it") == [{"a": 1}, {"a": {"a": 2}}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON: Expecting value"),
        ("{", "is not JSON"),
        (b"\xff", "is not JSON: it is not UTF-8"),
        ("[" * 100_000, "is nested too deeply"),
        ("9" * 5_000, "is not JSON"),
        ("NaN", "holds NaN, which is not JSON"),
        ("[-Infinity]", "holds -Infinity, which is not JSON"),
    ],
)
def test_what_is_no_strict_json_is_refused_with_the_name_of_the_place(text: str | bytes, why: str) -> None:
    with pytest.raises(PayloadInvalid, match=f"^the file {why}"):
        decode(text, what="the file")


@pytest.mark.parametrize(
    "value", [{1: "a", "1": "b"}, [({None: 1, "null": 2},)], {"deep": {True: 1, "true": 2}}]
)
def test_keys_that_json_cannot_distinguish_are_refused(value: Any) -> None:
    with pytest.raises(PayloadInvalid, match=r"^argument has the key '(1|null|true)' twice"):
        encode(value, what="argument")


def test_keys_that_are_no_text_are_written_as_text() -> None:
    assert encode({1: "a", "b": [{2: ()}]}, what="argument") == '{"1":"a","b":[{"2":[]}]}'


@pytest.mark.parametrize("text", [None, "", "ada", "é🜁\n\x1b"])
def test_texts_that_every_store_can_hold_pass(text: str | None) -> None:
    ensure_storable(actor=text, reason="because")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\0b", "reason holds a NUL character, which PostgreSQL cannot store; remove it"),
        ("a\ud800b", "reason holds a lone surrogate; send text that is valid Unicode"),
        (5, "reason must be text, not a int"),
    ],
)
def test_a_text_that_not_every_store_can_hold_is_refused_by_its_name(text: Any, why: str) -> None:
    with pytest.raises(PayloadInvalid, match=f"^{why}$"):
        ensure_storable(actor="ada", reason=text)
