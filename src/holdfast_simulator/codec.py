"""Scripts as JSON: dataclasses become objects, durations become seconds."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from holdfast_simulator.faults import DOWN, FAULTS, Fault

T = TypeVar("T")


class ScriptError(ValueError):
    """A script cannot be read. The message names the position in the script; nothing was changed."""


def to_json(value: object) -> Any:
    """Return *value* in the form that `json.dumps` accepts; `from_json` is the inverse."""
    match value:
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {name: to_json(member) for name, member in value.items()}
        case tuple() | list():
            return [to_json(member) for member in value]
        case _ if is_dataclass(value):
            kind = {"kind": value.kind} if isinstance(value, Fault) else {}
            return kind | {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def from_json(cls: type[T], value: object, *, where: str = "script") -> T:
    """Build a *cls* from JSON. Raises `ScriptError` for an unknown name or a value of the wrong type."""
    if not isinstance(value, Mapping):
        raise ScriptError(f"{where}: expected an object, got {value!r}")
    types = get_type_hints(cls)
    hints = {field.name: types[field.name] for field in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    if unknown := sorted(value.keys() - hints.keys()):
        raise ScriptError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(hints))}")
    members = {name: _read(hints[name], member, f"{where}.{name}") for name, member in value.items()}
    try:
        return cls(**members)
    except (TypeError, ValueError) as error:
        raise ScriptError(f"{where}: {error}") from error


def fault_from_json(value: object, *, where: str = "fault") -> Fault:
    """Build a fault from `{"kind": ..., ...}`, or from a bare kind, which takes every default.

    >>> fault_from_json({"kind": "slow", "delay": 2.5})
    Slow(delay=datetime.timedelta(seconds=2, microseconds=500000), at=<Moment.AFTER_EFFECT: 'after_effect'>)
    >>> fault_from_json("down").kind
    'status'
    """
    if value == "down":
        return DOWN
    members = dict(value) if isinstance(value, Mapping) else {"kind": value}
    kind = members.pop("kind", None)
    if not isinstance(kind, str) or kind not in FAULTS:
        raise ScriptError(f"{where}: unknown kind {kind!r}; known are down, {', '.join(FAULTS)}")
    return from_json(FAULTS[kind], members, where=where)


def _read(hint: Any, value: object, where: str) -> Any:  # noqa: PLR0911 - one return for each form of hint
    if hint is object:
        return value
    if hint == Fault:
        return fault_from_json(value, where=where)
    if get_origin(hint) is UnionType:
        return _read_optional(hint, value, where)
    if get_origin(hint) is tuple:
        return _read_many(get_args(hint)[0], value, where)
    if get_origin(hint) is Mapping:
        return _read_texts(value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value, where=where)
    return _read_plain(hint, value, where)


def _read_optional(hint: Any, value: object, where: str) -> Any:
    [inner] = [member for member in get_args(hint) if member is not NoneType]
    return None if value is None else _read(inner, value, where)


def _read_many(hint: Any, value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ScriptError(f"{where}: expected a list, got {value!r}")
    return tuple(_read(hint, member, f"{where}[{index}]") for index, member in enumerate(value))


def _read_texts(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ScriptError(f"{where}: expected an object, got {value!r}")
    return {name: _read_plain(str, text, f"{where}.{name}") for name, text in value.items()}


def _read_plain(hint: Any, value: object, where: str) -> Any:
    if hint in {float, timedelta} and isinstance(value, int | float) and not isinstance(value, bool):
        return _read_number(hint, value, where)
    if issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ScriptError(f"{where}: unknown {value!r}; known are {', '.join(hint)}")
        return hint(value)
    if type(value) is not hint:
        raise ScriptError(f"{where}: expected {hint.__name__}, got {value!r}")
    return value


def _read_number(hint: Any, value: float, where: str) -> Any:
    if not math.isfinite(value):
        raise ScriptError(f"{where}: {value!r} is not finite")
    try:
        return timedelta(seconds=value) if hint is timedelta else float(value)
    except OverflowError as error:
        raise ScriptError(f"{where}: {value!r} is too large") from error
