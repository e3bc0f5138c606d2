"""Runs a worker in parallel to other code."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.engine.worker.worker import Worker


@asynccontextmanager
async def running(worker: "Worker") -> "AsyncIterator[Worker]":
    """Run *worker* while the block runs, then stop it and wait until it has finished its jobs.

    An error of the worker ends the block, so that an application does not go on without its worker.
    """
    stopped = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_run(worker, stopped), name=f"holdfast {worker.name}")
            try:
                yield worker
            finally:
                stopped.set()
                worker.stop()
                # Before the group cancels it, if the block failed: a claim that is cancelled may have been committed.
                await asyncio.wait([task])
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def _run(worker: "Worker", stopped: asyncio.Event) -> None:
    try:
        await worker.run()
    except asyncio.CancelledError:
        if stopped.is_set():
            raise
        # A task group ignores that one of its tasks was cancelled.
        raise RuntimeError(f"the worker {worker.name!r} was cancelled from outside") from None
