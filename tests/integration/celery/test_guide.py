"""The guide works as written: its files and its commands, one after the other, in an empty folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import PrivateRabbitMQ
from tests.pages import FLEETS, ROOT, Block
from tests.shells import Shell, assert_shows, steps

[PAGE] = [page for page in FLEETS if "celery" in page.name]
SHOWN_BROKER = "amqp://guest:guest@localhost:5672//"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    opened = Shell(tmp_path, {"PYTHONPATH": path, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"})
    yield opened
    opened.close()


def test_the_guide_works_as_written(shell: Shell, tmp_path: Path, private_rabbitmq: PrivateRabbitMQ) -> None:
    shown = ""
    for step in steps(PAGE):
        match step:
            case Block(title=str(title)):
                save(step, tmp_path / title, private_rabbitmq.url)
            case Block(language="sh") if not step.text.startswith("pip install"):
                shown = shell.run(step.text.strip())
            case Block(language="text"):
                assert_shows(shown, step.text)
            case str():
                shell.wait_for(step.removeprefix("wait for: "))


def save(block: Block, path: Path, broker: str) -> None:
    """Write a file as the page says: whole, or at the end of the one that is there."""
    before = path.read_text(encoding="utf-8") if "at the end of the file" in block.remark else ""
    path.write_text(before + block.text.replace(SHOWN_BROKER, broker), encoding="utf-8")
