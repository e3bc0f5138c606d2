"""Which ticks of a schedule are due, also when no worker ran for a while, and when clocks are changed."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from holdfast.core.errors import ConfigError
from holdfast.core.jobs.schedules import GRACE, MOST, Missed, Schedule, every
from holdfast.wiring.cron import cron

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def hourly(missed: Missed = "latest") -> Schedule:
    return Schedule("hourly", "every 1h", every(HOUR), missed)


def in_berlin(expression: str, *, after: str, count: int = 2) -> list[str]:
    """Give the first ticks after an instant in UTC, as clocks in UTC show them."""
    ticks = cron(expression, "Europe/Berlin")(datetime.fromisoformat(after).replace(tzinfo=UTC))
    return [f"{tick:%m-%d %H:%M}" for tick in islice(ticks, count)]


def test_every_counts_from_whole_multiples_so_that_all_workers_agree() -> None:
    first, second = (list(islice(every(HOUR)(NOON + late), 2)) for late in (7 * MINUTE, 44 * MINUTE))

    assert first == second == [NOON + HOUR, NOON + 2 * HOUR]


def test_a_tick_that_was_made_up_for_does_not_come_again() -> None:
    assert next(every(HOUR)(NOON)) == NOON + HOUR


def test_before_its_time_nothing_is_due() -> None:
    due = hourly().due(NOON, NOON + 59 * MINUTE)

    assert (due.ticks, due.last_tick, due.upcoming) == ([], NOON, NOON + HOUR)


def test_on_its_very_instant_a_tick_is_due() -> None:
    due = hourly().due(NOON, NOON + HOUR)

    assert (due.ticks, due.last_tick, due.upcoming) == ([NOON + HOUR], NOON + HOUR, NOON + 2 * HOUR)


@pytest.mark.parametrize(("missed", "hours"), [("latest", [3]), ("all", [1, 2, 3]), ("skip", [])])
def test_ticks_that_no_worker_was_there_for_are_submitted_later_as_declared(
    missed: Missed, hours: list[int]
) -> None:
    due = hourly(missed).due(NOON, NOON + 3 * HOUR + 2 * GRACE)

    assert due.ticks == [NOON + number * HOUR for number in hours]
    assert due.last_tick == NOON + 3 * HOUR
    assert due.upcoming == NOON + 4 * HOUR


@pytest.mark.parametrize("late", [timedelta(0), GRACE])
def test_a_tick_that_is_only_a_little_late_is_not_skipped(late: timedelta) -> None:
    due = hourly("skip").due(NOON, NOON + 3 * HOUR + late)

    assert due.ticks == [NOON + 3 * HOUR]


@pytest.mark.parametrize(("missed", "submitted"), [("latest", 1), ("all", 2 * MOST + 7), ("skip", 0)])
def test_a_long_absence_is_caught_up_with_in_parts(missed: Missed, submitted: int) -> None:
    schedule, last_tick, now = hourly(missed), NOON, NOON + (2 * MOST + 7) * HOUR + 2 * GRACE
    looks = [schedule.due(last_tick, now)]
    while looks[-1].upcoming <= now:
        looks.append(schedule.due(looks[-1].last_tick, now))

    ticks = [tick for look in looks for tick in look.ticks]

    assert len(looks) == 3
    assert max(len(look.ticks) for look in looks) <= MOST
    assert len(ticks) == len(set(ticks)) == submitted
    assert missed == "skip" or ticks[-1] == NOON + (2 * MOST + 7) * HOUR


def test_an_unknown_word_for_missed_ticks_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(AssertionError, match="sometimes"):
        hourly("sometimes").due(NOON, NOON + HOUR)  # type: ignore[arg-type]  # on purpose


def test_a_time_of_day_stays_when_clocks_are_changed() -> None:
    assert in_berlin("0 9 * * *", after="2026-03-27T12:00") == ["03-28 08:00", "03-29 07:00"]
    assert in_berlin("0 9 * * *", after="2026-10-23T12:00") == ["10-24 07:00", "10-25 08:00"]


def test_a_time_that_is_left_out_in_spring_comes_as_soon_as_clocks_go_on() -> None:
    # At two o'clock it becomes three: half past two does not exist, and 01:00 in UTC is three o'clock.
    assert in_berlin("30 2 * * *", after="2026-03-28T12:00") == ["03-29 01:00", "03-30 00:30"]


def test_a_time_that_comes_twice_in_autumn_is_used_once() -> None:
    # At three it becomes two: half past two is 00:30 and again 01:30 in UTC.
    assert in_berlin("30 2 * * *", after="2026-10-24T12:00") == ["10-25 00:30", "10-26 01:30"]


def test_hours_go_on_through_both_changes() -> None:
    spring = in_berlin("0 * * * *", after="2026-03-28T23:30", count=4)
    autumn = in_berlin("0 * * * *", after="2026-10-24T22:30", count=4)

    assert spring == ["03-29 00:00", "03-29 01:00", "03-29 02:00", "03-29 03:00"]
    assert autumn == ["10-24 23:00", "10-25 00:00", "10-25 01:00", "10-25 02:00"]


@pytest.mark.parametrize("expression", ["0 9 * *", "61 * * * *", "0 0 30 2 *", "every morning", ""])
def test_an_expression_that_never_comes_true_or_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="no cron expression"):
        cron(expression, "UTC")


@pytest.mark.parametrize("zone", ["Middle/Earth", "Europe", "", "../../etc/passwd"])
def test_a_time_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        cron("0 9 * * *", zone)
