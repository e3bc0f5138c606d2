"""What is the same for all processes of a world, worked out once: what functions take and give, and the settings."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from holdfast.config import load_settings
from holdfast.engine.signature import Signature

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_SHAPES: dict[tuple[str, str], Signature] = {}


def shapes_made_once() -> AbstractContextManager[Any]:
    """Make the shapes of the jobs once for all processes: they never change, and take much of the time."""

    def shape(function: Callable[..., Any], *, what: str, **options: Any) -> Signature:
        place = (what, function.__qualname__)
        if place not in _SHAPES:
            _SHAPES[place] = Signature(function, what=what, **options)
        return _SHAPES[place]

    return mock.patch("holdfast.app.specs.Signature", shape)


def settings_read_once() -> AbstractContextManager[Any]:
    """Read the settings once for all processes of a world: they are the same for all."""
    return mock.patch("holdfast.app.holdfast.load_settings", cache(load_settings))
