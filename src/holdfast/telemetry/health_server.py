"""A minimal HTTP server for health checks and metrics.

It shares the event loop with the jobs, so it is limited: a few paths, a small head, one response per
connection, a timeout and a maximum number of clients. A slow or broken client is disconnected.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from holdfast.ports import Logger

MAX_HEAD_BYTES = 8_192
MAX_CLIENTS = 32
CLIENT_TIMEOUT = 5.0
"""Timeout of a client in seconds, from its connection to the last byte of the response."""


class HealthResponse(NamedTuple):
    """A response to a client."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


Route = Callable[[], Awaitable[HealthResponse]]


def json_response(status: HTTPStatus, **fields: object) -> HealthResponse:
    """Return a response with one line of JSON."""
    return HealthResponse(status, json.dumps(fields).encode() + b"\n")


class HealthServer:
    """Answers GET and HEAD on the paths of *routes*."""

    def __init__(
        self, routes: Mapping[str, Route], *, logger: Logger, timeout: float = CLIENT_TIMEOUT
    ) -> None:
        self._routes = routes
        self._timeout = timeout
        self._logger = logger
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], None] = {}  # in the order of their connection

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    async def open(self, host: str, port: int) -> int:
        """Listen, on a free port if *port* is 0, and return the port. Raises `OSError`."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def open_at(self, path: Path) -> None:
        """Listen on a socket in the file system. Raises `OSError`."""
        self._server = await asyncio.start_unix_server(self._accept, path, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        """Stop listening, and disconnect all clients."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self._drop_oldest()
        client = asyncio.create_task(self._serve(reader, writer), name="holdfast probe")
        self._clients[client] = None
        client.add_done_callback(self._clients.pop)

    def _drop_oldest(self) -> None:
        """Disconnect the oldest client, so that a new one gets a response: a correct client is quick."""
        oldest = next((client for client in self._clients if not client.cancelling()), None)
        if oldest is not None:
            oldest.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                writer.write(await self._reply(reader))
                writer.close()  # what was written is sent first
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            return  # the client is too slow, or has disconnected
        finally:
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _encode(_error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        match head.split(b"\r\n", 1)[0].split(b" "):
            case [b"GET" | b"HEAD" as method, target, version] if version.startswith(b"HTTP/1."):
                return _encode(await self._respond(target), with_body=method == b"GET")
            case [_, _, version] if version.startswith(b"HTTP/1."):
                return _encode(_error_response(HTTPStatus.METHOD_NOT_ALLOWED))
        return _encode(_error_response(HTTPStatus.BAD_REQUEST))

    async def _respond(self, target: bytes) -> HealthResponse:
        route = self._routes.get(target.partition(b"?")[0].decode("latin-1"))
        if route is None:
            return json_response(HTTPStatus.NOT_FOUND, error="not found", paths=sorted(self._routes))
        try:
            return await route()
        except Exception as error:  # noqa: BLE001 - the edge of a request: the worker goes on
            self._logger.warning("probe failed", path=target.decode("latin-1"), message=type(error).__name__)
            return _error_response(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error_response(status: HTTPStatus) -> HealthResponse:
    return json_response(status, error=status.phrase.lower())


def _encode(response: HealthResponse, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode() + (response.body if with_body else b"")
