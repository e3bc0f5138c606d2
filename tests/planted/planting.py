"""How a bug gets into a healthy engine, and out again: by other SQL, or by another function in place of one.

A patch that no longer fits the code it was written for is refused: a bug that is not there proves nothing.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.stores.queries import Queries
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager


class Outdated(Exception):
    """The code has changed, and the patch does not fit it any more; write it again for the new code."""


class Patch(Protocol):
    """One change to the code."""

    def planted(self) -> AbstractContextManager[None]:
        """Change the code while the block runs."""
        ...


@dataclass(frozen=True)
class Sql:
    """Another wording of a statement of the SQLite store."""

    statement: str
    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Return the other wording to every reader of the statement."""
        healthy, read = SQL[self.statement], Queries.__getitem__
        if self.old not in healthy:
            raise Outdated(f"{self.statement}.sql does not say {self.old!r}")
        sick = healthy.replace(self.old, self.new)

        def misread(statements: Queries, name: str) -> str:
            text = read(statements, name)
            return sick if text == healthy else text

        with Swap(Queries, "__getitem__", misread).planted():
            yield


@dataclass(frozen=True)
class Schema:
    """Another wording of the SQLite store's schema, in databases that are made while it is planted."""

    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Create every schema with the other wording."""
        healthy = schema.MIGRATIONS
        sick = [(version, script.replace(self.old, self.new)) for version, script in healthy]
        if sick == healthy:
            raise Outdated(f"no migration says {self.old!r}")
        with Swap(schema, "MIGRATIONS", sick).planted():
            yield


@dataclass(frozen=True)
class Swap:
    """Another function, or value, in place of the one that *owner* knows by *name*."""

    owner: Any
    name: str
    value: Any

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Put the other one in, and the healthy one back at the end."""
        if self.name not in vars(self.owner):
            raise Outdated(f"{self.owner} has no {self.name!r} of its own")
        healthy = vars(self.owner)[self.name]
        if not _takes_as_much(self.value, healthy):
            raise Outdated(f"{self.name!r} is called with other arguments now")
        setattr(self.owner, self.name, self.value)
        try:
            yield
        finally:
            setattr(self.owner, self.name, healthy)


def _takes_as_much(value: Any, healthy: Any) -> bool:
    """Whether *value* can be called as the healthy function is; another value than a function always fits."""
    if not inspect.isfunction(value) or not inspect.isfunction(healthy):
        return True
    asked = inspect.signature(healthy).parameters.values()
    positional = [each.name for each in asked if each.kind is not each.KEYWORD_ONLY]
    named = {each.name: None for each in asked if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(value).bind(*positional, **named)
    except TypeError:
        return False
    return True


@dataclass(frozen=True)
class Bug:
    """A mistake: its reason in the words of its author, the guarantees it breaks, and the lines it consists of.

    Not every rule of the protocol has a guarantee of its own; a bug that breaks none of them is still a bug.
    """

    name: str
    story: str
    clauses: tuple[str, ...]
    patches: tuple[Patch, ...]
    simulated: bool = True
    """Whether a simulated life can show it: what only makes things slower leaves no trace in the tables."""


@contextmanager
def all_planted(patches: Iterable[Patch]) -> Iterator[None]:
    """Plant several patches at once: some mistakes take more than one line."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch.planted())
        yield
