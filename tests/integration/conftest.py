"""What the tests of commands share: a database of each kind, and an application to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.cli_process import an_application

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database that only this test uses."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application in it."""
    return an_application(tmp_path)
