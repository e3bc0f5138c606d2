"""The simulator, the interface for tests and demos."""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Self

from holdfast_simulator.connection import Connection
from holdfast_simulator.control import Control
from holdfast_simulator.faults import Fault, Refuse
from holdfast_simulator.listener import Listener
from holdfast_simulator.log import CallLog, Counts, Entry, count
from holdfast_simulator.provider import Provider
from holdfast_simulator.script import Script


class Simulator:
    """An external provider that fails according to its script and logs every call.

    It listens on the loopback interface only. *clock* returns the monotonic seconds by which key
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
            self._provider, set_fault=self.set_fault, clear_fault=self.clear_fault, reset=self.reset
        )
        self._listener = Listener(self._serve)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The address of the provider, without a slash at the end."""
        return f"http://127.0.0.1:{self._listener.port}"

    @property
    def script(self) -> Script:
        """The current script; a new one counts calls from its assignment."""
        return self._provider.script

    @script.setter
    def script(self, script: Script) -> None:
        self._provider.set_script(script)

    @property
    def entries(self) -> list[Entry]:
        """The calls logged so far, in order."""
        return list(self._log.entries)

    async def start(self) -> None:
        """Start listening. Raises `OSError` if the port is in use."""
        try:
            await self._listener.start(self._port)
        except OSError:
            self._log.close()
            raise

    async def stop(self) -> None:
        """End all connections. A call whose effect has not taken place yet has no effect and is not logged."""
        await self._listener.stop()
        self._log.close()

    def counts(self) -> Counts:
        """Count the calls logged so far."""
        return count(self._log.entries)

    async def wait_for(
        self, matches: Callable[[Entry], bool], *, timeout: timedelta = timedelta(seconds=10)
    ) -> Entry:
        """Return the first call that *matches*, already logged or future. Raises `TimeoutError`."""
        return await self._log.wait_for(matches, timeout=timeout)

    def set_fault(self, fault: Fault, *, route: str | None = None) -> None:
        """Inject a fault into every call to *route*, before the script is consulted, until it is cleared.

        `Refuse` applies to all routes: it closes the port immediately, and ends after its duration.
        """
        if isinstance(fault, Refuse):
            self._listener.refuse(fault.duration)
        else:
            self._provider.standing[route] = fault

    def clear_fault(self, route: str | None = None) -> None:
        """Clear the standing fault of a route; with None clear all, and accept connections again."""
        if route is not None:
            self._provider.standing.pop(route, None)
            return
        self._provider.standing.clear()
        self._listener.accept()

    def reset(self) -> None:
        """Delete calls, effects and standing faults, and start the script again. Empties the log file."""
        self.clear_fault()
        self._provider.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(
            reader, writer, provider=self._provider, control=self._control, refuse=self._listener.refuse
        )
        await connection.run()
