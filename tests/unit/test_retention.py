"""How long what has ended is kept."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.dead_letters.retention import Retention


@pytest.mark.clause("DLQ-3")
def test_by_default_letters_are_kept_for_a_week_and_up_to_ten_thousand() -> None:
    default = Retention()

    assert default.letters == timedelta(days=7)
    assert default.most_letters == 10_000
    assert default.letters_a_day == 100


def test_none_keeps_everything_for_ever_and_says_nothing() -> None:
    kept = Retention(
        letters=None, most_letters=None, finished=None, keys=None, letters_a_day=None, messages=None
    )

    assert {getattr(kept, name) for name in Retention.__slots__} == {None}


@pytest.mark.parametrize("name", ["letters", "finished", "keys", "messages"])
@pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=-1)])
def test_nothing_is_kept_for_no_time_at_all(name: str, length: timedelta) -> None:
    lengths: dict[str, Any] = {name: length}

    with pytest.raises(
        ValueError, match=f"retention of {name} must be positive; None keeps|must not be negative"
    ):
        Retention(**lengths)


@pytest.mark.parametrize("name", ["letters", "finished", "keys", "messages"])
def test_the_shortest_length_is_a_length(name: str) -> None:
    lengths: dict[str, Any] = {name: timedelta.resolution}

    assert getattr(Retention(**lengths), name) == timedelta.resolution


def test_at_least_one_letter_is_kept() -> None:
    assert Retention(most_letters=1).most_letters == 1
    with pytest.raises(ValueError, match="most_letters must be at least 1; None sets no limit"):
        Retention(most_letters=0)


def test_a_day_has_no_fewer_than_no_letters() -> None:
    assert Retention(letters_a_day=0).letters_a_day == 0
    with pytest.raises(ValueError, match="letters_a_day must be 0 or more; None raises no ticket"):
        Retention(letters_a_day=-1)


@pytest.mark.parametrize("name", ["letters", "finished", "keys", "messages"])
def test_a_length_that_no_store_could_subtract_is_refused(name: str) -> None:
    longest: dict[str, Any] = {name: timedelta(days=36_500)}
    longer: dict[str, Any] = {name: timedelta.max}

    Retention(**longest)
    with pytest.raises(ValueError, match="at most 36,500 days"):
        Retention(**longer)


def test_lengths_are_written_as_everywhere() -> None:
    assert Retention("7d", finished=86_400, keys=timedelta(days=2)) == Retention(
        timedelta(days=7), finished=timedelta(days=1), keys=timedelta(days=2)
    )
    with pytest.raises(ValueError, match="Not a duration: 'soon'"):
        Retention(letters="soon")
