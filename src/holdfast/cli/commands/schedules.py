"""`holdfast schedules`: list recurring jobs."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import typer

from holdfast.cli.options.app_loader import (
    APP_HINT,
    ApplicationArgument,
    AppOption,
    Target,
    UrlOption,
    application_reference,
    missing_file,
    resolve,
)
from holdfast.cli.session import run_with_store
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, moment, show_rows
from holdfast.core.errors import ConfigError
from holdfast.face import Holdfast

COLUMNS = (
    Column("name", Fit.CUT),
    Column("job", Fit.CUT),
    Column("when", Fit.CUT),
    Column("last"),
    Column("next"),
)

app = typer.Typer(no_args_is_help=True, help="List recurring jobs.")


class _ScheduleListing(NamedTuple):
    """A schedule as it is listed."""

    name: str
    job: str
    when: str
    last: datetime | None
    next: datetime


@app.command("list")
def list_schedules(
    name: ApplicationArgument = None,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the recurring jobs of an application with their last and next run."""
    target = Target(application_reference(name, application), url)
    hold = resolve(*target)
    if not target.is_application:
        raise ConfigError(f"schedules are declared in the application; {APP_HINT}")
    # A missing file is treated as an empty one, and is not created.
    now, marks = (hold.runtime.clock.now(), {}) if missing_file(hold) else run_with_store(hold, _read_marks)
    found = _listings(hold, now, marks)
    if as_json:
        show_json([line._asdict() for line in found])
    else:
        rows = [(*line[:3], moment(line.last, now), moment(line.next, now)) for line in found]
        show_rows(COLUMNS, rows, if_empty="the application declares no recurring job")


async def _read_marks(hold: Holdfast) -> tuple[datetime, Mapping[str, datetime]]:
    """Read the last run of each schedule, and the time of the store; no schedule is started."""
    return await hold.runtime.store.schedules.marks(
        [each.schedule.name for each in hold.runtime.registry.recurring]
    )


def _listings(hold: Holdfast, now: datetime, marks: Mapping[str, datetime]) -> list[_ScheduleListing]:
    recurring = sorted(hold.runtime.registry.recurring, key=lambda each: each.schedule.name)
    return [
        _ScheduleListing(
            each.schedule.name,
            each.job.name,
            each.schedule.description,
            marks.get(each.schedule.name),
            next(each.schedule.ticks(now)),
        )
        for each in recurring
    ]
