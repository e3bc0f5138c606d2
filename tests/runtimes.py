"""Runtimes with a few parts, for tests of one service."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.engine.runtime import Runtime


def a_runtime(**parts: Any) -> "Runtime":
    """Make a runtime of these parts alone: a service that uses another one fails."""
    return cast("Runtime", SimpleNamespace(**parts))
