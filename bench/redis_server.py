"""A private Redis, in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import redis

from bench.rabbitmq import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START_SECONDS = 30
STOP_SECONDS = 10


class Redis:
    """A server on a free port. It writes every change to its log, as a queue that must not be lost needs it."""

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self._folder = folder
        self._identity = identity
        [port] = free_ports(1)
        self._url = f"redis://127.0.0.1:{port}/0"
        self._options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process of the server."""
        assert self._process is not None
        return self._process.pid

    def emptied(self) -> str:
        """Remove everything, and return the address."""
        with redis.Redis.from_url(self._url) as client:
            client.flushall()
        return self._url

    def start(self) -> None:
        log = (self._folder / "redis.log").open("wb")
        self._process = subprocess.Popen(
            ["redis-server", *self._options, "--dir", str(self._folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._identity,
        )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.emptied()
            except redis.ConnectionError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError((self._folder / "redis.log").read_text())

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_installed() -> bool:
    return shutil.which("redis-server") is not None
