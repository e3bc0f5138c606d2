"""One fleet for most tests of a module: a Celery worker with two processes, and a dispatcher."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerServer
from tests.integration.celery.celery_processes import Fleet
from tests.integration.cli_process import apply_schema

collect_ignore = ["fleet_app.py", "inspected_app.py"]
"""Apps for processes of their own: they read their environment when they are imported."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database that only this module uses."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        asyncio.run(apply_schema(url))
        yield url
        return
    server: Any = request.getfixturevalue("postgres_server")
    dsn = server.create_database(apply_schema)
    yield dsn
    server.drop_database(dsn)


@pytest.fixture(scope="module")
def idle_fleet(
    database: str, rabbitmq_server: BrokerServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A fleet of which nothing runs yet."""
    fleet = Fleet(database, rabbitmq_server.url, Path(tmp_path_factory.mktemp("fleet")))
    yield fleet
    fleet.app.close()
    fleet.hold.close_sync()


@pytest.fixture(scope="module")
def fleet(idle_fleet: Fleet) -> Iterator[Fleet]:
    """A fleet whose worker and dispatcher run."""
    with idle_fleet.worker("-c", "2"), idle_fleet.dispatcher():
        yield idle_fleet
