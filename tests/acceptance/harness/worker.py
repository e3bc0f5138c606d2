"""A worker process. SIGTERM lets it finish; exit code 75 means that its database was not available at the start.

With `--ticks` it runs ticks beside its other jobs, in slots of their own, so that neither waits for the other.
"""

import argparse
import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from holdfast.engine.worker.worker import Worker
from holdfast.errors import StoreUnavailable
from tests.acceptance.harness.app import TICKS, App, build, duration

STORE_AWAY = 75
DIED = 70


async def main() -> int:
    """Work until SIGTERM or SIGINT."""
    options = _options()
    app = build(options.url, service_url=options.service)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with app.service, app.hold, AsyncExitStack() as stack:
        queues = {"default": options.slots} | ({TICKS: options.ticks} if options.ticks else {})
        workers = [
            await stack.enter_async_context(_worker(app, queue, slots, options))
            for queue, slots in queues.items()
        ]
        await _wait_for_stop_or_death(stopping, {f"holdfast {worker.name}" for worker in workers})
    return 0 if stopping.is_set() else DIED


def _worker(
    app: App, queue: str, slots: int, options: argparse.Namespace
) -> AbstractAsyncContextManager[Worker]:
    return app.hold.worker(
        queues=[queue], slots=slots, lease=duration(options.lease), grace="5s", poll=duration(options.poll)
    )


async def _wait_for_stop_or_death(stopping: asyncio.Event, names: set[str]) -> None:
    """Wait for the signal, or for an unexpected end of a worker."""
    working = [task for task in asyncio.all_tasks() if task.get_name() in names]
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait([stopped, *working], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the database")
    parser.add_argument("--service", default="http://127.0.0.1:9", help="where effects go")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=0, help="slots for ticks")
    parser.add_argument("--lease", type=float, default=2.0, help="in seconds")
    parser.add_argument("--poll", type=float, default=0.2, help="in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except StoreUnavailable as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STORE_AWAY)
