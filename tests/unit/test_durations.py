"""Lengths of time as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import duration


@pytest.mark.parametrize(
    ("written", "length"),
    [
        (0, timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("2000us", timedelta(milliseconds=2)),
        ("2000µs", timedelta(milliseconds=2)),
        ("3000ns", timedelta(microseconds=3)),
        ("1h30m", timedelta(minutes=90)),
        ("6m0s", timedelta(minutes=6)),
        ("1.5s", timedelta(milliseconds=1500)),
        (" 1 H 30 M ", timedelta(minutes=90)),
        (timedelta(minutes=1), timedelta(minutes=1)),
    ],
)
def test_a_length_is_read_as_it_is_meant(written: float | str | timedelta, length: timedelta) -> None:
    assert duration(written) == length


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "5",
        "5 minutes",
        "m5",
        "5mm",
        "-5s",
        "1h-30m",
        "1_0s",
        -1,
        float("nan"),
        float("inf"),
        1e300,
        "9" * 18 + "d",
    ],
)
def test_what_is_no_length_is_refused(written: float | str) -> None:
    with pytest.raises(ValueError, match="length of time") as refused:
        duration(written)

    assert repr(written) in str(refused.value)


@pytest.mark.parametrize("written", [None, True, [5], b"5s", timedelta(seconds=-1)])
def test_what_is_no_length_is_refused_whatever_its_type(written: object) -> None:
    with pytest.raises(ValueError, match="length of time") as refused:
        duration(written)  # type: ignore[arg-type]  # that is the point

    assert repr(written) in str(refused.value)


def test_the_refusal_shows_how_to_write_one() -> None:
    with pytest.raises(ValueError, match=r"'quickly'.*'1h30m'"):
        duration("quickly")


@given(st.text() | st.floats() | st.integers())
def test_anything_is_a_length_from_zero_up_or_a_value_error(written: str | float) -> None:
    try:
        length = duration(written)
    except ValueError:
        return

    assert length >= timedelta(0)
