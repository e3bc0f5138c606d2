"""A worker process. SIGTERM lets it finish; exit code 75 says that its database was away at the start."""

import argparse
import asyncio
import signal
import sys

from holdfast import StoreUnavailable
from tests.acceptance.harness.app import brief, build

STORE_AWAY = 75
DIED = 70


async def main() -> int:
    """Work until told to stop."""
    options = _options()
    app = build(options.url, service_url=options.service)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    working = app.hold.worker(
        slots=options.slots, lease=brief(options.lease), grace="5s", poll=brief(options.poll)
    )
    async with app.service, app.hold, working as worker:
        await _told_or_dead(stopping, f"holdfast {worker.name}")
    return 0 if stopping.is_set() else DIED


async def _told_or_dead(stopping: asyncio.Event, name: str) -> None:
    """Wait for the signal, or for an end of the worker that nobody asked for."""
    [working] = [task for task in asyncio.all_tasks() if task.get_name() == name]
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait([told, working], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the database")
    parser.add_argument("--service", default="http://127.0.0.1:9", help="where effects go")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--lease", type=float, default=2.0, help="in seconds")
    parser.add_argument("--poll", type=float, default=0.2, help="in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except StoreUnavailable as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STORE_AWAY)
