"""The port of the simulator: its open connections, and whether new ones are accepted."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast_simulator.http import HEAD_LIMIT
from holdfast_simulator.sockets import bind_loopback, reset

if TYPE_CHECKING:
    import socket

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]

_BACKLOG = 1024


class Listener:
    """Listens on one loopback port and owns the task of every connection.

    While it refuses connections, it keeps the port bound without listening, so that no other process can bind it.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._bound: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    async def start(self, port: int) -> None:
        """Listen on *port*, or on any free one for 0. Raises `OSError` if it is taken."""
        self._bound = bind_loopback(port)
        self.port = self._bound.getsockname()[1]
        await self._open()

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        tasks = list(self._connections)
        if self._reopening is not None:
            tasks.append(self._reopening)
        self._close_server()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def refuse(self, duration: timedelta) -> None:
        """Reset every connection except that of the caller, and refuse new ones for *duration*."""
        self._close_server()
        caller = asyncio.current_task()
        for task, writer in self._connections.items():
            if task is not caller:
                reset(writer)
        if self._bound is not None:
            self._bound.close()  # it may already be listening
        self._bound = bind_loopback(self.port)
        self._reopen(after=duration)

    def accept(self) -> None:
        """Accept connections again, immediately."""
        if self._server is None and self._bound is not None:
            # From here on the kernel accepts connections, and queues them until the event loop serves them.
            self._bound.listen(_BACKLOG)
            self._reopen(after=timedelta(0))

    def _reopen(self, *, after: timedelta) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
        self._reopening = asyncio.create_task(self._open_later(after), name="simulator-reopening")

    async def _open_later(self, after: timedelta) -> None:
        await asyncio.sleep(after.total_seconds())
        await self._open()

    async def _open(self) -> None:
        server = await asyncio.start_server(
            self._accept, sock=self._bound, limit=HEAD_LIMIT, backlog=_BACKLOG, start_serving=False
        )
        # Assigned before it serves: if the next line is cancelled, `stop` still closes it.
        self._server, self._bound = server, None
        await server.start_serving()

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="simulator-connection")
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
