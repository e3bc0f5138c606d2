"""What these tests share: each of them on both stores, with a database of its own, and a server that may be stopped."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.acceptance.harness.clocks import faketime_library
from tests.acceptance.harness.databases import STORES, Database, StoreName, open_database, open_server
from tests.acceptance.harness.disks import SmallDisk
from tests.acceptance.harness.prerequisites import PrerequisiteMissingError
from tests.servers import ServerMissingError, in_ci, postgres_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import PrivatePostgres

collect_ignore = ["harness/essays_app.py"]  # a Celery app, for the processes of a fleet only


@pytest.fixture(params=STORES)
def store_name(request: pytest.FixtureRequest) -> StoreName:
    """The store that this run of the test is about."""
    name: StoreName = request.param
    return name


@pytest.fixture
def needs_its_server(store_name: StoreName) -> None:
    """Skip a test whose server cannot be had here, before it begins."""
    if store_name == "postgres":
        _ensure_postgres()


@pytest.fixture(scope="session")
def stoppable_server() -> Iterator[PrivatePostgres]:
    """A PostgreSQL for the tests of this folder, one after the other: each may stop and kill it."""
    _ensure_postgres()
    with open_server() as server:
        yield server


@pytest.fixture
def database(
    store_name: StoreName, needs_its_server: None, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """An empty database of that store; the server of a PostgreSQL may be stopped."""
    with open_database(store_name, tmp_path, server=_server_of(store_name, request)) as opened:
        yield opened


@pytest.fixture(scope="module", params=STORES)
def lasting_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """An empty database of each store, for tests that judge one run of theirs together."""
    folder = tmp_path_factory.mktemp(request.param)
    with open_database(request.param, folder, server=_server_of(request.param, request)) as opened:
        yield opened


@pytest.fixture
def postgres_database(tmp_path: Path, stoppable_server: PrivatePostgres) -> Iterator[Database]:
    """An empty database on PostgreSQL, for what SQLite does not have: a server that goes away."""
    with open_database("postgres", tmp_path, server=stoppable_server) as opened:
        yield opened


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A separate disk that can be filled; mounting it takes the right to mount."""
    try:
        disk = SmallDisk(megabytes=32).__enter__()
    except PrerequisiteMissingError as missing:
        _cannot_run(missing)
    with ExitStack() as stack:
        stack.push(disk)
        yield disk


@pytest.fixture
def faketime() -> None:
    """Skip a test that needs wrong clocks where they cannot be had."""
    try:
        faketime_library()
    except PrerequisiteMissingError as missing:
        _cannot_run(missing)


def _server_of(store: StoreName, request: pytest.FixtureRequest) -> PrivatePostgres | None:
    if store == "sqlite":
        return None
    server: PrivatePostgres = request.getfixturevalue("stoppable_server")
    return server


def _ensure_postgres() -> None:
    try:
        postgres_binaries()
    except ServerMissingError as missing:
        _cannot_run(missing)


def _cannot_run(missing: ServerMissingError | PrerequisiteMissingError) -> NoReturn:
    if in_ci():
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))
