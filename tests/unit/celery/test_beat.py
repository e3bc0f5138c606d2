"""Entries of beat become schedules, and each tick is submitted once, by beat or by another process."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler as Beat
from celery.schedules import BaseSchedule, crontab, schedule

from holdfast import Holdfast
from holdfast.celery import durable, take_over_beat
from holdfast.engine.worker.scheduler import Scheduler
from holdfast.errors import ConfigError

SECOND = timedelta(seconds=1)


class Sunset(BaseSchedule):
    """A schedule of a team's own."""


@pytest.fixture
def app() -> Celery:
    return Celery("team", broker="memory://", set_as_current=False)


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    hold.apply_schema_sync()
    yield hold
    hold.close_sync()


@pytest.fixture
def tidy(app: Celery, hold: Holdfast) -> Any:
    @durable(hold)
    @app.task(name="tidy", shared=False)
    def tidy(folder: str = "tmp") -> None: ...

    @app.task(name="other", shared=False)
    def other() -> None: ...

    return tidy


def ticks(hold: Holdfast, after: datetime) -> dict[str, list[str]]:
    return {
        each.schedule.name: [f"{tick:%a %H:%M:%S}" for tick in islice(each.schedule.ticks(after), 2)]
        for each in hold.runtime.registry.recurring
    }


def last_tick(hold: Holdfast) -> datetime:
    [schedule] = hold.schedules.list_sync()
    assert schedule.last is not None
    return schedule.last


@pytest.mark.usefixtures("tidy")
def test_entries_of_durable_tasks_are_schedules_with_the_same_times_and_arguments(
    app: Celery, hold: Holdfast
) -> None:
    app.conf.timezone = "Asia/Ho_Chi_Minh"
    app.conf.beat_schedule = {
        "often": {"task": "tidy", "schedule": 300.0, "args": ("var",)},
        "hourly": {"task": "tidy", "schedule": schedule(timedelta(hours=1))},
        "nightly": {"task": "tidy", "schedule": crontab(hour="2", minute="*/30", day_of_week="mon")},
        "left": {"task": "other", "schedule": 60},
    }

    taken = take_over_beat(app, hold)

    assert taken == ["often", "hourly", "nightly"]
    assert ticks(hold, datetime(2030, 1, 1, 12, 1, tzinfo=UTC)) == {
        "often": ["Tue 12:05:00", "Tue 12:10:00"],
        "hourly": ["Tue 13:00:00", "Tue 14:00:00"],
        "nightly": ["Sun 19:00:00", "Sun 19:30:00"],
    }
    assert [each.args for each in hold.runtime.registry.recurring][:2] == [
        '{"folder":"var"}',
        '{"folder":"tmp"}',
    ]


@pytest.mark.usefixtures("tidy")
def test_a_tick_that_beat_sends_and_a_dispatching_process_sees_is_one_job(
    app: Celery, hold: Holdfast
) -> None:
    app.conf.beat_schedule = {"often": {"task": "tidy", "schedule": 1}}
    take_over_beat(app, hold)
    beat = Beat(app=app, lazy=True)
    beat.setup_schedule()
    entry = beat.schedule["often"]
    beat.apply_async(entry)  # begins the schedule
    began = last_tick(hold)

    while last_tick(hold) - began < timedelta(seconds=2):
        beat.apply_async(entry)
        hold._portal.run(
            "schedule", lambda twin: Scheduler(twin.runtime).run_once()
        )  # as `holdfast dispatch` does

    # Of ticks that passed together, the latest alone is submitted.
    assert 1 <= len(hold.find_sync()) <= (last_tick(hold) - began.replace(microsecond=0)) // SECOND


@pytest.mark.usefixtures("tidy")
def test_a_schedule_without_an_equal_is_refused_by_name(app: Celery, hold: Holdfast) -> None:
    app.conf.beat_schedule = {"at sunset": {"task": "tidy", "schedule": Sunset()}}

    with pytest.raises(ConfigError, match="the beat entry 'at sunset' has a Sunset schedule"):
        take_over_beat(app, hold)
