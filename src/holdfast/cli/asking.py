"""How a command asks its store, and in whose name."""

import asyncio
import getpass
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from holdfast.cli.target import ensure_file
from holdfast.face import Holdfast
from holdfast.telemetry.logs import StructuredJournal

T = TypeVar("T")


def _named(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("must not be empty; give the name of the person who decides")
    return text


def login_name() -> str | None:
    """Give the name under which the person is logged in; none if the system knows none, as in some containers."""
    try:
        return getpass.getuser() or None
    except (OSError, KeyError, ImportError):
        return None


def _actor(text: str | None) -> str:
    if text is None:
        raise typer.BadParameter("--actor is needed here: the system has no login name to take for it")
    return text


def said(text: str) -> str:
    """Take what somebody has to put in words."""
    if not text.strip():
        raise typer.BadParameter("it is empty; put it in words, for whoever reads this later")
    return text


ActorOption = Annotated[
    str,
    typer.Option(
        "--actor",
        parser=_named,
        metavar="WHO",
        help="Who decides.",
        default_factory=lambda: _actor(login_name()),
        show_default="login name",
    ),
]


def asked(hold: Holdfast, question: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
    """Open the store, ask, and leave it again."""
    ensure_file(hold)
    _hush(hold)
    return asyncio.run(_answered(hold, question))


async def _answered(hold: Holdfast, question: Callable[[Holdfast], Awaitable[T]]) -> T:
    try:
        await hold.open()
        return await question(hold)
    finally:
        await hold.close()


def _hush(hold: Holdfast) -> None:
    """Have nothing logged beside the answer but what went wrong; an application's own journal hears all."""
    if isinstance(hold.parts.journal, StructuredJournal):
        level = max(
            hold.settings.log_level.upper(), "WARNING", key=logging.getLevelNamesMapping().__getitem__
        )
        quiet = StructuredJournal(level=level, as_json=hold.settings.log_format == "json")
        hold.parts = replace(hold.parts, journal=quiet)
