"""Which application, and which store, a command works on."""

import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Annotated, NamedTuple

import typer

from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.core.redaction import printable
from holdfast.core.wording import line
from holdfast.face import Holdfast
from holdfast.wiring import sqlite_path

ApplicationArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:NAME", help="The application object, for example app:hold; the same as --app."
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:NAME", help="Use the store of this application object."),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Use the store at this address.",
        show_default="HOLDFAST_DATABASE_URL, else sqlite:///holdfast.db",
    ),
]


USUAL: ContextVar[Callable[[], Holdfast]] = ContextVar("holdfast_usual_application", default=Holdfast)
"""Gives what a command works on that is told neither --app nor --url."""


def chosen(app: str | None, url: str | None) -> Holdfast:
    """Give the application that was named, or a bare one on the store that was named, or the usual one."""
    if app is not None and url is not None:
        raise ConfigError("--app and --url exclude each other; give one of them")
    if app is not None:
        return load(app)
    return USUAL.get()() if url is None else Holdfast(url)


OF_THE_APPLICATION = ("dead plan", "dead archive", "dead restore")
"""Commands that need more than a store: what is declared in the code, or said there."""

PASSWORD = re.compile(r"//[^/@:]*:.*@|\?.*pass", re.IGNORECASE)
"""An address with a password in it, before its host or among what it asks for."""

NAME_IT = "name your application: --app MODULE:NAME"


class Given(NamedTuple):
    """What a command was told to work on, for the words in which it speaks of another one."""

    application: str | None = None
    url: str | None = None

    @property
    def is_application(self) -> bool:
        """Whether it is known what the code declares; of a bare store it is not."""
        return self.application is not None or (self.url is None and USUAL.get() is not Holdfast)

    def typed(self, words: str) -> str:
        """Give a command as it can be typed, on the same application or store."""
        return f"holdfast {words}{self._where(words)}"

    def _where(self, words: str) -> str:
        if self.application is not None:
            return f" --app {self.application}"
        if words.startswith(OF_THE_APPLICATION) and not self.is_application:
            return " --app MODULE:NAME"
        return "" if self.url is None else f" --url {_shown(self.url)}"


def _shown(url: str) -> str:
    """Give an address as a shell takes it; one with a password is not repeated."""
    return "…" if PASSWORD.search(url) else shlex.quote(url)


def named_once(argument: str | None, option: str | None) -> str | None:
    """Give the application that was named, as an argument or with --app. Raises `ConfigError` if it was both."""
    if argument is not None and option is not None:
        raise ConfigError("the application is named twice; leave --app out")
    return argument or option


def served(application: str | None, url: str | None) -> Holdfast:
    """Give the application that a worker is to serve, on the store at *url* if one is named.

    Raises `ConfigError` if none is named, or if it names its store in code: an argument goes before the environment.
    """
    if not Given(application).is_application:
        raise ConfigError(f"a worker needs the code of its jobs; {NAME_IT}")
    if url is not None:
        os.environ["HOLDFAST_DATABASE_URL"] = url  # noqa: TID251 - the application reads it when it is imported
    hold = chosen(application, None)
    if url is not None and hold.settings.database_url != url:
        raise ConfigError("the application names its store in code, so --url cannot; leave it out")
    return hold


def load(reference: str) -> Holdfast:
    """Import the application object that *reference* names, such as `app:hold`.

    Raises `ConfigError` with one line that names what is wrong.
    """
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConfigError(f"{reference!r} names no application; write module:attribute, for example app:hold")
    found = _attribute(_imported(module), name)
    if not isinstance(found, Holdfast):
        raise ConfigError(
            f"{reference} is a {type(found).__name__}, not a Holdfast; name the Holdfast object"
        )
    return found


def ensure_file(hold: Holdfast) -> None:
    """Refuse to look into a SQLite file that is not there: opening it would make an empty one."""
    path = missing_file(hold)
    if path is None:
        return
    if any(hold.parts.registry):  # it is an application's, so its address is known
        raise StoreUnavailable(
            f"there is no SQLite file {path!r} yet: no worker of this application has run, and nothing was submitted"
        )
    raise StoreUnavailable(f"there is no SQLite file {path!r}; give its address with --url, or use --app")


def missing_file(hold: Holdfast) -> str | None:
    """Name the SQLite file of *hold* if it is not there."""
    path = sqlite_path(hold._url)
    return None if path is None or Path(path).exists() else path


def _imported(module: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # an application's module may raise anything
        raise ConfigError(_why_not_imported(module, error)) from error


def _why_not_imported(module: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {module!r} in this folder or among the installed packages"
    if isinstance(error, SyntaxError):
        return f"cannot import {module!r}: {line(error, printable)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "<frozen" not in frame.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"cannot import {module!r}: {line(error, printable)}{place}"


def _attribute(module: ModuleType, name: str) -> object:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise ConfigError(f"module {module.__name__!r} has no {name!r}") from None
