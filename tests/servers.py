"""Real servers for tests: one that was given, or a private one in a temporary folder.

`HOLDFAST_TEST_POSTGRES` names a server to use (a user that may create databases). Without it a
`PrivatePostgres` is started from the binaries on this machine; on Debian, as root, they are
installed first. Nothing here starts before a test asks for it, and nothing here ends a process
that it did not start.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import IO, Literal, Self, TypedDict
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tools.debian import NotInstalledError, install, may_install

Prepare = Callable[[str], Awaitable[None] | None]
"""Fills an empty database, whose address it is given, and leaves no connection open."""

StopMode = Literal["fast", "immediate"]

GIVEN_POSTGRES = "HOLDFAST_TEST_POSTGRES"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 * 2**30  # for the servers of all processes that run tests side by side, with what they log
READY = "database system is ready to accept connections"

HOW_TO_GET_POSTGRES = (
    "These tests need PostgreSQL 13 or newer: install it (Debian: apt-get install postgresql), or give the "
    f"address of a server whose user may create databases in {GIVEN_POSTGRES}."
)


class ServerMissingError(Exception):
    """No server was given, and none can be started here; the message says how to get one."""


class ServerFailedError(Exception):
    """A private server did not start or stop; the message ends with its log."""


class PostgresServer:
    """A running PostgreSQL that hands out databases.

    Every database that it handed out, and every template, is gone after `close`.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._templates: dict[Prepare, str] = {}
        self._databases: set[str] = set()

    def dsn(self, database: str = "postgres") -> str:
        """Return the TCP address of *database* on this server."""
        return urlunsplit(urlsplit(self._address)._replace(path=f"/{database}"))

    def create_database(self, prepare: Prepare | None = None) -> str:
        """Create a database for the caller alone, and return its address.

        *prepare* runs once per server, on a template; each database after that is a copy of it.
        It may be an `async def`. Callable from a test with a running loop, too.
        """
        template = "template1" if prepare is None else self._template(prepare)
        return self._create(f"test_{uuid.uuid4().hex}", template)

    def drop_database(self, dsn: str) -> None:
        """Drop a database that `create_database` returned, closing the connections left to it."""
        name = urlsplit(dsn).path.lstrip("/")
        if name not in self._databases:
            raise ValueError(f"{name!r} was not created here, so it is not dropped here.")
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._databases.discard(name)

    def close(self) -> None:
        """Drop what was created. The server itself stays as it was found."""
        self._templates.clear()
        for name in list(self._databases):
            self.drop_database(self.dsn(name))

    def _template(self, prepare: Prepare) -> str:
        if prepare not in self._templates:
            name = f"template_{uuid.uuid4().hex}"
            _run(_prepared(prepare, self._create(name, "template1")))
            self._templates[prepare] = name
        return self._templates[prepare]

    def _create(self, name: str, template: str) -> str:
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        self._databases.add(name)
        return self.dsn(name)

    def _execute(self, statement: str) -> None:
        _run(_executed(self._address, statement))


