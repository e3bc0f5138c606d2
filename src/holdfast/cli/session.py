"""Runs the operation of a command on an open store, and determines its actor."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.app_loader import ensure_file
from holdfast.telemetry.logs import StructuredLogger

T = TypeVar("T")


def login_name() -> str | None:
    """Return the login name, or `None` if the system has none, as in some containers."""
    try:
        return getpass.getuser() or None
    except (OSError, KeyError, ImportError):
        return None


def _required_actor(text: str | None) -> str:
    if text is None:
        raise typer.BadParameter("--actor is required: the system has no login name to use as the default")
    return text


def non_empty(text: str) -> str:
    """Parse a text option that must not be empty."""
    if not text.strip():
        raise typer.BadParameter("must not be empty")
    return text


ActorOption = Annotated[
    str,
    typer.Option(
        "--actor",
        parser=non_empty,
        metavar="WHO",
        help="Who decides; it is recorded in the history.",
        default_factory=lambda: _required_actor(login_name()),
        show_default="login name",
    ),
]


def run_with_store(hold: Holdfast, operation: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
    """Open the store, run *operation*, close the store, and return the result."""
    ensure_file(hold)
    # Only warnings and errors are logged beside the output; an application's own logger still gets every line.
    if isinstance(hold.runtime.logger, StructuredLogger):
        hold.runtime.logger.raise_level("WARNING")
    return asyncio.run(_run(hold, operation))


async def _run(hold: Holdfast, operation: Callable[[Holdfast], Awaitable[T]]) -> T:
    try:
        await hold.open()
        return await operation(hold)
    finally:
        await hold.close()
