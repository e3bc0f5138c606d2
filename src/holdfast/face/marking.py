"""Telling frameworks that an object is to be awaited."""

import asyncio
import inspect
import sys


def mark_async(function: object) -> None:
    """Have *function* taken for async: frameworks ask before they call, and an object with `__call__` looks plain."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # all that 3.11 looks at
