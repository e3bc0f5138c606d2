"""The guides that build a project work as written: in an empty folder, with the built wheel, command by command."""

import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import DOCS, PROJECTS, Block, blocks, name_of
from tests.shells import Shell, assert_shows, steps
from tools.debian import NotInstalledError, install

SHOWN_PORT = "8000"
TRIES = 100


@pytest.fixture
def shell(tmp_path: Path, settings: dict[str, str]) -> Iterator[Shell]:
    opened = Shell(tmp_path, settings)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def curl() -> None:
    if shutil.which("curl") is None:
        try:
            install("curl")
        except NotInstalledError as error:
            pytest.skip(str(error))


@pytest.mark.usefixtures("curl")
@pytest.mark.parametrize("page", PROJECTS, ids=name_of)
def test_a_project_works_as_its_page_says(page: Path, shell: Shell, tmp_path: Path, wheel: Path) -> None:
    port, commands, shown = free_port(), "", ""
    for step in steps(page):
        match step:
            case Block(title=str(title)):
                save(step, tmp_path / title)
            case Block(language="sh"):
                commands = as_here(step.text, wheel=wheel, port=port)
                shown = shell.run(commands)
            case Block(language="text"):
                see(step.text, shown, shell, commands)
            case str():
                shell.wait_for(step.removeprefix("wait for: "))
            case _:
                raise AssertionError(step)


def test_a_job_in_djangos_transaction_takes_less_than_ten_commands() -> None:
    commands = [
        line
        for block in blocks(DOCS / "guides/django.md")
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    from_pip_on = commands[[line.startswith("pip install") for line in commands].index(True) :]

    assert len(from_pip_on) < 10


def save(block: Block, path: Path) -> None:
    """Write a file as the page says: whole, or at the end of the one that is there."""
    before = path.read_text(encoding="utf-8") if "at the end of the file" in block.remark else ""
    path.write_text(before + block.text, encoding="utf-8")


def as_here(commands: str, *, wheel: Path, port: int) -> str:
    """Install the wheel in the place of the checkout, and use a port that is free on this machine."""
    local = re.sub(r"^(pip install .*)\.\./holdfast\b", rf"\1{wheel}", commands, flags=re.MULTILINE)
    return local.replace(SHOWN_PORT, str(port))


def see(expected: str, shown: str, shell: Shell, commands: str) -> None:
    """Compare what a command showed; one that lists jobs is given again until the job has ended."""
    if "jobs list" in commands:
        for _ in range(TRIES):
            if "completed" in shown:
                break
            shown = shell.run(commands)
    assert_shows(shown, expected)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
