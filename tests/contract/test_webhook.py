"""An outgoing webhook trusts its receiver with nothing: not its answer, not its time, not its address."""

import asyncio
import base64
import gzip
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Retryable
from holdfast.channels import Webhook
from holdfast.errors import ConfigError
from tests.contract.conftest import FakeClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LOOPBACK = ("127.0.0.1",)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """Have *answer* called with each connection; give the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except ConnectionError:
            pass  # the client hung up, which is what these tests are about
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def read_request(reader: asyncio.StreamReader) -> dict[str, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    await reader.readexactly(int(headers["content-length"]))
    return headers


def a_webhook(port: int, **options: Any) -> Webhook:
    settings: dict[str, Any] = {"allow": LOOPBACK, "clock": FakeClock(NOON)} | options
    return Webhook(f"http://127.0.0.1:{port}/hook", **settings)


async def test_the_body_of_an_answer_is_not_read() -> None:
    bomb, sent, hung_up = gzip.compress(bytes(10_000_000)), 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(10_000):  # 100 MB, if a client reads them
                writer.write(f"{len(bomb):x}\r\n".encode() + bomb + b"\r\n")
                await writer.drain()
                sent += len(bomb)
        finally:
            hung_up.set()

    async with serving(answer) as port:
        await a_webhook(port).post("id-1", b"{}")
        await asyncio.wait_for(hung_up.wait(), 30)

    assert sent < 50_000_000


async def test_an_answer_that_trickles_in_is_given_up_after_the_time_for_all_of_it() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:  # each read succeeds, and the head never ends
            writer.write(b"x-more: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(answer) as port:
        with pytest.raises(Retryable, match=r"did not answer within 0\.3 s"):
            await a_webhook(port, timeout=0.3).post("id-1", b"{}")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
async def test_an_address_inside_is_refused_before_anything_is_sent(host: str) -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1

    async with serving(answer) as port:
        webhook = Webhook(f"http://{host}:{port}/hook", clock=FakeClock(NOON))
        with pytest.raises(ConfigError, match="not a public address"):
            await webhook.post("id-1", b"{}")

    assert connections == 0


async def test_a_host_that_is_named_may_be_inside_and_receives_its_own_name() -> None:
    received: list[dict[str, str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await read_request(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async with serving(answer) as port:
        webhook = Webhook(f"http://localhost:{port}/hook", allow=("Localhost",), clock=FakeClock(NOON))
        await webhook.post("id-1", b"{}")

    assert received[0]["host"] == f"localhost:{port}"


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with another address the second time gains nothing."""
    reached: list[dict[str, str]] = []
    looked_up: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await read_request(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async def look_up(host: str, port: int | None, **_: Any) -> list[Any]:
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "127.0.0.9"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async with serving(answer) as port:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        webhook = Webhook(f"http://rebinding.example:{port}/hook", allow=LOOPBACK, clock=FakeClock(NOON))
        await webhook.post("id-1", b"{}")

    assert [headers["host"] for headers in reached] == [f"rebinding.example:{port}"]
    assert looked_up[0] == "rebinding.example"
    assert "rebinding.example" not in looked_up[1:]


async def test_an_address_that_refuses_connections_does_not_hide_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async with serving(answer) as port:
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def look_up(host: str, port: int | None, **options: Any) -> Any:
            if host != "two.example":
                return await real(host, port, **options)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")
            ]

        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        webhook = Webhook(f"http://two.example:{port}/hook", allow=("127.0.0.0/8",), clock=FakeClock(NOON))

        await webhook.post("id-1", b"{}")


async def test_while_a_secret_is_rotated_each_key_has_a_signature() -> None:
    received: list[dict[str, str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await read_request(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    async with serving(answer) as port:
        await a_webhook(port, secrets=("the new one", "the old one")).post("id-1", b"{}")

    signed = f"id-1.{int(NOON.timestamp())}.{{}}".encode()
    expected = [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in (b"the new one", b"the old one")
    ]
    assert received[0]["webhook-signature"].split(" ") == expected


def test_an_allow_list_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="allow-list"):
        Webhook("http://example.com/x", allow=("10.0.0.1/8",), clock=FakeClock(NOON))
