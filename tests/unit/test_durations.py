"""Lengths of time as people write them."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import FIRST, LAST, LONGEST, duration, instant_in_utc


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
        ("36500d", LONGEST),
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
        "36501d",
        36_500 * 86_400 + 1,
    ],
)
def test_what_is_no_length_is_refused(written: float | str) -> None:
    with pytest.raises(ValueError, match="duration") as refused:
        duration(written)

    assert repr(written) in str(refused.value)


@pytest.mark.parametrize("written", [None, True, [5], b"5s", timedelta(seconds=-1), timedelta.max])
def test_what_is_no_length_is_refused_whatever_its_type(written: object) -> None:
    with pytest.raises(ValueError, match="duration") as refused:
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


class Nowhere(tzinfo):
    """A time zone that does not know its offset: a datetime in it is as naive as one without."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str:
        return "nowhere"


def test_an_instant_is_given_in_utc() -> None:
    tokyo = timezone(timedelta(hours=9))

    assert instant_in_utc(datetime(2030, 1, 1, 9, tzinfo=tokyo)) == datetime(2030, 1, 1, tzinfo=UTC)
    assert [instant_in_utc(end) for end in (FIRST, LAST)] == [FIRST, LAST]


@pytest.mark.parametrize("naive", [datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=Nowhere())])
def test_an_instant_needs_a_time_zone(naive: datetime) -> None:
    with pytest.raises(ValueError, match="must have a time zone"):
        instant_in_utc(naive)


@pytest.mark.parametrize("hours", [-12, 0, 14])
@pytest.mark.parametrize("end", [datetime.min, datetime.max])
def test_an_instant_at_an_end_of_the_calendar_is_refused_and_not_converted(end: datetime, hours: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        instant_in_utc(end.replace(tzinfo=timezone(timedelta(hours=hours))))
