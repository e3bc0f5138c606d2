"""A service on this machine's loopback that fails as a test asks."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Act = Callable[[socket.socket, threading.Event], None]


def answer(status: int, body: object = None, **headers: str) -> Act:
    """Answer every request with *status*; `retry_after="3"` becomes a header."""
    content = json.dumps(body).encode() if body is not None else b""
    return raw(status, content, **{"content-type": "application/json", **headers})


def raw(status: int, content: bytes, **headers: str) -> Act:
    """Answer with these very bytes as the body."""
    fields = {"content-length": str(len(content)), "connection": "close", **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())

    def act(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode() + content)

    return act


def reset(connection: socket.socket, _: threading.Event) -> None:
    """Take the request, then tear the connection down."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(_: socket.socket, __: threading.Event) -> None:
    """Take the request, then close without a word."""


def truncate(connection: socket.socket, _: threading.Event) -> None:
    """Promise a hundred bytes and send ten."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789")


def stay_silent(_: socket.socket, closing: threading.Event) -> None:
    """Take the request and say nothing while the test lasts."""
    closing.wait(10)


@contextmanager
def service(act: Act) -> Iterator[str]:
    """Yield the address of a service that does *act* to each request."""
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=_accept, args=(listener, act, closing), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            closing.set()
            with socket.create_connection(("127.0.0.1", port)):
                pass
            thread.join(5)


def closed_port() -> str:
    """Return an address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _accept(listener: socket.socket, act: Act, closing: threading.Event) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            if closing.is_set():
                return
            connection.settimeout(5)
            _read_request(connection)
            act(connection, closing)


def _read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        missing -= len(connection.recv(65_536))
