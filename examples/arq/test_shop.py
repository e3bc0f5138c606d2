"""What becomes of an order while the mail server is away, before and after its function is durable."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 60.0


class Shop:
    """One version of the shop, in the current folder, with the commands that run for it."""

    def __init__(self, version: str, commands: ExitStack) -> None:
        self._commands = commands
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE / version), *sys.path])}

    def run(self, *words: str) -> None:
        subprocess.run([sys.executable, *words], env=self._environment, check=True, timeout=LIMIT)

    def start(self, *words: str) -> None:
        command = self._commands.enter_context(
            subprocess.Popen([sys.executable, "-m", *words], env=self._environment)
        )
        self._commands.callback(command.kill)

    def place(self, order: int) -> None:
        self.run(str(HERE / "place.py"), str(order))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def before() -> Iterator[Shop]:
    with ExitStack() as commands:
        shop = Shop("before", commands)
        shop.start("arq", "shop.WorkerSettings")
        yield shop


@pytest.fixture
def after() -> Iterator[Shop]:
    with ExitStack() as commands:
        shop = Shop("after", commands)
        shop.run("-m", "holdfast", "schema", "apply", "--app", "shop:hold")
        shop.start("arq", "shop.WorkerSettings")
        shop.start("arq", "shop.JobSettings")
        shop.start("holdfast", "dispatch", "shop:hold")
        yield shop


def wait_for(name: str) -> None:
    until = time.monotonic() + LIMIT
    while not Path(name).exists():
        assert time.monotonic() < until, f"{name} is not there"
        time.sleep(0.02)


def place_while_the_mail_server_is_away(shop: Shop, order: int) -> None:
    Path("mail-server-is-away").touch()
    shop.place(order)
    wait_for(f"{order}.refused")
    Path("mail-server-is-away").unlink()


def test_before_the_order_is_lost(before: Shop) -> None:
    place_while_the_mail_server_is_away(before, 17)

    before.place(18)
    wait_for("18.sent")

    assert not Path("17.sent").exists()


def test_after_the_order_is_confirmed_when_the_mail_server_is_back(after: Shop) -> None:
    place_while_the_mail_server_is_away(after, 17)

    wait_for("17.sent")


def test_after_an_order_is_confirmed_as_before(after: Shop) -> None:
    after.place(19)

    wait_for("19.sent")
