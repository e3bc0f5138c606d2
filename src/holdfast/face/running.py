"""Running a worker beside other code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.engine.worker import Worker


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """Run *worker* while the block runs, then let it finish; its own error, if any, comes out here."""
    task = asyncio.create_task(worker.run(), name=f"holdfast {worker.name}")
    try:
        yield worker
    finally:
        worker.stop()
        await task
