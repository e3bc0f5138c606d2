"""Real brokers for tests: those that were given, or private ones in a temporary folder.

`HOLDFAST_TEST_RABBITMQ` and `HOLDFAST_TEST_REDIS` name servers to use. Without them a `PrivateRabbitMQ` or
`PrivateRedis` is started from the programs on this machine; on Debian, as root, they are installed first. Nothing
here starts before a test asks for it, and nothing here ends a process that it did not start.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

from tests.servers import (
    STOP_TIMEOUT,
    Launch,
    ServerFailedError,
    ServerLog,
    ServerMissingError,
    fastest_parent,
    free_port,
    plain_account,
)
from tools.debian import NotInstalledError, install, may_install

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GIVEN_RABBITMQ = "HOLDFAST_TEST_RABBITMQ"
GIVEN_REDIS = "HOLDFAST_TEST_REDIS"
START_TIMEOUT = 120.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The script inside: the one on the PATH insists on root, and on the folders of the system."""

LIMITED_USER = "limited"
"""A user of the private RabbitMQ that may write only to exchanges whose name begins with `allowed`."""

HOW_TO_GET_RABBITMQ = (
    "These tests need RabbitMQ 3.10 or newer: install it (Debian: apt-get install rabbitmq-server), or give the "
    f"address of a server in {GIVEN_RABBITMQ}."
)
HOW_TO_GET_REDIS = (
    "These tests need Redis 7: install it (Debian: apt-get install redis-server), or give the address of a server in "
    f"{GIVEN_REDIS}."
)

WATCHER = """
read -r _
for file in "$0"/*.group; do [ -f "$file" ] && kill -s KILL -- "-$(cat "$file")"; done
rm -rf "$0"
"""
"""Ends the process groups whose ids are in the folder, and removes it."""


