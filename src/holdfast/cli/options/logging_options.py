"""The logging options of worker commands."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.ports import Logger
from holdfast.telemetry.logs import StructuredLogger


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of log lines."""

    JSON = "json"
    TEXT = "text"


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        case_sensitive=False,
        help="Lowest level that is logged.",
        show_default="HOLDFAST_LOG_LEVEL, else info",
    ),
]

LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        case_sensitive=False,
        help="Format of log lines.",
        show_default="HOLDFAST_LOG_FORMAT, else json",
    ),
]


def logger_for(hold: Holdfast, level: LogLevel | None, style: LogFormat | None) -> Logger:
    """Return the application's own logger, or a new one if the command line sets level or format.

    An explicit format applies even where the application has configured `logging`.
    """
    if level is None and style is None:
        return hold.runtime.logger
    return StructuredLogger(
        level=level or hold.settings.log_level,
        stream=None if style is None else sys.stderr,
        as_json=(style or hold.settings.log_format) == LogFormat.JSON,
    )