class PrivatePostgres(PostgresServer):
    """A private PostgreSQL: a data folder, a port of 127.0.0.1 and a unix socket.

    Port and data stay the same over `stop`, `kill` and `start`. With *fsync* off it is quicker, and a
    test that kills it proves nothing. Should this process die, even by SIGKILL, a watcher ends the
    server and removes its folder.
    """

    def __init__(self, binaries: Path | None = None, *, fsync: bool = True) -> None:
        self._binaries = binaries or postgres_binaries()
        self._fsync = fsync
        self._account = plain_account()
        self._port = free_port()
        self._password = uuid.uuid4().hex
        self._process: subprocess.Popen[str] | None = None
        self._log: ServerLog | None = None
        self._folder = self._make_folder()
        self._watcher = self._watch()
        super().__init__(f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres")

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
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the server process, for tests that send it signals."""
        if self._process is None:
            raise ServerFailedError("PostgreSQL is not running: call start() first.")
        return self._process.pid

    def socket_dsn(self, database: str = "postgres") -> str:
        """Return the address of *database* through the unix socket."""
        return f"postgresql://postgres@/{database}?host={self._folder}&port={self._port}"

    def start(self) -> None:
        """Start the server, and return when it takes connections. Does nothing when it runs."""
        if self.running:
            return
        if not self._data.exists():
            self._make_cluster()
        self._process = self._spawn()
        assert self._process.stderr is not None
        self._log = ServerLog(self._process.stderr)
        if not self._log.wait_until_ready(START_TIMEOUT):
            self.kill()
            raise ServerFailedError(f"PostgreSQL did not start:\n{self._log.tail()}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: `fast` rolls back and writes everything out, `immediate` recovers at the next start."""
        if not self.running:
            return
        self._signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        self._wait_until_gone()

    def kill(self) -> None:
        """End the server and its backends with SIGKILL, as a machine that lost its power would."""
        if not self.running:
            return
        backends = _children(self.pid)
        self._signal(signal.SIGKILL)
        for backend in backends:
            _kill_if_there(backend)
        self._wait_until_gone()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start, with the same address and the same data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        try:
            self.stop("immediate")
        finally:
            self._watcher.communicate()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _make_folder(self) -> Path:
        # A unix socket's path has room for about 100 characters, and a plain user must reach it.
        parent = Path("/tmp") if self._fsync else fastest_parent()
        folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent))
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        return folder

    def _make_cluster(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)  # the folder around it is closed to others
        options = ["--username=postgres", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        # The default, scram-sha-256, costs the server more than the rest of a connection.
        auth = ["--auth-local=trust", "--auth-host=md5"]
        made = subprocess.run(
            [self._binaries / "initdb", "-D", self._data, *options, *auth],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_TIMEOUT,
            **self._as_plain_user(),
        )
        if made.returncode:
            raise ServerFailedError(f"initdb failed:\n{made.stdout}{made.stderr}")

    def _spawn(self) -> subprocess.Popen[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(self._folder),
            "max_connections": "200",
            "timezone": "UTC",
            "logging_collector": "off",
            "log_destination": "stderr",
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "max_wal_size": "1GB" if self._fsync else "256MB",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return subprocess.Popen(
            [self._binaries / "postgres", "-D", self._data, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the tests; they then stop the server themselves
            **self._as_plain_user(),
        )

    def _watch(self) -> subprocess.Popen[bytes]:
        """Start the shell that cleans up once our end of its standard input is closed, however that happens."""
        script = 'read -r _; [ -f "$1/data/postmaster.pid" ] && "$0/pg_ctl" -D "$1/data" -m immediate -w stop; rm -rf "$1"'
        return subprocess.Popen(
            ["/bin/sh", "-c", script, self._binaries, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **self._as_plain_user(cwd="/"),
        )

    def _as_plain_user(self, cwd: str | None = None) -> Launch:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        launch = Launch(cwd=cwd or str(self._folder), env=environment | {"LC_ALL": "C"})
        if self._account is not None:
            launch["user"] = self._account.pw_uid
            launch["group"] = self._account.pw_gid
            launch["extra_groups"] = []
        return launch

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _wait_until_gone(self) -> None:
        """Wait for the server and for its backends, which hold the log's pipe open while they live."""
        assert self._process is not None
        assert self._log is not None
        self._process.wait(STOP_TIMEOUT)
        if not self._log.wait_until_closed(STOP_TIMEOUT):
            raise ServerFailedError(f"PostgreSQL's backends did not end:\n{self._log.tail()}")


class Launch(TypedDict, total=False):
    """How a program is started: in which folder, with which environment, as which user."""

    cwd: str
    env: dict[str, str]
    user: int
    group: int
    extra_groups: Iterable[int]


class ServerLog:
    """Reads a server's log as it is written: says when the server is ready, and keeps the last lines."""

    def __init__(self, stream: IO[str], ready: str = READY) -> None:
        self._stream = stream
        self._ready_line = ready
        self._lines: deque[str] = deque(maxlen=40)
        self._settled = threading.Event()
        self._ready = False
        self._reader = threading.Thread(target=self._read, name="server-log", daemon=True)
        self._reader.start()

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait until the server is ready; False when its log ended, or the time passed, before that."""
        self._settled.wait(timeout)
        return self._ready

    def wait_until_closed(self, timeout: float) -> bool:
        """Wait until the last process that writes to the log has ended."""
        self._reader.join(timeout)
        return not self._reader.is_alive()

    def tail(self) -> str:
        return "".join(self._lines)

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                self._lines.append(line)
                if self._ready_line in line:
                    self._ready = True
                    self._settled.set()
        self._settled.set()


def open_postgres() -> PostgresServer:
    """Return the given server, or a started private one that trades safety for speed.

    Raises `ServerMissingError` when there is neither.
    """
    given = os.environ.get(GIVEN_POSTGRES)
    if given:
        return PostgresServer(given)
    return PrivatePostgres(fsync=False).__enter__()


def postgres_binaries() -> Path:
    """Return the folder of PostgreSQL's own programs, newest first; install them where permitted.

    Raises `ServerMissingError` when there are none.
    """
    found = _installed_binaries()
    if found is None and may_install():
        _install_postgres()
        found = _installed_binaries()
    if found is None:
        raise ServerMissingError(HOW_TO_GET_POSTGRES)
    return found


def in_ci() -> bool:
    """Whether a missing server is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def _installed_binaries() -> Path | None:
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_of, reverse=True)
    on_path = shutil.which("postgres")
    # A link on PATH leads to the folder in which initdb and pg_ctl live, too.
    linked = [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in [*packaged, *linked] if is_postgres(folder)), None)


def is_postgres(folder: Path) -> bool:
    """Whether *folder* has PostgreSQL's programs, and not another program of the same name."""
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb", "pg_ctl")):
        return False
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and "(PostgreSQL)" in said.stdout


def _version_of(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())


def _install_postgres() -> None:
    try:
        install("postgresql")
    except NotInstalledError as error:
        raise ServerMissingError(f"{error} {HOW_TO_GET_POSTGRES}") from error


def plain_account() -> pwd.struct_passwd | None:
    """Return the user to run servers as: PostgreSQL refuses root; None means the current user."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name: account for account in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def fastest_parent() -> Path:
    """Return where data that may be lost is kept: in memory where that has room for it."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
        return MEMORY
    return Path("/tmp")


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    """Return the ids of the processes that *pid* started; none where the system does not list them."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill_if_there(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


async def _executed(address: str, statement: str) -> None:
    connection = await asyncpg.connect(address, timeout=10)
    try:
        await connection.execute(statement, timeout=30)
    finally:
        await connection.close(timeout=10)


async def _prepared(prepare: Prepare, dsn: str) -> None:
    outcome = prepare(dsn)
    if inspect.isawaitable(outcome):
        await outcome


def _run(work: Awaitable[None]) -> None:
    """Run *work* to its end on a loop and a thread of its own, since the caller may have a loop running."""
    raised: list[BaseException] = []

    async def main() -> None:
        try:
            await work
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-server")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
