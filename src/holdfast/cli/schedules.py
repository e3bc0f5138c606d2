"""`holdfast schedules`: what an application submits by itself, and when."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import typer

from holdfast.cli.asking import asked
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.tables import Column, Room, moment, show_rows
from holdfast.cli.target import (
    NAME_IT,
    ApplicationArgument,
    AppOption,
    Given,
    UrlOption,
    chosen,
    missing_file,
    named_once,
)
from holdfast.core.errors import ConfigError
from holdfast.face import Holdfast

COLUMNS = (
    Column("name", Room.CUT),
    Column("job", Room.CUT),
    Column("when", Room.CUT),
    Column("last"),
    Column("next"),
)

app = typer.Typer(no_args_is_help=True, help="Look at recurring jobs.")


class _Line(NamedTuple):
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
    """List the recurring jobs of an application, with their last and next tick."""
    given = Given(named_once(name, application), url)
    hold = chosen(*given)
    if not given.is_application:
        raise ConfigError(f"schedules are declared in code, and none is known; {NAME_IT}")
    # A file that is not there yet says as much as an empty one, and looking makes none.
    now, marks = (hold.parts.clock.now(), {}) if missing_file(hold) else asked(hold, _marks)
    found = _lines(hold, now, marks)
    if as_json:
        show_json([line._asdict() for line in found])
    else:
        rows = [(*line[:3], moment(line.last, now), moment(line.next, now)) for line in found]
        show_rows(COLUMNS, rows, nothing="the application declares no recurring job")


async def _marks(hold: Holdfast) -> tuple[datetime, Mapping[str, datetime]]:
    """Look at each schedule by the store's clock, without beginning any: that is for workers."""
    return await hold.parts.store.schedule_marks(
        [each.schedule.name for each in hold.parts.registry.recurring]
    )


def _lines(hold: Holdfast, now: datetime, marks: Mapping[str, datetime]) -> list[_Line]:
    recurring = sorted(hold.parts.registry.recurring, key=lambda each: each.schedule.name)
    return [
        _Line(
            each.schedule.name,
            each.job.name,
            each.schedule.told,
            marks.get(each.schedule.name),
            next(each.schedule.ticks(now)),
        )
        for each in recurring
    ]
