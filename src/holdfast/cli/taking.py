"""Options that several commands have in common, as one value."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def taking(
    make: Callable[..., T],
) -> Callable[[Callable[Concatenate[T, P], R]], Callable[..., R]]:
    """Give a command, or what makes something for one, the options of *make*, and first what that makes of them.

    Typer reads options from signatures, so the command's own is written anew: whoever adds an option to *make*
    adds it to every command that takes it.
    """
    options = inspect.signature(make).parameters

    def given(command: Callable[Concatenate[T, P], R]) -> Callable[..., R]:
        @wraps(command)
        def run(**values: object) -> R:
            made = make(**{name: values.pop(name) for name in options if name in values})
            return command(made, **values)  # type: ignore[call-arg, arg-type] # by the signature below

        _, *own = inspect.signature(command).parameters.values()
        run.__signature__ = inspect.Signature([*options.values(), *own])  # type: ignore[attr-defined] # read by Typer
        return run

    return given
