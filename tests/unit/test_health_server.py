"""The health port answers proper requests, and lets no other client disturb the process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.telemetry.health_server import (
    MAX_CLIENTS,
    MAX_HEAD_BYTES,
    HealthResponse,
    HealthServer,
    json_response,
)
from holdfast.telemetry.logs import StructuredLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIMEOUT = 20.0


async def fine() -> HealthResponse:
    return json_response(HTTPStatus.OK, fine=True)


async def broken() -> HealthResponse:
    raise KeyError("a secret")


async def stuck() -> HealthResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def large() -> HealthResponse:
    return HealthResponse(HTTPStatus.OK, b"x" * 50_000_000, "text/plain")


ROUTES = {"/fine": fine, "/broken": broken, "/stuck": stuck, "/large": large}


@asynccontextmanager
async def a_server(*, timeout: float = TIMEOUT) -> AsyncIterator[tuple[HealthServer, int]]:
    server = HealthServer(ROUTES, logger=StructuredLogger(level="ERROR"), timeout=timeout)
    port = await server.open("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


async def sent(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send *request*, and read the answer to its end."""
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def got(port: int, path: str) -> tuple[int, Any]:
    status, _, body = await sent(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, json.loads(body)


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of the connection, and say whether nothing came before it."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_a_path_is_answered_with_one_line_of_json() -> None:
    async with a_server() as (_, port):
        status, headers, body = await sent(port, b"GET /fine?from=probe HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (status, body) == (200, b'{"fine": true}\n')
    assert headers["Content-Length"] == str(len(body))
    assert headers["Connection"] == "close"


async def test_head_is_answered_without_a_body() -> None:
    async with a_server() as (_, port):
        status, headers, body = await sent(port, b"HEAD /fine HTTP/1.0\r\n\r\n")

    assert (status, headers["Content-Length"], body) == (200, "15", b"")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /other HTTP/1.1", 404),
        (b"POST /fine HTTP/1.1", 405),
        (b"GET /fine", 400),
        (b"\x16\x03\x01\x02", 400),
        (b"GET /fine HTTP/2.0", 400),
    ],
    ids=["path", "method", "version", "tls", "too new"],
)
async def test_what_is_not_asked_properly_is_refused(request_line: bytes, status: int) -> None:
    async with a_server() as (_, port):
        answer = await sent(port, request_line + b"\r\n\r\n")

    assert answer[0] == status


async def test_a_head_that_does_not_end_is_refused() -> None:
    async with a_server() as (_, port):
        status, _, _ = await sent(port, b"GET /fine HTTP/1.1\r\nX: " + b"y" * MAX_HEAD_BYTES)

    assert status == 431


async def test_what_goes_wrong_inside_is_not_shown_outside() -> None:
    async with a_server() as (_, port):
        status, answer = await got(port, "/broken")
        after, _ = await got(port, "/fine")

    assert (status, answer) == (500, {"error": "internal server error"})
    assert after == 200


async def test_a_client_that_says_nothing_is_cut_off() -> None:
    async with a_server(timeout=0.05) as (_, port), asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /fine")

        assert await is_cut_off(reader)

        writer.close()


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with a_server(timeout=0.2) as (server, port), asyncio.timeout(TIMEOUT):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        while not server.clients:
            await asyncio.sleep(0.001)
        while server.clients:
            await asyncio.sleep(0.001)

        status, _ = await got(port, "/fine")
        writer.close()

    assert status == 200


async def test_a_client_too_many_gets_the_place_of_the_one_that_was_there_longest() -> None:
    async with a_server() as (server, port), asyncio.timeout(TIMEOUT):
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CLIENTS)]
        while server.clients < MAX_CLIENTS:
            await asyncio.sleep(0.001)

        status, _ = await got(port, "/fine")

        assert await is_cut_off(waiting[0][0])
        for _, writer in waiting:
            writer.close()

    assert status == 200


async def test_closing_leaves_no_client_waiting() -> None:
    async with a_server() as (server, port), asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stuck HTTP/1.1\r\n\r\n")
        while not server.clients:
            await asyncio.sleep(0.001)

        await server.close()

        assert await is_cut_off(reader)
        writer.close()
    assert server.clients == 0
