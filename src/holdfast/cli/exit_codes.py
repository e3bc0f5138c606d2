"""How a command ends: its exit code, and one line on stderr that says what is wrong and what to do."""

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, cast

import typer

from holdfast.core.errors import BrokerUnavailable, ConfigError, HoldfastError, SchemaError, StoreUnavailable
from holdfast.core.redaction import printable

# Typer has kept its usage errors in more than one place; all of them share this base.
_Misuse = cast("type[Exception]", typer.BadParameter.__base__)


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    REFUSED = 1
    MISUSED = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130


class TemporarilyUnavailable(HoldfastError):
    """A resource of the machine is in use, such as a port; a later start may succeed."""


def run_command(app: typer.Typer, args: Sequence[str] | None = None, *, prog_name: str | None = None) -> None:
    """Run the command line and exit; an expected error is one line on stderr."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        # A character that the encoding of the terminal lacks is escaped, instead of an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(app, args, prog_name))


def _run(app: typer.Typer, args: Sequence[str] | None, prog_name: str | None) -> int:
    try:
        outcome = app(args=args, prog_name=prog_name, standalone_mode=False)
        sys.stdout.flush()
    except HoldfastError as error:
        return report_error(error)
    except typer.Exit as leaving:
        return leaving.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`); without this, Python reports it again at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.REFUSED
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except _Misuse as error:
        return _report_misuse(getattr(error, "format_message", error.__str__)())
    return outcome if isinstance(outcome, int) else ExitCode.DONE


def _report_misuse(message: str) -> ExitCode:
    if message.startswith("Usage:"):
        typer.echo(message, err=True)  # no command was given: the help lists them
    else:
        print_status(message)
    return ExitCode.MISUSED


def report_error(error: HoldfastError) -> ExitCode:
    """Print *error* as one line on stderr, and return its exit code."""
    print_status(str(error))
    match error:
        case ConfigError() | SchemaError():
            return ExitCode.MISUSED
        case StoreUnavailable() | BrokerUnavailable() | TemporarilyUnavailable():
            return ExitCode.UNAVAILABLE
        case _:
            return ExitCode.REFUSED


def print_status(message: str) -> None:
    """Print *message* as one line on stderr, without control characters."""
    line = " ".join(printable(message).split())
    if line:
        typer.echo(f"holdfast: {line}", err=True)
