"""Values as a person would write them down, for the traces of failing examples."""

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from holdfast.core.failures.failure import Failure
from tests.stateful.model import START


def brief(value: Any) -> str:  # noqa: PLR0911 - one return per kind of value reads as a table
    """Write *value* without what goes without saying: defaults, and what a failure's class means.

    >>> brief([timedelta(seconds=90), START + timedelta(milliseconds=1)])
    '[90s, START+0.001s]'
    """
    match value:
        case timedelta():
            return f"{value.total_seconds():g}s"
        case datetime():
            return f"START+{brief(value - START)}"
        case Enum():
            return str(value.value)
        case Failure():
            return f"{value.error_class}({value.message!r})"
        case list() | tuple() if not hasattr(value, "_fields"):
            return f"[{', '.join(map(brief, value))}]"
        case _ if is_dataclass(value) or hasattr(value, "_fields"):
            told = [f"{name}={brief(part)}" for name, part, usual in _parts(value) if part != usual]
            return f"{type(value).__name__}({', '.join(told)})"
        case _:
            return repr(value)


def _parts(value: Any) -> list[tuple[str, Any, Any]]:
    """Name the fields of a value, with what they are and what they usually are."""
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name), field.default) for field in fields(value)]
    return [(name, part, value._field_defaults.get(name, MISSING)) for name, part in value._asdict().items()]
