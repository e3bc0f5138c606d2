"""The proxy breaks a network as it says: what the tests on top of it show depends on that."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.harness.polling import until
from tests.acceptance.harness.proxy import Proxy, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 10.0
SILENCE = 0.3
"""Seconds without a byte after which a test believes that none is coming."""


def test_a_sound_route_carries_everything_in_both_directions(echo: Echo, route: Route) -> None:
    message = bytes(range(256)) * 4_000

    with connected(route) as client:
        threading.Thread(target=client.sendall, args=(message,)).start()

        assert received(client, len(message)) == message
    until(lambda: echo.clients == 0, within=TIMEOUT, what="the server to notice that its client left")


def test_a_slow_route_holds_back_each_piece(route: Route) -> None:
    with connected(route) as client:
        route.slow_down(0.2)
        began = time.monotonic()

        assert asked(client, b"there and back") == b"there and back"

        assert time.monotonic() - began >= 0.4


def test_a_cut_route_carries_nothing_until_it_is_restored(echo: Echo, route: Route) -> None:
    with connected(route) as client:
        route.cut()
        client.sendall(b"held")

        assert silent(client)
        assert echo.received_bytes == b""
        route.restore()
        assert received(client, 4) == b"held"


def test_a_cut_route_keeps_newcomers_waiting(echo: Echo, route: Route) -> None:
    route.cut()
    with connected(route) as client:
        client.sendall(b"new")

        assert silent(client)
        assert echo.clients == 0
        route.restore()
        assert received(client, 3) == b"new"


def test_a_reset_breaks_what_is_there_and_nothing_else(echo: Echo, route: Route) -> None:
    with connected(route) as client:
        assert asked(client, b"before") == b"before"

        assert route.reset() == 1

        with pytest.raises(ConnectionResetError):
            client.recv(1)
    until(lambda: echo.resets, within=TIMEOUT, what="the server to be reset, too")
    with connected(route) as client:
        assert asked(client, b"after") == b"after"


def test_on_a_half_open_connection_everything_vanishes_in_silence(echo: Echo, route: Route) -> None:
    with connected(route) as client:
        assert asked(client, b"before") == b"before"

        assert route.half_open() == 1
        client.sendall(b"lost")
        echo.send(b"lost as well")

        assert silent(client)
        assert echo.received_bytes == b"before"
    with connected(route) as newcomer:
        assert asked(newcomer, b"after") == b"after"
        assert echo.clients == 2, "the server was notified that the client of the half-open connection left"


def test_a_fault_stays_on_its_route(proxy: Proxy) -> None:
    broken, sound = proxy.route(), proxy.route()

    with connected(broken) as unlucky, connected(sound) as lucky:
        assert (asked(unlucky, b"one"), asked(lucky, b"two")) == (b"one", b"two")
        broken.reset()
        broken.cut()

        assert asked(lucky, b"untouched") == b"untouched"


def test_without_its_server_a_client_is_turned_away(proxy: Proxy, echo: Echo) -> None:
    route = proxy.route()
    echo.close()

    with connected(route) as client:
        assert turned_away(client)


class Echo:
    """A server that sends back what it receives, and records it."""

    def __init__(self) -> None:
        self.received_bytes = b""
        self.clients = 0
        self.resets = 0
        self._streams: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def send(self, words: bytes) -> None:
        """Send *words* to the client that came last."""
        self._streams[-1].sendall(words)

    def close(self) -> None:
        """Take no more clients."""
        # Closing alone does not end an accept that waits in another thread.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listening.accept()
            except OSError:
                return
            self._streams.append(stream)
            self.clients += 1
            threading.Thread(target=self._answer, args=(stream,), daemon=True).start()

    def _answer(self, stream: socket.socket) -> None:
        try:
            while words := stream.recv(65_536):
                self.received_bytes += words
                stream.sendall(words)
        except ConnectionError:
            self.resets += 1
        self.clients -= 1
        stream.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    if server._listening.fileno() >= 0:
        server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as running:
        yield running


@pytest.fixture
def route(proxy: Proxy) -> Route:
    return proxy.route()


@contextmanager
def connected(route: Route) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", route.port), timeout=TIMEOUT) as client:
        yield client


def asked(client: socket.socket, question: bytes) -> bytes:
    client.sendall(question)
    return received(client, len(question))


def received(client: socket.socket, count: int) -> bytes:
    answer = b""
    while len(answer) < count:
        part = client.recv(count - len(answer))
        assert part, f"the connection ended after {len(answer)} bytes of {count}"
        answer += part
    return answer


def silent(client: socket.socket) -> bool:
    readable, _, _ = select.select([client], [], [], SILENCE)
    return not readable


def turned_away(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
