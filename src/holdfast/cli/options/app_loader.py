"""Resolves --app and --url to the Holdfast that a command works on."""

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

from holdfast.app import Holdfast
from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.core.failures.message import one_line
from holdfast.core.redaction import printable

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


DEFAULT_APPLICATION: ContextVar[Callable[[], Holdfast]] = ContextVar(
    "holdfast_default_application", default=Holdfast
)
"""Makes the Holdfast of a command that gets neither --app nor --url."""


def resolve(app: str | None, url: str | None) -> Holdfast:
    """Return the Holdfast of the application *app*, a bare one on the store at *url*, or the default one."""
    if app is not None and url is not None:
        raise ConfigError("--app and --url are mutually exclusive")
    if app is not None:
        return load(app)
    return DEFAULT_APPLICATION.get()() if url is None else Holdfast(url)


NEEDS_APPLICATION = ("dead plan", "dead archive", "dead restore")
"""Commands that need the application's declarations or settings, not only its store."""

PASSWORD = re.compile(r"//[^/@:]*:.*@|\?.*pass", re.IGNORECASE)
"""Matches a URL with a password, in its authority or its query."""

APP_HINT = "give the application with --app MODULE:NAME"


class Target(NamedTuple):
    """The --app and --url of a command, from which it builds the next command to type."""

    application: str | None = None
    url: str | None = None

    @property
    def is_application(self) -> bool:
        """Whether the application's declarations are available; with a bare store they are not."""
        return self.application is not None or (
            self.url is None and DEFAULT_APPLICATION.get() is not Holdfast
        )

    def command_line(self, words: str) -> str:
        """Return a command for the same application or store, as it is typed in a shell."""
        return f"holdfast {words}{self._store_option(words)}"

    def _store_option(self, words: str) -> str:
        if self.application is not None:
            return f" --app {self.application}"
        if words.startswith(NEEDS_APPLICATION) and not self.is_application:
            return " --app MODULE:NAME"
        if self.url is None:
            return ""
        return " --url …" if PASSWORD.search(self.url) else f" --url {shlex.quote(self.url)}"


def application_reference(argument: str | None, option: str | None) -> str | None:
    """Return the application, from the argument or --app. Raises `ConfigError` if both are given."""
    if argument is not None and option is not None:
        raise ConfigError("the application is given twice; omit --app")
    return argument or option


def resolve_for_worker(application: str | None, url: str | None) -> Holdfast:
    """Return the application that a worker serves, on the store at *url* if one is given.

    Raises `ConfigError` if no application is given, or if it names its store in code, which overrides the environment.
    """
    if not Target(application).is_application:
        raise ConfigError(f"a worker needs the application that declares its jobs; {APP_HINT}")
    if url is not None:
        os.environ["HOLDFAST_DATABASE_URL"] = url  # noqa: TID251 - the application reads it when it is imported
    hold = resolve(application, None)
    if url is not None and hold.settings.database_url != url:
        raise ConfigError("--url cannot override the store that the application names in code; omit --url")
    return hold


def load(reference: str) -> Holdfast:
    """Import the application object that *reference* names, such as `app:hold`.

    Raises `ConfigError` with a one-line reason.
    """
    found = load_object(reference)
    if not isinstance(found, Holdfast):
        raise ConfigError(
            f"{reference} is a {type(found).__name__}, not a Holdfast; name the Holdfast object"
        )
    return found


def load_object(reference: str) -> object:
    """Import the object that *reference* names. Raises `ConfigError` with a one-line reason."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConfigError(
            f"{reference!r} is not a reference to an application; write module:attribute, for example app:hold"
        )
    return _attribute(_import(module), name)


def ensure_file(hold: Holdfast) -> None:
    """Raise `StoreUnavailable` if the SQLite file does not exist: opening it would create an empty one."""
    path = hold.database.missing_file
    if path is None:
        return
    if any(hold.runtime.registry):  # an application names the right file; a bare address may be wrong
        raise StoreUnavailable(
            f"there is no SQLite file {path!r} yet: no worker of this application has run, and nothing was submitted"
        )
    raise StoreUnavailable(f"there is no SQLite file {path!r}; give its address with --url, or use --app")


def _import(module: str) -> ModuleType:
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
        return f"cannot import {module!r}: {one_line(error, printable)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "<frozen" not in frame.filename]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"cannot import {module!r}: {one_line(error, printable)}{where}"


def _attribute(module: ModuleType, name: str) -> object:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise ConfigError(f"module {module.__name__!r} has no {name!r}") from None
