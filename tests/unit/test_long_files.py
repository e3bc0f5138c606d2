"""The list of files that are handed out first is up to date."""

from __future__ import annotations

from pathlib import Path

from tests.long_files import LONG_FILES

ROOT = Path(__file__).parents[2]


def test_every_file_that_is_handed_out_first_exists() -> None:
    assert [file for file in LONG_FILES if not (ROOT / file).exists()] == []


def test_no_file_is_listed_twice() -> None:
    assert len(set(LONG_FILES)) == len(LONG_FILES)
