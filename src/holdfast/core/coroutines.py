"""Coroutines without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, in this thread: one that is async only because its siblings have to be.

    >>> async def three() -> int:
    ...     return 3
    >>> run_here(three())
    3
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the coroutine returned
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for something that never wakes it here")
