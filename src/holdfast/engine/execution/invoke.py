"""Calls the user's function: on the event loop or in a thread, with a timeout."""

import asyncio
import contextvars
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.engine.registry import JobSpec, StageSpec
from holdfast.ports import Executor


class TookTooLongError(Exception):
    """The function did not end within its timeout; in a thread it may still be running."""

    def __init__(self, after: timedelta, *, in_thread: bool) -> None:
        super().__init__(f"no answer within {after.total_seconds():g} s")
        self.after = after
        self.in_thread = in_thread


async def call(
    spec: JobSpec | StageSpec,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    executor: Executor,
    timeout: timedelta | None = None,
) -> Any:
    """Call the function of *spec* and wait for it, at most its timeout, or *timeout* if that is shorter."""
    longest = spec.timeout if timeout is None else min(timeout, spec.timeout or timeout)
    if longest is None:
        return await _call_function(spec, args, kwargs, executor)
    limit = asyncio.timeout(longest.total_seconds())
    try:
        async with limit:
            return await _call_function(spec, args, kwargs, executor)
    except TimeoutError:
        if limit.expired():
            raise TookTooLongError(longest, in_thread=not spec.is_async) from None
        raise


async def _call_function(
    spec: JobSpec | StageSpec, args: list[Any], kwargs: dict[str, Any], executor: Executor
) -> Any:
    if spec.is_async:
        return await spec.function(*args, **kwargs)
    context = contextvars.copy_context()
    return await executor.run(partial(context.run, partial(spec.function, *args, **kwargs)))
