"""A process that submits without rest, and writes down each id that was acknowledged, after it was."""

import argparse
import asyncio
import os
import signal
from contextlib import suppress

from holdfast import StoreUnavailable
from tests.acceptance.harness.app import App, build

LANES = 4
"""How many submissions may be under way at once."""


async def main() -> None:
    """Submit orders and parcels until SIGTERM, then finish those under way."""
    options = _options()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    acks = os.open(options.acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    app = build(options.url)
    async with app.hold, asyncio.TaskGroup() as lanes:
        for lane in range(LANES):
            lanes.create_task(_submit(app, acks, stopping, start=lane, pause=LANES / options.rate))


async def _submit(app: App, acks: int, stopping: asyncio.Event, *, start: int, pause: float) -> None:
    number = start
    while not stopping.is_set():
        with suppress(StoreUnavailable):  # not acknowledged, so nothing is promised
            handle = await (app.parcel if number % 4 == 0 else app.order).submit(number)
            os.write(acks, f"{handle.id}\n".encode())
        number += LANES
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stopping.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the database")
    parser.add_argument("--acks", required=True, help="file to which acknowledged ids are written")
    parser.add_argument("--rate", type=float, default=40, help="submissions per second, at most")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
