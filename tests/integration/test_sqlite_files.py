"""A SQLite file is made for its user alone, and not in a place that another user has chosen."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def opened(path: Path) -> None:
    async with Holdfast(f"sqlite:///{path}") as hold:
        assert await hold.find() == []


async def test_a_new_file_and_its_log_are_for_their_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async with Holdfast(f"sqlite:///{path}") as hold:
        await hold.find()
        modes = {file.name: mode(file) for file in tmp_path.iterdir()}

    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.touch(mode=0o600)
    path.chmod(0o660)

    await opened(path)

    assert mode(path) == 0o660


async def test_a_link_that_leads_nowhere_makes_no_file(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere.db", tmp_path / "jobs.db"
    link.symlink_to(target)

    with pytest.raises(StoreUnavailable, match="a symbolic link to a file that does not exist"):
        await opened(link)

    assert not target.exists()


async def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere.db", tmp_path / "jobs.db"
    target.touch(mode=0o600)
    link.symlink_to(target)

    await opened(link)

    assert target.stat().st_size > 0
