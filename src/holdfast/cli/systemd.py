"""What a process under systemd tells its supervisor: that it is up, and again and again that it lives.

The protocol is a word in a datagram, to a socket that systemd names in the environment (`sd_notify(3)`).
Whoever hangs falls silent, and is started anew when `WatchdogSec=` is over.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from holdfast.telemetry.probes import Route

LOOK = 0.2
"""Seconds between two looks at a process that is not up yet."""
BEATS = 3
"""How often a process reports within the time in which it has to."""


class Systemd:
    """The supervisor that *environment* tells of, or nobody who listens."""

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,  # noqa: TID251 - systemd's own words, not settings
    ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._pause = _pause(environment)

    @asynccontextmanager
    async def informed(self, *, live: Route, ready: Route) -> AsyncIterator[None]:
        """While the block runs, tell when *ready* says so, and from then on beat as long as *live* does."""
        if not self._address:
            yield
            return
        report = asyncio.create_task(self._report(live, ready), name="holdfast report to systemd")
        try:
            yield
        finally:
            report.cancel()
            await asyncio.wait([report])

    async def _report(self, live: Route, ready: Route) -> None:
        while not (await _is_well(ready) and self._tell("READY=1")):  # noqa: ASYNC110 - it has to be asked
            await asyncio.sleep(LOOK)
        while self._pause is not None:
            if await _is_well(live):
                self._tell("WATCHDOG=1")
            await asyncio.sleep(self._pause)

    def _tell(self, word: str) -> bool:
        """Send *word*, unless nobody takes it now: a supervisor that is busy holds no job up, and hears the next."""
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
            line.setblocking(False)
            return line.sendto(word.encode(), address) > 0
        return False


def _pause(environment: Mapping[str, str]) -> float | None:
    """Give the seconds between two beats, if somebody waits for those of this process."""
    ours = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not ours or not microseconds.isdigit() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6 / BEATS


async def _is_well(route: Route) -> bool:
    return (await route()).status is HTTPStatus.OK
