"""How long a service asked to be left alone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.failures.retry_after import lowered, positive, should_retry, wait_hint

pytestmark = pytest.mark.clause("RET-4")

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
NOW = datetime(2026, 10, 21, 7, 0, tzinfo=UTC)

REMAINING = "x-ratelimit-remaining-"
RESET = "x-ratelimit-reset-"
CLAUDE = "anthropic-ratelimit-"


def in_seconds(
    headers: dict[str, str] | None = None, body: object = None, now: datetime | None = None
) -> float | None:
    hint = wait_hint(headers, body, now=now)
    return None if hint is None else hint.total_seconds()


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "120"}, 120),
        ({"Retry-After": "1.5"}, 1.5),
        ({"RETRY-AFTER": " 7 "}, 7),
        ({"retry-after": "1e9"}, LONG := 864_000_000),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT", "date": DATE}, 90),
        ({REMAINING + "requests": "0", RESET + "requests": "6m0s"}, 360),
        ({REMAINING + "tokens": "0", RESET + "tokens": "12ms"}, 0.012),
        (
            {CLAUDE + "tokens-remaining": "0", CLAUDE + "tokens-reset": "2026-10-21T07:28:09Z", "date": DATE},
            9,
        ),
    ],
)
def test_each_format_of_a_hint_is_understood(headers: dict[str, str], wait: float) -> None:
    assert in_seconds(headers) == min(wait, LONG)


def test_milliseconds_beat_seconds_and_seconds_beat_limits() -> None:
    limits = {REMAINING + "requests": "0", RESET + "requests": "1m"}

    assert in_seconds({"retry-after": "9", "retry-after-ms": "250", **limits}) == 0.25
    assert in_seconds({"retry-after": "9", **limits}) == 9


def test_a_source_that_makes_no_sense_leaves_the_word_to_the_next() -> None:
    assert in_seconds({"retry-after-ms": "NaN", "retry-after": "9"}) == 9


def test_headers_beat_the_body() -> None:
    assert in_seconds({"retry-after": "9"}, google("30s")) == 9


@pytest.mark.parametrize(
    ("retry_at", "date"),
    [
        ("Wed, 21 Oct 2026 07:28:10 GMT", "Wed, 21 Oct 2026 09:28:00 +0200"),
        ("2026-10-21T09:28:10+02:00", "2026-10-21T07:28:00Z"),
        ("2026-10-21T07:28:10", "2026-10-21T07:28:00Z"),
        ("2026-10-21T07:28:10Z", "Wed, 21 Oct 2026 07:28:00 -0000"),
    ],
)
def test_an_instant_is_read_in_its_zone_and_without_one_as_utc(retry_at: str, date: str) -> None:
    assert in_seconds({"retry-after": retry_at, "date": date}) == 10


@pytest.mark.parametrize("left", ["7", "soon", ""])
def test_a_limit_of_claude_with_anything_but_nothing_left_delays_no_call(left: str) -> None:
    reset = {CLAUDE + "tokens-reset": "2026-10-21T07:28:09Z", "date": DATE}

    assert in_seconds({**reset, CLAUDE + "tokens-remaining": left}) is None
    assert in_seconds(reset) is None


def test_a_remainder_that_cannot_be_read_delays_no_call() -> None:
    assert in_seconds({REMAINING + "requests": "soon", RESET + "requests": "1h"}) is None


@pytest.mark.parametrize("name", ["shop", "anthropic-other", "x-anthropic-ratelimit"])
def test_limits_of_services_that_are_not_known_are_not_guessed_at(name: str) -> None:
    headers = {f"{name}-remaining": "0", f"{name}-reset": "2026-10-21T07:28:09Z", "date": DATE}

    assert in_seconds(headers) is None
    assert in_seconds({CLAUDE + "tokens": "2026-10-21T07:28:09Z", CLAUDE + "tokens-remaining": "0"}) is None


def test_a_limit_with_something_left_delays_no_call() -> None:
    headers = {
        REMAINING + "requests": "12",
        RESET + "requests": "1h",
        REMAINING + "tokens": "0",
        RESET + "tokens": "4s",
    }

    assert in_seconds(headers) == 4
    assert in_seconds({RESET + "requests": "1h"}) is None


def test_of_two_limits_that_are_used_up_the_later_counts() -> None:
    headers = {
        REMAINING + "requests": "0",
        RESET + "requests": "9s",
        REMAINING + "tokens": "0",
        RESET + "tokens": "4s",
    }

    assert in_seconds(headers) == 9


def test_a_date_counts_from_the_answers_own_date() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": DATE}

    assert in_seconds(headers, now=NOW) == 10


def test_without_a_date_of_its_own_an_answer_is_read_against_now() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2026 07:00:10 GMT"}

    assert in_seconds(headers, now=NOW) == 10
    assert in_seconds(headers) is None


@pytest.mark.parametrize(
    "value",
    ["0", "-5", "NaN", "inf", "-inf", "soon", "", "1_000", "Tue, 20 Oct 2026 07:28:00 GMT", "1e-9", "\x00"],
)
def test_nonsense_zero_and_the_past_are_no_hint(value: str) -> None:
    assert in_seconds({"retry-after": value, "date": DATE}) is None


def google(delay: object) -> dict[str, object]:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    return {"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.Help"}, info]}}


def test_retry_info_in_the_body_is_found() -> None:
    assert in_seconds(body=google("45.837906927s")) == pytest.approx(45.837907)
    assert in_seconds(body=[google("3s")]) == 3
    assert in_seconds(body='{"@type": "google.rpc.RetryInfo", "retryDelay": "2s"}') == 2
    assert in_seconds(body=b'[{"@type": "google.rpc.RetryInfo", "retryDelay": "2s"}]') == 2


def test_retry_info_is_looked_for_six_levels_deep_and_no_deeper() -> None:
    def below(levels: int) -> object:
        info = {"@type": "google.rpc.RetryInfo", "retryDelay": "2s"}
        return info if levels == 0 else [below(levels - 1)]

    assert in_seconds(body=below(6)) == 2
    assert in_seconds(body=below(7)) is None


def test_of_two_retry_infos_the_first_that_says_something_counts() -> None:
    assert in_seconds(body=[google("later"), google("3s"), google("9s")]) == 3


@pytest.mark.parametrize("delay", ["0s", "-3s", "later", None, 5, {}])
def test_retry_info_that_says_nothing_is_no_hint(delay: object) -> None:
    assert in_seconds(body=google(delay)) is None


@pytest.mark.parametrize(
    ("headers", "advice"),
    [
        ({"x-should-retry": "true"}, True),
        ({"X-Should-Retry": "False"}, False),
        ({"x-should-retry": "perhaps"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_services_own_word_on_retrying_is_read(
    headers: dict[str, str] | None, advice: bool | None
) -> None:
    assert should_retry(headers) is advice


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["@type", "retryDelay", "error", "details"]) | st.text(), inner, max_size=3
        )
    ),
    max_leaves=10,
)
NAMES = st.sampled_from(
    [
        "Retry-After",
        "retry-after-ms",
        "date",
        REMAINING + "tokens",
        RESET + "tokens",
        CLAUDE + "tokens-reset",
        CLAUDE + "tokens-remaining",
    ]
)
VALUES = (
    st.text()
    | st.floats().map(str)
    | st.integers().map(str)
    | st.sampled_from(["0", DATE, "9s", "2026-10-21"])
)


@given(st.dictionaries(NAMES, VALUES), JSON | st.binary(), st.none() | st.datetimes(timezones=st.just(UTC)))
def test_whatever_a_service_says_a_hint_is_positive_or_absent(
    headers: dict[str, str], body: object, now: datetime | None
) -> None:
    hint = wait_hint(headers, body, now=now)

    assert hint is None or hint > timedelta(0)


@given(st.none() | st.floats() | st.integers() | st.text() | st.timedeltas())
def test_a_length_is_positive_or_absent(value: float | str | timedelta | None) -> None:
    length = positive(value)

    assert length is None or length > timedelta(0)


class Repeated:
    """Headers in which a name may come twice."""

    def items(self) -> list[tuple[str, str]]:
        return [("Retry-After", "3"), ("retry-after", "9")]


class Breaking:
    """Headers that break off while they are read."""

    def items(self) -> Iterator[tuple[str, str]]:
        yield "retry-after", "3"
        raise RuntimeError("connection lost")


@pytest.mark.parametrize(
    "headers",
    [
        {b"Retry-After": b"3"},
        {"retry-after": ["3", "4"]},
        {"retry-after": ("3",)},
        {"retry-after": [b"3"]},
        {"retry-after": 3},
        {b"x-na\xefve": b"\xff", "retry-after": "3"},
        Repeated(),
        Breaking(),
    ],
)
def test_headers_of_any_make_are_read(headers: Any) -> None:
    assert wait_hint(headers) == timedelta(seconds=3)


@pytest.mark.parametrize("headers", [7, ["retry-after"], {1: 2}, {"retry-after": None}, {"retry-after": []}])
def test_headers_that_cannot_be_read_are_no_hint(headers: Any) -> None:
    assert wait_hint(headers) is None


class Grudging(dict[str, object]):
    """A body that cannot be looked into."""

    def get(self, key: object, default: object = None) -> NoReturn:
        raise RuntimeError(key)


def test_a_body_that_cannot_be_looked_into_is_no_hint() -> None:
    assert wait_hint({}, Grudging()) is None


def test_text_in_a_header_is_read_byte_by_byte() -> None:
    assert lowered({b"X-Na\xefve": b"\xe9"}) == {"x-naïve": "é"}


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (timedelta(days=10_001), timedelta(days=10_000)),
        (1e12, timedelta(days=10_000)),
        ("1e12", timedelta(days=10_000)),
        (timedelta(days=9_999), timedelta(days=9_999)),
        (0.5, timedelta(milliseconds=500)),
        (10**400, None),
        ([], None),
    ],
)
def test_a_length_is_at_most_ten_thousand_days(value: Any, length: timedelta | None) -> None:
    assert positive(value) == length
