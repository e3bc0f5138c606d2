"""Fixtures that every test may ask for. A server starts when the first test asks, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import PostgresServer, PrivatePostgres, ServerMissingError, in_ci, open_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Prepare

pytest_plugins = ["tests.conformance_plugin"]

# A busy machine must not make a test fail.
settings.register_profile("no deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL that tests share: fast, not safe against a power cut. No test stops or kills it."""
    try:
        server = open_postgres()
    except ServerMissingError as missing:
        _cannot_run(missing)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare | None:
    """What fills the template of each test's database; a folder of tests overrides it in its own conftest."""
    return None


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer, prepare_postgres: Prepare | None) -> Iterator[str]:
    """The address of a database that only this test uses, filled by `prepare_postgres`."""
    dsn = postgres_server.create_database(prepare_postgres)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def restartable_postgres() -> Iterator[PrivatePostgres]:
    """A PostgreSQL for this test alone, with fsync on: it may be stopped, restarted and killed."""
    try:
        server = PrivatePostgres(fsync=True)
    except ServerMissingError as missing:
        _cannot_run(missing)
    with server:
        yield server


def _cannot_run(missing: ServerMissingError) -> NoReturn:
    if in_ci():
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))
