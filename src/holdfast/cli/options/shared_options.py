"""Passes options that several commands share to them as one value."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def with_options_of(
    make: Callable[..., T],
) -> Callable[[Callable[Concatenate[T, P], R]], Callable[..., R]]:
    """Add the options of *make* to a command, and pass what *make* returns as its first argument.

    Typer reads options from signatures, so the signature of the command is extended: an option that is added to
    *make* is added to every command that uses it.
    """
    options = inspect.signature(make).parameters

    def decorate(command: Callable[Concatenate[T, P], R]) -> Callable[..., R]:
        @wraps(command)
        def run(**values: object) -> R:
            made = make(**{name: values.pop(name) for name in options if name in values})
            return command(made, **values)  # type: ignore[call-arg, arg-type] # by the signature below

        _, *own = inspect.signature(command).parameters.values()
        run.__signature__ = inspect.Signature([*options.values(), *own])  # type: ignore[attr-defined] # read by Typer
        return run

    return decorate
