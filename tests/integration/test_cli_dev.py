"""`holdfast dev`: a worker that follows the code, and loses no job."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast import Status
from holdfast.cli.commands.dev import python_files
from tests.integration.cli_process import Running, a_process, an_application, read, submit, wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = """
import asyncio
from pathlib import Path

from holdfast import Holdfast

hold = Holdfast()


@hold.job("sum")
async def add(number: int) -> int:
    return number + {added}


@hold.job("waiting", attempts=1)
async def waiting() -> str:
    print("begun", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return a_version(tmp_path, 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/holdfast.db"


def a_version(folder: Path, added: int) -> Path:
    return an_application(folder, VERSION.replace("{added}", str(added)))


@contextmanager
def dev(*words: str, cwd: Path) -> Iterator[Running]:
    """Run `holdfast dev`, in the folder of the application; its worker has begun to claim."""
    with a_process("dev", "app:hold", *words, cwd=cwd) as running:
        running.wait_for("worker started")
        yield running


async def test_jobs_run_with_the_code_as_it_was_saved_last(folder: Path, url: str) -> None:
    with dev(cwd=folder) as worker:
        before = await wait(url, await submit(url, "sum", 1))
        a_version(folder, 1000)
        worker.wait_for("app.py has changed; restarting the worker")
        worker.wait_for("worker started")
        after = await wait(url, await submit(url, "sum", 1))

    assert (before.result, after.result) == ("2", "1001")


async def test_a_job_that_runs_when_the_code_changes_may_go_on_to_its_end(folder: Path, url: str) -> None:
    job_id = await submit(url, "waiting")

    with dev("--grace", "30s", cwd=folder) as worker:
        if "begun" not in worker.output:
            worker.wait_for("begun")
        a_version(folder, 1000)
        worker.wait_for("worker stopping")
        (folder / "go").touch()
        worker.wait_for("worker started")

    job = await read(url, job_id)
    assert (job.status, job.attempt, job.result) == (Status.COMPLETED, 1, '"done"')


async def test_a_job_that_takes_longer_is_given_back_with_its_attempt(folder: Path, url: str) -> None:
    job_id = await submit(url, "waiting")

    with dev("--grace", "0s", cwd=folder) as worker:
        if "begun" not in worker.output:
            worker.wait_for("begun")
        (folder / "other.py").touch()
        worker.wait_for("other.py has changed")
        worker.wait_for("begun")
        (folder / "go").touch()
        job = await wait(url, job_id)

    assert (job.status, job.last_attempt) == (Status.COMPLETED, 1)


async def test_code_that_cannot_be_imported_is_waited_for(folder: Path, url: str) -> None:
    with dev(cwd=folder) as worker:
        an_application(folder, "import")
        worker.wait_for("cannot import 'app'")
        worker.wait_for("the worker exited with code 2; it restarts when a Python file changes")
        a_version(folder, 1000)
        worker.wait_for("worker started")
        job = await wait(url, await submit(url, "sum", 1))

    assert job.result == "1001"


FAILING = """
from holdfast import Holdfast

hold = Holdfast(attempts=1)


@hold.job("grade")
async def grade() -> int:
    raise ValueError("password=hunter2hunter2")


@hold.job("quick")
async def quick() -> None:
    return None
"""


async def test_a_failure_is_shown_with_its_stack_and_a_success_as_one_line(tmp_path: Path, url: str) -> None:
    an_application(tmp_path, FAILING)
    with dev(cwd=tmp_path) as worker:
        await wait(url, await submit(url, "grade"))
        # One after the other: the text of a failure is written in a thread, and another job may end before that.
        worker.wait_for("app.py:9 in grade")
        completed = await submit(url, "quick")
        await wait(url, completed)
        worker.wait_for("completed")

    assert "ValueError" in worker.output
    assert "hunter2" not in worker.output
    [line] = [line for line in worker.output.splitlines() if completed in line]
    assert "name=quick" in line
    assert "queue=default" in line


async def test_the_level_of_what_dev_logs_can_be_chosen(folder: Path, url: str) -> None:
    with a_process("dev", "app:hold", "--log-level", "warning", cwd=folder) as worker:
        await wait(url, await submit(url, "sum", 1))

    assert "completed" not in worker.output
    assert "worker started" not in worker.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_worker(folder: Path, number: signal.Signals) -> None:
    with dev(cwd=folder) as worker:
        worker.signal(number)
        worker.wait_for("worker stopped")
        code = worker.end()

    assert code == 0


def test_a_worker_does_not_outlive_it(folder: Path) -> None:
    with dev(cwd=folder) as worker:
        worker.signal(signal.SIGKILL)
        worker.wait_for("worker stopped")


def test_what_is_not_ones_own_code_is_not_looked_at(tmp_path: Path) -> None:
    for name in (
        "app.py",
        "inner/jobs.py",
        ".hidden/a.py",
        "env/pyvenv.cfg",
        "env/lib/b.py",
        "inner/notes.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    os.symlink(tmp_path / "nowhere", tmp_path / "lost.py")

    assert set(python_files(tmp_path)) == {tmp_path / "app.py", tmp_path / "inner/jobs.py"}
