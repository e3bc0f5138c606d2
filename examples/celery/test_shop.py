"""What becomes of an order whose worker is killed, before and after its task is durable."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 60.0


class Shop:
    """One version of the shop, in a folder of its own, with the processes that were started for it."""

    def __init__(self, version: str, folder: Path, processes: ExitStack) -> None:
        self.folder = folder
        self._processes = processes
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE / version), *sys.path])}

    @property
    def worker_command(self) -> tuple[str, ...]:
        return (
            "celery",
            "-A",
            "shop",
            "worker",
            "-Q",
            "celery,holdfast",
            "--concurrency",
            "1",
            "--loglevel",
            "INFO",
        )

    def start_worker(self) -> "subprocess.Popen[bytes]":
        worker = self.start(*self.worker_command)
        self.wait_for(lambda: "ready." in self.log_of(worker))
        return worker

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a command in a process group of its own, which is killed in the end."""
        with (self.folder / "starting.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / "starting.log").rename(self.folder / f"{process.pid}.log")
        self._processes.callback(kill, process)
        return process

    def log_of(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.folder / f"{process.pid}.log").read_text(errors="replace")

    def run(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self._environment, check=True, timeout=LIMIT
        )

    def place(self, order: int) -> None:
        self.run(str(HERE / "place.py"), str(order))

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def wait_for(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT
        while not true():
            assert time.monotonic() < until, {
                path.name: path.read_text() for path in self.folder.glob("*.log")
            }
            time.sleep(0.02)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command with all its processes, unless that was done before."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def the_shop(version: str, folder: Path) -> Iterator[Shop]:
    with ExitStack() as processes:
        yield Shop(version, folder, processes)


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Shop]:
    with the_shop("before", tmp_path) as shop:
        yield shop


@pytest.fixture
def after(tmp_path: Path) -> Iterator[Shop]:
    with the_shop("after", tmp_path) as shop:
        shop.run("-m", "holdfast", "schema", "apply", "--app", "shop:hold")
        dispatcher = shop.start("holdfast", "dispatch", "shop:hold")
        shop.wait_for(lambda: "worker started" in shop.log_of(dispatcher))
        yield shop


def kill_a_worker_while_it_confirms(shop: Shop, order: int) -> None:
    worker = shop.start_worker()
    shop.place(order)
    shop.wait_for(lambda: shop.has(f"{order}.sending"))
    kill(worker)
    assert not shop.has(f"{order}.sent")


def test_before_the_order_of_a_killed_worker_is_lost(before: Shop) -> None:
    kill_a_worker_while_it_confirms(before, 17)

    before.start_worker()
    before.place(18)
    before.wait_for(lambda: before.has("18.sent"))

    assert not before.has("17.sent")


def test_after_the_order_of_a_killed_worker_is_confirmed_by_the_next(after: Shop) -> None:
    kill_a_worker_while_it_confirms(after, 17)

    after.start_worker()

    after.wait_for(lambda: after.has("17.sent"))


def test_an_order_is_taken_while_no_worker_runs(after: Shop) -> None:
    after.place(19)

    after.start_worker()

    after.wait_for(lambda: after.has("19.sent"))