class BrokerServer:
    """A running broker, with an address."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 that it listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def at_port(self, port: int) -> str:
        """Return the address with another port, such as that of a proxy."""
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    def close(self) -> None:
        """Leave the server as it was found."""


class PrivateServer(BrokerServer):
    """A private server: a folder, ports of 127.0.0.1, and one process group for each program.

    Ports and data stay the same over `stop`, `kill` and `start`. Should this process die, even by SIGKILL, a watcher
    ends the programs and removes the folder.
    """

    ready = ""
    """What the server logs when it takes connections."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._account = plain_account()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-broker-", dir=fastest_parent()))
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._log: ServerLog | None = None
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **self._as_plain_user({}, cwd="/"),
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        server = self._processes.get("server")
        return server is not None and server.poll() is None

    def start(self) -> None:
        """Start the server, and return when it takes connections. Does nothing when it runs."""
        if self.running:
            return
        server = self._launch()
        assert server.stdout is not None
        self._log = ServerLog(server.stdout, self.ready)
        if not self._log.wait_until_ready(START_TIMEOUT):
            self.kill()
            raise ServerFailedError(f"{type(self).__name__} did not start:\n{self._log.tail()}")

    def stop(self) -> None:
        """Stop the server in order."""
        self._end("server", signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._end("server", signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start, with the same address and the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the programs, and remove the folder."""
        try:
            for name in reversed(list(self._processes)):
                self._end(name, signal.SIGKILL)
        finally:
            self._watcher.communicate()

    def _launch(self) -> subprocess.Popen[str]:
        """Start the program of the server, and all that it needs."""
        raise NotImplementedError

    def _run(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "server" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if name == "server" else subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the tests; they then stop the server themselves
            **self._as_plain_user(environment),
        )
        self._group(name).write_text(str(process.pid))
        self._processes[name] = process
        return process

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, number)
            process.wait(STOP_TIMEOUT)
        self._group(name).unlink(missing_ok=True)  # the system may give its number to another process
        if name == "server" and self._log is not None and not self._log.wait_until_closed(STOP_TIMEOUT):
            raise ServerFailedError(f"programs of {type(self).__name__} did not end:\n{self._log.tail()}")

    def _group(self, name: str) -> Path:
        return self._folder / f"{name}.group"

    def _as_plain_user(self, environment: Mapping[str, str], cwd: str | None = None) -> Launch:
        path = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._folder)}
        launch = Launch(cwd=cwd or str(self._folder), env=path | dict(environment))
        if self._account is not None:
            launch["user"] = self._account.pw_uid
            launch["group"] = self._account.pw_gid
            launch["extra_groups"] = []
        return launch


class PrivateRabbitMQ(PrivateServer):
    """A private RabbitMQ, with its own `epmd` and the management API.

    Beside the user `guest` there is `limited`, with the same password as its name.
    """

    ready = "Server startup complete"

    def __init__(self) -> None:
        _ensure("rabbitmq-server", HOW_TO_GET_RABBITMQ, is_there=_has_rabbitmq)
        port = free_port()
        self._management, self._distribution, self._names = free_port(), free_port(), free_port()
        super().__init__(f"amqp://guest:guest@127.0.0.1:{port}/")

    @property
    def management_url(self) -> str:
        """The address of the management API."""
        return f"http://guest:guest@127.0.0.1:{self._management}"

    @property
    def limited_url(self) -> str:
        """The address for the user with few permissions."""
        return f"amqp://{LIMITED_USER}:{LIMITED_USER}@127.0.0.1:{self.port}/"

    def control(self, *words: str) -> None:
        """Run `rabbitmqctl`, which takes seconds. Raises `ServerFailedError`."""
        done = subprocess.run(
            [RABBITMQ.with_name("rabbitmqctl"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_TIMEOUT,
            **self._as_plain_user(self._environment()),
        )
        if done.returncode:
            raise ServerFailedError(f"rabbitmqctl {' '.join(words)}: {done.stdout}{done.stderr}")

    def _launch(self) -> subprocess.Popen[str]:
        self._write_configuration()
        environment = self._environment()
        if "epmd" not in self._processes:
            # Left to the node, the directory of names would be a daemon that no process ends.
            self._run("epmd", ["epmd", "-port", str(self._names), "-address", "127.0.0.1"], environment)
        return self._run("server", [RABBITMQ], environment)

    def _environment(self) -> dict[str, str]:
        return {
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "environment"),
        }

    def _write_configuration(self) -> None:
        definitions = self._folder / "definitions.json"
        definitions.write_text(
            json.dumps(
                {
                    "vhosts": [{"name": "/"}],
                    "users": [
                        {"name": "guest", "password": "guest", "tags": "administrator"},
                        {"name": LIMITED_USER, "password": LIMITED_USER, "tags": ""},
                    ],
                    "permissions": [
                        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
                        {
                            "user": LIMITED_USER,
                            "vhost": "/",
                            "configure": "",
                            "write": "^allowed",
                            "read": "",
                        },
                    ],
                }
            )
        )
        settings = {
            "load_definitions": definitions,
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": self._management,
            "max_message_size": 16 * 2**20,
            "log.console.level": "info",
        }
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        (self._folder / "rabbitmq.conf").write_text("".join(lines))
        (self._folder / "plugins").write_text("[rabbitmq_management].")
        (self._folder / "environment").touch()


class PrivateRedis(PrivateServer):
    """A private Redis, whose data outlives a restart."""

    ready = "eady to accept connections"

    def __init__(self) -> None:
        _ensure("redis-server", HOW_TO_GET_REDIS, is_there=_has_redis)
        super().__init__(f"redis://127.0.0.1:{free_port()}/0")

    def _launch(self) -> subprocess.Popen[str]:
        options = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self._folder)}
        options |= {"save": "", "appendonly": "yes", "appendfsync": "no"}
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        return self._run("server", ["redis-server", *flags], {})


def open_rabbitmq() -> BrokerServer:
    """Return the given server, or a started private one. Raises `ServerMissingError` when there is neither."""
    given = os.environ.get(GIVEN_RABBITMQ)
    return BrokerServer(given) if given else PrivateRabbitMQ().__enter__()


def open_redis() -> BrokerServer:
    """Return the given server, or a started private one. Raises `ServerMissingError` when there is neither."""
    given = os.environ.get(GIVEN_REDIS)
    return BrokerServer(given) if given else PrivateRedis().__enter__()


def _has_rabbitmq() -> bool:
    return RABBITMQ.exists() and shutil.which("epmd") is not None


def _has_redis() -> bool:
    return shutil.which("redis-server") is not None


def _ensure(package: str, how: str, *, is_there: Callable[[], bool]) -> None:
    """Install *package* where permitted, unless it is there. Raises `ServerMissingError`."""
    if is_there():
        return
    if may_install():
        try:
            install(package)
        except NotInstalledError as error:
            raise ServerMissingError(f"{error} {how}") from error
    if not is_there():
        raise ServerMissingError(how)
