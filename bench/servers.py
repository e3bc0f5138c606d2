"""Private servers, and a fresh database or queue for each measurement."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench import rabbitmq, redis_server
from tools.debian import NotInstalledError, install

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "listen_addresses": "",
}


class Databases:
    """Hands out what is empty; stops its servers and removes their folder when left, however that happens."""

    def __init__(self, stores: set[str]) -> None:
        self._stores = stores
        self._count = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._rabbitmq: rabbitmq.RabbitMQ | None = None
        self._redis: redis_server.Redis | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self._account = _unprivileged() if os.getuid() == 0 else None

    def __enter__(self) -> Self:
        # A terminated benchmark must still come past __exit__.
        signal.signal(signal.SIGTERM, _leave)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        if self._account:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        if "postgres" in self._stores:
            self._start_postgres()
        if "rabbitmq" in self._stores:
            self._start_rabbitmq()
        if "redis" in self._stores:
            self._start_redis()

    def __exit__(self, *_: object) -> None:
        if self._redis is not None:
            self._redis.stop()
        if self._rabbitmq is not None:
            self._rabbitmq.stop()
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(30)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def fresh(self, store: str) -> Iterator[str]:
        """Yield the address of an empty database, or queue, that goes away afterwards."""
        self._count += 1
        name = f"bench_{self._count}"
        if self._rabbitmq is not None and store == "rabbitmq":
            yield self._rabbitmq.address(name)  # it goes away with the server
            return
        if self._redis is not None and store == "redis":
            yield self._redis.emptied()
            return
        if store == "sqlite":
            yield f"sqlite:///{self._folder}/{name}.db"
            for file in self._folder.glob(f"{name}.db*"):
                file.unlink()
            return
        self._sql(f"CREATE DATABASE {name}")
        # Start each measurement with the same distance to the next checkpoint.
        self._sql("CHECKPOINT")
        try:
            yield f"postgresql://postgres@/{name}?host={self._folder}"
        finally:
            self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    @property
    def server_pid(self) -> int | None:
        """The process of PostgreSQL that started all others of it."""
        return None if self._server is None else self._server.pid

    @property
    def server_pids(self) -> list[int]:
        """The processes that started all others of PostgreSQL and of the brokers."""
        brokers = [each.pid for each in (self._rabbitmq, self._redis) if each is not None]
        return brokers + ([] if self._server is None else [self._server.pid])

    def version(self) -> str:
        return self._sql("SHOW server_version").strip()

    def _start_rabbitmq(self) -> None:
        if not rabbitmq.is_installed():
            install("rabbitmq-server")
        self._rabbitmq = rabbitmq.RabbitMQ(self._folder, self._identity())
        self._rabbitmq.start()

    def _start_redis(self) -> None:
        if not redis_server.is_installed():
            install("redis-server")
        self._redis = redis_server.Redis(self._folder, self._identity())
        self._redis.start()

    def _start_postgres(self) -> None:
        data = self._folder / "data"
        self._run(["initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"])
        options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        log = (self._folder / "server.log").open("wb")
        self._server = subprocess.Popen(
            [_binary("postgres"), "-D", str(data), f"-cunix_socket_directories={self._folder}", *options],
            stdout=log, stderr=log, start_new_session=True, **self._identity(),
        )  # fmt: skip
        self._await_ready()

    def _await_ready(self) -> None:
        for _ in range(200):
            ready = subprocess.run([_binary("pg_isready"), "-q", "-h", str(self._folder)], check=False)
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError((self._folder / "server.log").read_text())

    def _sql(self, statement: str) -> str:
        return self._run(["psql", "-h", str(self._folder), "-U", "postgres", "-qAtc", statement])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            [_binary(command[0]), *command[1:]],
            cwd=self._folder, check=True, capture_output=True, text=True, timeout=120, **self._identity(),
        )  # fmt: skip
        return done.stdout

    def _identity(self) -> dict[str, object]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


def _leave(*_: object) -> None:
    raise SystemExit(143)


def _unprivileged() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root, so root lends it another name."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("run the benchmark as a user other than root: there is no user postgres or nobody")


def _binary(name: str) -> str:
    """Find a program of PostgreSQL; as root on Debian, install what is missing."""
    found = _find(name)
    if found is None:
        install("postgresql")
        found = _find(name)
    if found is None:
        raise NotInstalledError(f"PostgreSQL's {name} was not found: put it on the PATH.")
    return found


def _find(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next(map(str, installed), None)
