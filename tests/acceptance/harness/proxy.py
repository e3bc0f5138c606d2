"""A network that can be broken: a TCP proxy with a route for each client.

Each `Route` is a port that leads to the same server, so that one client can be cut off while the others go on.
A fault is in effect when its method returns. The proxy runs in a thread; all its methods are called from
other threads.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
End = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CHUNK = 65_536
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time at all: closing then sends RST, and drops what was not sent yet."""


class Proxy:
    """Leads to one server. Use it as a context: at its end all routes are closed."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._routes: list[Route] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._wind_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def route(self) -> Route:
        """Open another route to the server."""
        route = Route(self, self._server)
        self.do(route.open())
        self._routes.append(route)
        return route

    async def _wind_up(self) -> None:
        for route in self._routes:
            route.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the proxy's thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


class Route:
    """One client's route to the server, which can be slowed down, cut, reset or made half open."""

    def __init__(self, proxy: Proxy, server: tuple[str, int]) -> None:
        self._proxy = proxy
        self._server = server
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self.passes_on_ends = True
        self.withheld = threading.Event()
        """Set once an end closed its connection and this was not passed on; all data sent before has arrived."""
        self._whole = asyncio.Event()
        self._whole.set()
        self.port = 0

    def slow_down(self, seconds: float) -> None:
        """Delay each piece of data, in both directions, by *seconds*. Zero means no delay."""
        self._proxy.do(self._slow_down(seconds))

    def cut(self) -> None:
        """Let nothing through, in either direction. Data sent meanwhile arrives after `restore`, as with TCP."""
        self._proxy.do(self._cut())

    def restore(self) -> None:
        """Undo `cut`, `slow_down` and `withhold_ends`."""
        self._proxy.do(self._restore())

    def reset(self) -> int:
        """Break every connection with a TCP reset on both ends; return how many there were."""
        return self._proxy.do(self._reset())

    def half_open(self) -> int:
        """Drop all data sent on the existing connections from now on; return how many there are.

        Neither end is notified, nor is a close passed on. New connections work.
        """
        return self._proxy.do(self._half_open())

    def withhold_ends(self) -> None:
        """Pass on data from now on, but not that an end closed its connection."""
        self.passes_on_ends = False

    async def open(self) -> None:
        """Listen."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening. Connections end with the proxy's tasks."""
        assert self._listener is not None
        self._listener.close()

    async def _slow_down(self, seconds: float) -> None:
        self._delay = seconds

    async def _cut(self) -> None:
        self._whole.clear()

    async def _restore(self) -> None:
        self.passes_on_ends = True
        self._delay = 0.0
        self._whole.set()

    async def _reset(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    async def _half_open(self) -> int:
        links = [link for link in self._links if not link.silent]
        for link in links:
            link.silent = True
        return len(links)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._lead((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lead(self, client: End) -> None:
        """Connect a client to the server; abort its connection if the server is not available."""
        await self.passage()
        try:
            server = await asyncio.open_connection(*self._server)
        except OSError:
            client[1].transport.abort()
            return
        link = _Link(self, client, server)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def passage(self) -> None:
        """Wait until data may go through."""
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._whole.wait()


class _Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, route: Route, client: End, server: End) -> None:
        self._route = route
        self._ends = (client, server)
        self.silent = False

    async def run(self) -> None:
        """Carry data in both directions until an end closes; a silent link passes on nothing, not even that."""
        (from_client, to_client), (from_server, to_server) = self._ends
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(from_client, to_server))
                pumps.create_task(self._pump(from_server, to_client))
        finally:
            for _, writer in self._ends:
                writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                await self._route.passage()
                if not self.silent:
                    writer.write(data)
                    await writer.drain()
        await self._route.passage()  # the end of a connection travels no faster than its data
        if not self._route.passes_on_ends:
            self._route.withheld.set()
        elif not self.silent:
            writer.close()

    def reset(self) -> None:
        """Break both connections."""
        for _, writer in self._ends:
            end: socket.socket | None = writer.get_extra_info("socket")
            if end is not None and not writer.transport.is_closing():
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            writer.transport.abort()
