"""The tutorial works as written: its files, its commands, what they show, and the crash in the middle."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import DOCS, Block
from tests.shells import TIMEOUT, Shell, assert_shows, steps

TUTORIAL = DOCS / "tutorial/first-job.md"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


def test_the_tutorial_works_as_written(shell: Shell, tmp_path: Path) -> None:
    shown, seen = "", []
    for part in steps(TUTORIAL):
        match part:
            case Block(title=str(title)):
                (tmp_path / title).write_text(part.text, encoding="utf-8")
            case Block(language="sh"):
                shown = shell.run(part.text)
            case Block(language="text"):
                assert_shows(shown, part.text)
            case str() if part.startswith("wait for: "):
                seen.append(shell.wait_for(part.removeprefix("wait for: ")))
            case str() if part.startswith("wait until: "):
                wait_until(shell, part.removeprefix("wait until: "))
            case _:
                raise AssertionError(part)

    before_the_crash, after_it = seen
    assert "fetching page-1" in before_the_crash
    assert "fetching page-1" not in after_it
    assert shell.run("python submit.py page-1; echo $job").split().count(shell.run("echo $job").strip()) == 2


def wait_until(shell: Shell, status: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while f"\t{status}\t" not in shell.run(f"holdfast jobs list --app app:hold --status {status}"):
        assert time.monotonic() < deadline, f"no job became {status}"
