"""What a worker logs, and where, as the command line wants it."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from holdfast.face import Holdfast
from holdfast.ports import Journal
from holdfast.telemetry.logs import StructuredJournal


class LogLevel(StrEnum):
    """The least level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """What a log line looks like."""

    JSON = "json"
    TEXT = "text"


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        case_sensitive=False,
        help="Least level that is logged.",
        show_default="HOLDFAST_LOG_LEVEL, else info",
    ),
]


def journal_of(hold: Holdfast, level: LogLevel | None, style: LogFormat | None) -> Journal:
    """Keep the application's own journal, unless the command line asks for something else.

    A format that was asked for is what lines look like, even where the application has configured `logging`.
    """
    if level is None and style is None:
        return hold.parts.journal
    return StructuredJournal(
        level=level or hold.settings.log_level,
        stream=None if style is None else sys.stderr,
        as_json=(style or hold.settings.log_format) == LogFormat.JSON,
    )
