"""Calling a user's function: on the loop or in a thread, with a limit on the wait."""

import asyncio
import contextvars
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.ports import Executor


class TookTooLongError(Exception):
    """The function did not end within its timeout; in a thread it may still be running."""

    def __init__(self, after: timedelta, *, in_thread: bool) -> None:
        super().__init__(f"no answer within {after.total_seconds():g} s")
        self.after = after
        self.in_thread = in_thread


async def call(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    is_async: bool,
    timeout: timedelta | None,
    executor: Executor,
) -> Any:
    """Call *function* and wait for it, at most *timeout*."""
    if timeout is None:
        return await _called(function, args, kwargs, is_async=is_async, executor=executor)
    limit = asyncio.timeout(timeout.total_seconds())
    try:
        async with limit:
            return await _called(function, args, kwargs, is_async=is_async, executor=executor)
    except TimeoutError:
        if limit.expired():
            raise TookTooLongError(timeout, in_thread=not is_async) from None
        raise


async def _called(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    is_async: bool,
    executor: Executor,
) -> Any:
    if is_async:
        return await function(*args, **kwargs)
    context = contextvars.copy_context()
    return await executor.run(partial(context.run, partial(function, *args, **kwargs)))
