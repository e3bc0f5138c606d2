"""A process that submits continuously, and records each id after it was acknowledged.

Orders and parcels are submitted at a rate. Ticks have a backlog, which is refilled when a quarter of it is gone.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from itertools import count

from holdfast import JobFunction
from holdfast.errors import StoreUnavailable
from tests.acceptance.harness.app import TICKS, App, build
from tests.invariants import AWAY, read_waiting

LANES = 4
"""How many submissions may be in flight at once."""

LOOK = 1.0
"""Seconds between two samples of the backlog."""


class Submitter:
    """Submits until SIGTERM, and then finishes the submissions in flight."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._app = build(options.url)
        self._look_at: str = options.look_at or options.url
        self._acks = os.open(options.acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._stopping = asyncio.Event()

    async def run(self, *, rate: float, backlog: int) -> None:
        """Submit until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        async with self._app.hold, asyncio.TaskGroup() as lanes:
            for lane in range(LANES):
                lanes.create_task(self._submit_orders(start=lane, pause=LANES / rate))
            if backlog:
                lanes.create_task(self._keep_up(backlog))

    async def _submit_orders(self, *, start: int, pause: float) -> None:
        for number in count(start, LANES):
            with suppress(StoreUnavailable):  # not acknowledged, so nothing is promised
                handle = await _kind(self._app, number).submit(number)
                self._acknowledged([handle.id])
            if await self._stopped(within=pause):
                return

    async def _keep_up(self, backlog: int) -> None:
        """Refill the backlog when a quarter of it is gone."""
        while not await self._stopped(within=LOOK):
            with suppress(StoreUnavailable, *AWAY):
                missing = backlog - await self._backlog()
                if missing > backlog // 4:
                    handles = await self._app.tick.submit_many((n,) for n in range(missing))
                    self._acknowledged([handle.id for handle in handles])

    async def _backlog(self) -> int:
        waiting = (await read_waiting(self._look_at)).get(TICKS, 0)
        sys.stderr.write(json.dumps({"event": "backlog", "waiting": waiting}) + "\n")
        sys.stderr.flush()
        return waiting

    def _acknowledged(self, ids: list[str]) -> None:
        os.write(self._acks, "".join(f"{job_id}\n" for job_id in ids).encode())

    async def _stopped(self, *, within: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._stopping.wait()
        return self._stopping.is_set()


def _kind(app: App, number: int) -> JobFunction[[int], list[str]]:
    return app.parcel if number % 4 == 0 else app.order


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the database")
    parser.add_argument("--look-at", help="the database without faults, to sample the backlog")
    parser.add_argument("--acks", required=True, help="file to which acknowledged ids are written")
    parser.add_argument("--rate", type=float, default=40, help="orders and parcels per second, at most")
    parser.add_argument("--backlog", type=int, default=0, help="how many ticks to keep waiting")
    return parser.parse_args()


async def main() -> None:
    """Submit until SIGTERM."""
    options = _options()
    await Submitter(options).run(rate=options.rate, backlog=options.backlog)


if __name__ == "__main__":
    asyncio.run(main())
