"""Running a worker beside other code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.engine.worker.worker import Worker


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """Run *worker* while the block runs, then let it finish.

    A worker that breaks ends the block: an application shall not go on in the belief that its jobs run.
    """
    told = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_run(worker, told), name=f"holdfast {worker.name}")
            try:
                yield worker
            finally:
                told.set()
                worker.stop()
                # Before the group cancels it, if the block failed: a claim that is cancelled may have been committed.
                await asyncio.wait([task])
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def _run(worker: Worker, told: asyncio.Event) -> None:
    try:
        await worker.run()
    except asyncio.CancelledError:
        if told.is_set():
            raise
        # A group takes the cancellation of one task for no more than that task's end.
        raise RuntimeError(f"the worker {worker.name!r} was cancelled by somebody else") from None
