"""A Holdfast with an archive, which keeps letters for an hour."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast import Holdfast, JobFunction, Retention
from tests.contract.conftest import Database, Logger
from tests.contract.letters import opened, two_stages
from tests.contract.services import Service, down

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEPT = Retention(letters=HOUR, most_letters=None, letters_a_day=None, finished=None, keys=None)

Opening = Callable[..., AbstractAsyncContextManager[Holdfast]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def opening(database: Database, logger: Logger, folder: Path) -> Opening:
    """Opens a Holdfast with an archive, which keeps letters for an hour unless a test says otherwise."""
    return partial(opened, database, logger, archive=str(folder), retention=KEPT)


@pytest.fixture
async def hold(opening: Opening) -> AsyncIterator[Holdfast]:
    async with opening() as made:
        yield made


def archived(folder: Path) -> list[str]:
    """Name the jobs whose letters are in the archive, the oldest first."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(folder.glob("*.manifest.json"))]
    return [letter["job_id"] for manifest in manifests for letter in manifest["letters"]]


@pytest.fixture
def fetched() -> Service:
    return Service()


@pytest.fixture
def review(hold: Holdfast, fetched: Service, service: Service) -> JobFunction[[int], int]:
    """A job whose service is down."""
    service.error = down()
    return two_stages(hold, fetched, service)
