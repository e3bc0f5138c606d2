"""Fixtures that every test may ask for. A server starts when the first test asks, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.brokers import BrokerServer, PrivateRabbitMQ, PrivateRedis, open_rabbitmq, open_redis
from tests.nodejs import NodePrograms, open_node
from tests.servers import PostgresServer, PrivatePostgres, ServerMissingError, in_ci, open_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Prepare

pytest_plugins = ["tests.conformance_plugin", "tests.long_files"]

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


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[BrokerServer]:
    """The RabbitMQ that tests share: each uses names of its own for exchanges and queues."""
    try:
        server = open_rabbitmq()
    except ServerMissingError as missing:
        _cannot_run(missing)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def _private_rabbitmq(rabbitmq_server: BrokerServer) -> Iterator[PrivateRabbitMQ]:
    if isinstance(rabbitmq_server, PrivateRabbitMQ):
        yield rabbitmq_server
        return
    try:
        server = PrivateRabbitMQ()
    except ServerMissingError as missing:
        _cannot_run(missing)
    with server:
        yield server


@pytest.fixture
def private_rabbitmq(_private_rabbitmq: PrivateRabbitMQ) -> Iterator[PrivateRabbitMQ]:
    """A RabbitMQ of the tests' own: it may be stopped, restarted and killed, and runs again afterwards."""
    _private_rabbitmq.start()
    yield _private_rabbitmq
    _private_rabbitmq.start()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[BrokerServer]:
    """The Redis that tests share: each uses names of its own for streams."""
    try:
        server = open_redis()
    except ServerMissingError as missing:
        _cannot_run(missing)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def private_redis() -> Iterator[PrivateRedis]:
    """A Redis for this test alone: it may be stopped, restarted and killed."""
    try:
        server = PrivateRedis()
    except ServerMissingError as missing:
        _cannot_run(missing)
    with server:
        yield server


@pytest.fixture(scope="session")
def node() -> NodePrograms:
    """Runs programs in Node that have npm's `amqplib` and `ioredis`."""
    try:
        return open_node()
    except ServerMissingError as missing:
        _cannot_run(missing)


def _cannot_run(missing: ServerMissingError) -> NoReturn:
    if in_ci():
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))
