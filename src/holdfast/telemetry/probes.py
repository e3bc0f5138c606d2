"""A very small HTTP server, for those who look after a process.

It shares the event loop with the jobs, so it is miserly: a few paths, a small head, one answer per
connection, a limit on time and on the number of clients. Whoever is slow or broken is cut off.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from holdfast.ports import Journal

LONGEST_HEAD = 8_192
MOST_CLIENTS = 32
PATIENCE = 5.0
"""Seconds that a client gets, from its connection to the last byte of its answer."""


class Answer(NamedTuple):
    """What a client is told."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


Route = Callable[[], Awaitable[Answer]]


def told(status: HTTPStatus, **fields: object) -> Answer:
    """Answer with one line of JSON."""
    return Answer(status, json.dumps(fields).encode() + b"\n")


class ProbeServer:
    """Answers GET and HEAD on the paths of *routes*."""

    def __init__(self, routes: Mapping[str, Route], *, journal: Journal, patience: float = PATIENCE) -> None:
        self._routes = routes
        self._patience = patience
        self._journal = journal
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], None] = {}  # in the order of their coming

    @property
    def clients(self) -> int:
        """How many are being answered now."""
        return len(self._clients)

    async def open(self, host: str, port: int) -> int:
        """Listen, on a free port if *port* is 0, and tell which it is. Raises `OSError`."""
        self._server = await asyncio.start_server(self._meet, host, port, limit=LONGEST_HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def open_at(self, path: Path) -> None:
        """Listen on a socket in the file system. Raises `OSError`."""
        self._server = await asyncio.start_unix_server(self._meet, path, limit=LONGEST_HEAD)

    async def close(self) -> None:
        """Listen no more, and let nobody wait for an answer."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MOST_CLIENTS:
            self._dismiss_one()
        client = asyncio.create_task(self._serve(reader, writer), name="holdfast probe")
        self._clients[client] = None
        client.add_done_callback(self._clients.pop)

    def _dismiss_one(self) -> None:
        """Let go of who has been here longest: those who ask properly are gone by then, and newcomers get an answer."""
        longest = next((client for client in self._clients if not client.cancelling()), None)
        if longest is not None:
            longest.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._patience):
                writer.write(await self._reply(reader))
                writer.close()  # what was written is sent first
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            return  # too slow, or gone: nobody is left to be told
        finally:
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _written(_refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        match head.split(b"\r\n", 1)[0].split(b" "):
            case [b"GET" | b"HEAD" as method, target, version] if version.startswith(b"HTTP/1."):
                return _written(await self._answer(target), with_body=method == b"GET")
            case [_, _, version] if version.startswith(b"HTTP/1."):
                return _written(_refused(HTTPStatus.METHOD_NOT_ALLOWED))
        return _written(_refused(HTTPStatus.BAD_REQUEST))

    async def _answer(self, target: bytes) -> Answer:
        route = self._routes.get(target.partition(b"?")[0].decode("latin-1"))
        if route is None:
            return told(HTTPStatus.NOT_FOUND, error="not found", paths=sorted(self._routes))
        try:
            return await route()
        except Exception as error:  # noqa: BLE001 - the edge of a request: the worker goes on
            self._journal.warning("probe failed", path=target.decode("latin-1"), message=type(error).__name__)
            return _refused(HTTPStatus.INTERNAL_SERVER_ERROR)


def _refused(status: HTTPStatus) -> Answer:
    return told(status, error=status.phrase.lower())


def _written(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
