"""What functions take and give, worked out once for all the processes that declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from holdfast.engine.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_SHAPES: dict[tuple[str, str], Shape] = {}


def shapes_made_once() -> AbstractContextManager[Any]:
    """Spare every process the making of its jobs' shapes: they never change, and take much of the time."""

    def shape(function: Callable[..., Any], *, what: str) -> Shape:
        place = (what, function.__qualname__)
        if place not in _SHAPES:
            _SHAPES[place] = Shape(function, what=what)
        return _SHAPES[place]

    return mock.patch("holdfast.face.declaring.Shape", shape)
