"""The simulator as tests and demos use it."""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Self

from holdfast_simulator.control import Control
from holdfast_simulator.exchange import Exchange
from holdfast_simulator.faults import Fault, Refuse
from holdfast_simulator.listener import Listener
from holdfast_simulator.log import CallLog, Counts, Entry, count
from holdfast_simulator.provider import Provider
from holdfast_simulator.script import Script


class Simulator:
    """An outside provider that fails as its script says and logs what truly happened.

    It listens on the loopback interface alone. *clock* gives the monotonic seconds by which key
    windows and lookup lags are measured; delays are real time.

    >>> async def example() -> int:
    ...     async with Simulator() as sim:
    ...         return sim.counts().calls
    >>> asyncio.run(example())
    0
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        log_path: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._log = CallLog(log_path)
        self._provider = Provider(script or Script(), self._log, clock=clock)
        self._control = Control(
            self._provider, stand=self._stand, clear=self.clear_fault, start_over=self.reset
        )
        self._listener = Listener(self._serve)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where clients find the provider, without a slash at the end."""
        return f"http://127.0.0.1:{self._listener.port}"

    @property
    def script(self) -> Script:
        """The script in force; a new one begins with its first call."""
        return self._provider.script

    @script.setter
    def script(self, script: Script) -> None:
        self._provider.follow(script)

    @property
    def entries(self) -> list[Entry]:
        """Every call logged so far, in order."""
        return list(self._log.entries)

    async def start(self) -> None:
        """Begin to listen. Raises `OSError` if the port is taken."""
        try:
            await self._listener.start(self._port)
        except OSError:
            self._log.close()
            raise

    async def stop(self) -> None:
        """End every connection. A call that was still waiting for its effect has none, and no line."""
        await self._listener.stop()
        self._log.close()

    def counts(self) -> Counts:
        """Count the calls logged so far."""
        return count(self._log.entries)

    async def wait_for(
        self, wanted: Callable[[Entry], bool], *, timeout: timedelta = timedelta(seconds=10)
    ) -> Entry:
        """Return the first logged call that is *wanted*, past or to come. Raises `TimeoutError`."""
        return await self._log.wait_for(wanted, timeout=timeout)

    def stand_fault(self, fault: Fault, *, route: str | None = None) -> None:
        """Let a fault strike every call to *route*, ahead of the script, until it is cleared.

        `Refuse` concerns all routes: it closes the port at once, and ends by itself.
        """
        if isinstance(fault, Refuse):
            self._listener.refuse(fault.duration)
        else:
            self._provider.standing[route] = fault

    def clear_fault(self, route: str | None = None) -> None:
        """Clear the standing fault of a route; for None clear all, and let clients in again."""
        if route is not None:
            self._provider.standing.pop(route, None)
            return
        self._provider.standing.clear()
        self._listener.accept()

    def reset(self) -> None:
        """Forget calls, effects and standing faults, and begin the script again. Empties the log file."""
        self.clear_fault()
        self._provider.forget()

    def _stand(self, fault: Fault, route: str | None) -> None:
        self.stand_fault(fault, route=route)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(
            reader, writer, provider=self._provider, control=self._control, refuse=self._listener.refuse
        )
        await exchange.run()
