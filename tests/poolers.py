"""A private PgBouncer in front of a PostgreSQL of the tests, with so few connections that all clients share them."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.acceptance.harness.polling import until
from tests.servers import ServerFailedError, ServerMissingError
from tools.debian import NotInstalledError, install

SERVERS = 2
START_TIMEOUT = 30.0

SETTINGS = """
[databases]
* = host={host} port={port} user={user} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 300
logfile = {folder}/log
"""


class PgBouncer:
    """Pools transactions on the server at *address*, while the block runs."""

    def __init__(self, address: str) -> None:
        self._server = urlsplit(address)
        self._port = _free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pool-"))
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, address: str) -> str:
        """Return the address of the same database through the pooler."""
        return urlunsplit(urlsplit(address)._replace(netloc=f"postgres@127.0.0.1:{self._port}"))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        # Its file holds a password of the tests' server: no other user may read it.
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            SETTINGS.format(
                host=self._server.hostname,
                port=self._server.port or 5432,
                user=self._server.username or "postgres",
                password=self._server.password or "",
                own_port=self._port,
                servers=SERVERS,
                folder=self._folder,
            )
        )
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        if account is not None:
            for path in (self._folder, settings):
                os.chown(path, account.pw_uid, account.pw_gid)
        self._process = subprocess.Popen(
            [_program(), str(settings)],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
        )
        until(self._answers, within=START_TIMEOUT, what="PgBouncer")

    def stop(self) -> None:
        """Kill it, and with it all its connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerFailedError(f"PgBouncer did not start:\n{(self._folder / 'log').read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _program() -> str:
    """Find PgBouncer, or install it where permitted. Raises `ServerMissingError`."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        try:
            install("pgbouncer")
        except NotInstalledError as error:
            raise ServerMissingError(str(error)) from error
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if found is None:
        raise ServerMissingError("PgBouncer is installed, but its program is not where it should be.")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
