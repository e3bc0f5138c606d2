"""Notifies systemd that the process is ready, and then, periodically, that it is live.

The protocol is a message in a datagram, to a socket that systemd names in the environment (`sd_notify(3)`).
A process that hangs sends nothing, and systemd restarts it after `WatchdogSec=`.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from holdfast.telemetry.health_server import Route

POLL_SECONDS = 0.2
"""Seconds between two checks of a process that is not ready yet."""
BEATS = 3
"""Notifications per watchdog interval."""


class Systemd:
    """The systemd socket that *environment* names; without one, nothing is sent."""

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,  # noqa: TID251 - systemd's own words, not settings
    ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_interval = _watchdog_interval(environment)

    @asynccontextmanager
    async def notifying(self, *, live: Route, ready: Route) -> AsyncIterator[None]:
        """While the block runs, notify systemd when *ready* succeeds, and then as long as *live* does."""
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
        while not (await _is_ok(ready) and self._notify("READY=1")):  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(POLL_SECONDS)
        while self._watchdog_interval is not None:
            if await _is_ok(live):
                self._notify("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_interval)

    def _notify(self, message: str) -> bool:
        """Send *message* without blocking, and return whether it was sent; a later one follows."""
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.setblocking(False)
            return sock.sendto(message.encode(), address) > 0
        return False


def _watchdog_interval(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between two notifications, or `None` without a watchdog for this process."""
    ours = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not ours or not microseconds.isdigit() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6 / BEATS


async def _is_ok(route: Route) -> bool:
    return (await route()).status is HTTPStatus.OK
