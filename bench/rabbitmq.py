"""A private RabbitMQ, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The script inside: the one on the PATH insists on root, and on the folders of the system."""

START_SECONDS = 90
STOP_SECONDS = 30


class RabbitMQ:
    """A node on free ports, with a directory of names (`epmd`) that is its own, too: both end with `stop`."""

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self._folder = folder
        self._identity = identity
        self._port, self._between_nodes, self._names = free_ports(3)
        self._processes: list[subprocess.Popen[bytes]] = []

    def address(self, queue: str) -> str:
        """Give the address of a queue."""
        return f"amqp://guest:guest@127.0.0.1:{self._port}/#{queue}"

    @property
    def pid(self) -> int:
        """The process of the node."""
        return self._processes[-1].pid

    def start(self) -> None:
        (self._folder / "plugins").write_text("[].")
        (self._folder / "environment").touch()
        # Left to the node, the directory of names would be a daemon that no process ends.
        self._run(["epmd", "-port", str(self._names), "-address", "127.0.0.1"])
        self._run([str(SERVER)])
        self._await_ready()

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _run(self, command: list[str]) -> None:
        with (self._folder / "rabbitmq.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment(), cwd=self._folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, **self._identity,
            )  # fmt: skip
        self._processes.append(process)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(self._names),
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(self._between_nodes),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "environment"),
        }

    def _await_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._processes[-1].poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError((self._folder / "rabbitmq.log").read_text())


def is_installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


def version() -> str:
    """Return the version of the installed RabbitMQ."""
    [folder] = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return folder.name.partition("-")[2]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports
