"""Short representations of values, for the traces of failing examples."""

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from holdfast.core.failures.failure import Failure
from tests.stateful.model import START


def short_repr(value: Any) -> str:  # noqa: PLR0911 - one return per kind of value reads as a table
    """Represent *value* without defaults, and a failure by its class and message.

    >>> short_repr([timedelta(seconds=90), START + timedelta(milliseconds=1)])
    '[90s, START+0.001s]'
    """
    match value:
        case timedelta():
            return f"{value.total_seconds():g}s"
        case datetime():
            return f"START+{short_repr(value - START)}"
        case Enum():
            return str(value.value)
        case Failure():
            return f"{value.error_class}({value.message!r})"
        case list() | tuple() if not hasattr(value, "_fields"):
            return f"[{', '.join(map(short_repr, value))}]"
        case _ if is_dataclass(value) or hasattr(value, "_fields"):
            given = [
                f"{name}={short_repr(part)}" for name, part, default in _fields(value) if part != default
            ]
            return f"{type(value).__name__}({', '.join(given)})"
        case _:
            return repr(value)


def _fields(value: Any) -> list[tuple[str, Any, Any]]:
    """List the fields of a value, with their values and defaults."""
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name), field.default) for field in fields(value)]
    return [(name, part, value._field_defaults.get(name, MISSING)) for name, part in value._asdict().items()]
