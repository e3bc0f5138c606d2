"""`take_over_beat`: entries of Celery's beat become schedules, and no tick is submitted twice while that changes.

An entry stays in the beat schedule until the team removes it. When beat sends it, it only has the scheduler look what
is due, as each process that dispatches does: the store submits each tick once, whichever of them sees it first.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from celery import Celery, signals
from celery.schedules import crontab, schedule

from holdfast.app import Holdfast
from holdfast.celery.tasks.durable_task import BEAT_OPTION, DurableTask, durable_task_of
from holdfast.core.errors import ConfigError
from holdfast.engine.worker.scheduler import Scheduler

SHORTEST = timedelta(seconds=1)


def take_over_beat(app: Celery, hold: Holdfast) -> list[str]:
    """Declare a schedule for each beat entry whose task is durable, and return the names of these entries.

    Call it after the tasks and `beat_schedule` are declared. Entries of other tasks stay as they are. Raises
    `ConfigError` for an entry that has no equal, such as a solar schedule.
    """
    taken: list[str] = []
    entries: dict[str, Any] = dict(app.conf.beat_schedule)
    for name, entry in app.conf.beat_schedule.items():
        durable = durable_task_of(app.tasks.get(entry["task"]))
        if durable is None or durable.hold is not hold:
            continue
        _declare(app, hold, durable, name, entry)
        entries[name] = {**entry, "options": {**entry.get("options", {}), BEAT_OPTION: True}}
        taken.append(name)
    app.conf.beat_schedule = entries
    if taken:
        # Before the first tick: a schedule begins when it is first seen, and submits what comes after that.
        signals.beat_init.connect(lambda **_: submit_due(hold), weak=False)
    return taken


def submit_due(hold: Holdfast) -> None:
    """Submit the ticks of all schedules that are due."""
    hold._portal.run("submit_due", _run_scheduler)


async def _run_scheduler(hold: Holdfast) -> None:
    await hold.open()
    await Scheduler(hold.runtime).run_once()


def _declare(app: Celery, hold: Holdfast, durable: DurableTask, name: str, entry: Mapping[str, Any]) -> None:
    when, arguments = entry["schedule"], {"args": entry.get("args", ()), "kwargs": entry.get("kwargs") or {}}
    match when:
        case crontab():
            hold.cron(_expression(when), tz=str(app.timezone), name=name, **arguments)(durable.job)
        case schedule():
            hold.every(_interval(name, when.run_every), name=name, **arguments)(durable.job)
        case int() | float():
            hold.every(_interval(name, timedelta(seconds=when)), name=name, **arguments)(durable.job)
        case timedelta():
            hold.every(_interval(name, when), name=name, **arguments)(durable.job)
        case _:
            raise ConfigError(
                f"the beat entry {name!r} has a {type(when).__name__} schedule, which Holdfast has no equal of; leave "
                "its task to Celery, or use a crontab or an interval"
            )


def _expression(when: crontab) -> str:
    fields = (
        when._orig_minute,
        when._orig_hour,
        when._orig_day_of_month,
        when._orig_month_of_year,
        when._orig_day_of_week,
    )
    return " ".join(_field(field) for field in fields)


def _field(field: Any) -> str:
    """Return a field of a crontab as text: Celery accepts numbers and collections of them, too."""
    if isinstance(field, str):
        return field.replace(" ", "")
    return ",".join(str(number) for number in sorted(field)) if hasattr(field, "__iter__") else str(field)


def _interval(name: str, length: timedelta) -> timedelta:
    if length < SHORTEST:
        raise ConfigError(f"the beat entry {name!r} runs more often than once a second; leave it to Celery")
    return length
