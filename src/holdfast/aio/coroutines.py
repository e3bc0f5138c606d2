"""Coroutines without an event loop, and objects that frameworks take for coroutine functions."""

import asyncio
import inspect
import sys
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


def mark_async(function: object) -> None:
    """Mark *function* as async for frameworks, which take an object with `__call__` for a plain function."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # all that 3.11 looks at
