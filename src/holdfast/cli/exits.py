"""How a command ends: its exit code, and one line that says what to do when it could not go on."""

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, cast

import typer

from holdfast.core.errors import ConfigError, HoldfastError, SchemaError, StoreUnavailable
from holdfast.core.redaction import printable

# Typer has kept its usage errors in more than one place; all of them share this base.
_Misuse = cast("type[Exception]", typer.BadParameter.__base__)


class ExitCode(IntEnum):
    """What a caller may conclude from the end of a command."""

    DONE = 0
    REFUSED = 1
    MISUSED = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130


class NotNow(HoldfastError):
    """Something that is not ours is in the way: another start may find it gone."""


def run_command(app: typer.Typer, words: Sequence[str] | None = None, *, called: str | None = None) -> None:
    """Run the command line and exit; what was foreseen to go wrong is told in one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        _write_anything(stream)
    sys.exit(_ended(app, words, called))


def _ended(app: typer.Typer, words: Sequence[str] | None, called: str | None) -> int:
    try:
        outcome = app(args=words, prog_name=called, standalone_mode=False)
        sys.stdout.flush()
    except HoldfastError as error:
        return complain(error)
    except typer.Exit as leaving:
        return leaving.exit_code
    except BrokenPipeError:
        # The reader had enough (`| head`); Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.REFUSED
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except _Misuse as error:
        return _misused(getattr(error, "format_message", error.__str__)())
    return outcome if isinstance(outcome, int) else ExitCode.DONE


def _misused(message: str) -> ExitCode:
    if message.startswith("Usage:"):
        typer.echo(message, err=True)  # no command was named, and the help says which there are
    else:
        say(message)
    return ExitCode.MISUSED


def complain(error: HoldfastError) -> ExitCode:
    """Tell *error* in one line, and give the exit code that it stands for."""
    say(str(error))
    match error:
        case ConfigError() | SchemaError():
            return ExitCode.MISUSED
        case StoreUnavailable() | NotNow():
            return ExitCode.UNAVAILABLE
        case _:
            return ExitCode.REFUSED


def say(message: str) -> None:
    """Write one line to stderr, whatever *message* holds."""
    line = " ".join(printable(message).split())
    if line:
        typer.echo(f"holdfast: {line}", err=True)


def _write_anything(stream: Any) -> None:
    """A name that the terminal's encoding lacks is shown escaped; it must not end the command."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
