"""A server that speaks S3, on loopback and in this process, with buckets that one test uses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

MAX_KEYS = "MOTO_S3_DEFAULT_MAX_KEYS"
"""The environment variable that says how many names the server lists at once."""


class ObjectServer:
    """Where buckets are, and how a process finds them."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def new_bucket(self) -> str:
        """Make a bucket that only this test uses, and return its address."""
        name = f"bucket-{uuid4().hex}"
        with urlopen(Request(f"{self.endpoint}/{name}", method="PUT"), timeout=30) as answer:
            assert answer.status == 200
        return f"s3://{name}"

    def environment(self) -> dict[str, str]:
        """Give the variables with which a process reaches this server, and no proxy in between."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "NO_PROXY": "127.0.0.1",
        }

    def be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this process reach this server, and nothing that its environment names otherwise."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in self.environment().items():
            monkeypatch.setenv(name, value)


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run a server, on a port that is free."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield ObjectServer(f"http://{host}:{port}")
    finally:
        server.stop()
