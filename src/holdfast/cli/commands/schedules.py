"""`holdfast schedules`: list recurring jobs."""

from datetime import datetime

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.app_loader import (
    APP_HINT,
    ApplicationArgument,
    AppOption,
    Target,
    UrlOption,
    application_reference,
    resolve,
)
from holdfast.cli.session import run_with_store
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, moment, show_rows
from holdfast.core.errors import ConfigError
from holdfast.engine.operations.schedule_service import ScheduleStatus

COLUMNS = (
    Column("name", Fit.CUT),
    Column("job", Fit.CUT),
    Column("when", Fit.CUT),
    Column("last"),
    Column("next"),
)

app = typer.Typer(no_args_is_help=True, help="List recurring jobs.")


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
    if hold.database.missing_file is None:
        found, now = run_with_store(hold, _read)
    else:  # a missing file is treated as an empty one, and is not created
        now = hold.runtime.clock.now()
        found = hold.schedules.before_first_run(now)
    if as_json:
        show_json([line._asdict() for line in found])
    else:
        rows = [(*line[:3], moment(line.last, now), moment(line.next, now)) for line in found]
        show_rows(COLUMNS, rows, if_empty="the application declares no recurring job")


async def _read(hold: Holdfast) -> tuple[list[ScheduleStatus], datetime]:
    return await hold.schedules.list(), await hold.database.now()
