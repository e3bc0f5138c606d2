"""`holdfast celery`: what the tasks of a Celery app would be as durable jobs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options.app_loader import load_object
from holdfast.cli.views.output import EMPTY, JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, show_rows
from holdfast.core.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.celery.inspection import TaskReport

app = typer.Typer(no_args_is_help=True, help="Look at a Celery app before its tasks become durable.")

COLUMNS = (
    Column("task", Fit.CUT),
    Column("durable"),
    Column("maps", Fit.FOLDED),
    Column("look_at", Fit.FOLDED, omit_if=(EMPTY,)),
    Column("refused", Fit.FOLDED, omit_if=(EMPTY,)),
)


@app.callback()
def _celery() -> None:
    """Keep `inspect` a command of its own, although it is the only one."""


@app.command("inspect")
def inspect_app(
    reference: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The Celery app, for example shop.celery:app.")
    ],
    as_json: JsonOption = False,
) -> None:
    """List the tasks of a Celery app: what of each maps to a durable job, what needs a look, what is refused."""
    reports = _inspect(load_object(reference))
    if as_json:
        show_json([report._asdict() for report in reports])
        return
    show_rows(
        COLUMNS,
        [
            (
                report.task,
                "yes" if report.durable else "no",
                *("; ".join(part) or EMPTY for part in (report.maps, report.look_at, report.refused)),
            )
            for report in reports
        ],
        if_empty="no tasks: the app declares none in the modules that it imports",
    )


def _inspect(celery_app: Any) -> "list[TaskReport]":
    try:
        from celery import Celery  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "this command needs Celery; install it with: pip install 'holdfast[celery]'"
        ) from error
    from holdfast.celery.inspection import inspect_tasks  # noqa: PLC0415 - needs the extra

    if not isinstance(celery_app, Celery):
        raise ConfigError(f"it is a {type(celery_app).__name__}, not a Celery app; name the Celery object")
    celery_app.loader.import_default_modules()
    return inspect_tasks(celery_app)
