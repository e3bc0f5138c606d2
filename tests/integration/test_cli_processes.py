"""`holdfast worker --processes`: one command, several processes, and nothing is lost when one of them dies."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from holdfast import Status
from tests.integration.cli_process import (
    Running,
    a_worker,
    an_application,
    apply_schema,
    holdfast,
    read,
    submit,
    wait,
)
from tests.integration.http_probe import Health

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import PostgresServer, Prepare

TWO = ("--processes", "2")


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


def pids(worker: Running) -> list[int]:
    """Name the processes that were started so far, in their order."""
    return [int(pid) for pid in re.findall(r'"pid": (\d+), "event": "process started"', worker.output)]


async def holder(url: str, job_id: str) -> int:
    """Name the process that runs a job."""
    job = await read(url, job_id)
    return int((job.leased_by or "").split(":")[1])


def test_each_process_is_a_worker_of_its_own(url: str, folder: Path) -> None:
    with a_worker(*TWO, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("worker started")

        workers = re.findall(
            r'"worker": "[^:]+:(\d+):\w+", "slots": \d+, "event": "worker started"', worker.output
        )

    assert {int(pid) for pid in workers} == set(pids(worker))
    assert len(pids(worker)) == 2


@pytest.mark.clause("JOB-7")
async def test_sigterm_reaches_all_processes_and_they_finish_what_they_have(url: str, folder: Path) -> None:
    jobs = [await submit(url, "waiting") for _ in range(2)]

    with a_worker(*TWO, "--slots", "1", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        worker.wait_for("worker stopping")
        (folder / "go").touch()
        code = worker.end()

    ended = [await read(url, job_id) for job_id in jobs]
    assert code == 0
    assert [(job.status, job.attempt) for job in ended] == [(Status.COMPLETED, 1)] * 2


@pytest.mark.clause("JOB-7")
async def test_a_second_signal_has_all_processes_give_their_jobs_back(url: str, folder: Path) -> None:
    jobs = [await submit(url, "tidy") for _ in range(2)]

    with a_worker(
        *TWO, "--slots", "1", "--grace", "1h", cwd=folder, settings={"DATABASE_URL": url}
    ) as worker:
        worker.wait_for("begun")
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        worker.wait_for("worker stopping")
        worker.signal(signal.SIGTERM)
        code = worker.end()

    back = [await read(url, job_id) for job_id in jobs]
    assert code == 0
    assert [(job.status, job.attempt, job.leased_by) for job in back] == [(Status.QUEUED, 0, None)] * 2


@pytest.mark.clause("JOB-6")
async def test_a_process_that_is_killed_is_replaced_and_its_job_runs_again(url: str, folder: Path) -> None:
    job_id = await submit(url, "waiting")

    with a_worker(*TWO, "--lease", "1s", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("worker started")
        if "begun" not in worker.output:
            worker.wait_for("begun")
        before = pids(worker)
        os.kill(await holder(url, job_id), signal.SIGKILL)
        ended = worker.wait_for("process ended")
        worker.wait_for("process started")
        worker.wait_for("worker started")
        (folder / "go").touch()
        job = await wait(url, job_id)
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert '"code": -9' in ended
    assert len(set(pids(worker)) - set(before)) == 1
    assert (job.status, job.last_attempt) == (Status.COMPLETED, 2)
    assert code == 0


async def test_a_signal_that_comes_directly_and_through_the_parent_counts_once(
    url: str, folder: Path
) -> None:
    """A terminal and systemd signal every process of a group, and the parent passes on what it received."""
    job_id = await submit(url, "waiting")

    with a_worker(*TWO, "--grace", "1h", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        if "begun" not in worker.output:
            worker.wait_for("begun")
        os.kill(await holder(url, job_id), signal.SIGTERM)
        worker.wait_for("worker stopping")
        worker.signal(signal.SIGTERM)
        worker.wait_for("processes stopping")
        worker.wait_for("worker stopping")  # the other one's: by now the first has its second message, too
        (folder / "go").touch()
        code = worker.end()

    job = await read(url, job_id)
    assert code == 0
    assert (job.status, job.attempt) == (Status.COMPLETED, 1)


async def test_no_process_outlives_a_parent_that_is_killed(url: str, folder: Path) -> None:
    job_id = await submit(url, "tidy")

    with a_worker(*TWO, "--grace", "0s", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("worker started")
        if "begun" not in worker.output:
            worker.wait_for("begun")
        worker.signal(signal.SIGKILL)
        worker.end()  # it reads until no process is left that could write

    job = await read(url, job_id)
    assert worker.output.count("worker stopped") == 2
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_a_process_that_hangs_is_reported_on_the_port_of_all(tmp_path: Path) -> None:
    folder = an_application(tmp_path)

    with a_worker(*TWO, "--health-port", "0", cwd=folder, settings={}) as worker:
        health = Health(worker)
        worker.wait_for("worker started")
        health.until(200, "/live")
        os.kill(pids(worker)[1], signal.SIGSTOP)
        stuck = health.until(503, "/live")
        os.kill(pids(worker)[1], signal.SIGCONT)
        health.until(200, "/live")
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert stuck["live"] is False
    assert len(stuck["stuck"]) == 1
    assert code == 0


async def test_a_process_that_is_terminated_is_replaced(url: str, folder: Path) -> None:
    with a_worker(*TWO, cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("worker started")
        os.kill(pids(worker)[0], signal.SIGTERM)
        ended = worker.wait_for("process ended")
        worker.wait_for("worker started")
        job = await wait(url, await submit(url, "sum", 20))
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert '"code": 0' in ended
    assert (job.result, code) == ("41", 0)


def test_what_no_process_can_work_with_ends_the_parent(postgres_server: PostgresServer, folder: Path) -> None:
    empty = postgres_server.create_database()
    try:
        done = holdfast("worker", "app:hold", *TWO, cwd=folder, settings={"DATABASE_URL": empty})
    finally:
        postgres_server.drop_database(empty)

    assert done.returncode == 2
    assert "holdfast schema apply" in done.stderr


def test_words_that_make_no_sense_are_reported_once(folder: Path) -> None:
    done = holdfast("worker", "app:absent", *TWO, cwd=folder)

    assert done.returncode == 2
    assert done.stderr == "holdfast: module 'app' has no 'absent'\n"


@pytest.mark.clause("OBS-2")
async def test_the_health_port_speaks_for_all_processes(url: str, folder: Path) -> None:
    done = await submit(url, "sum", 20)

    with a_worker(*TWO, "--health-port", "0", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        health = Health(worker)
        worker.wait_for("worker started")
        await wait(url, done)
        ready = health.until(200)
        assert set(ready["processes"]) == {"1", "2"}
        assert health.ask("/live") == (200, {"live": True})

        samples = health.samples()
        slots = [samples[f'holdfast_worker_slots{{process="{number}"}}'] for number in (1, 2)]
        completed = [samples[f'holdfast_jobs_completed_total{{process="{number}"}}'] for number in (1, 2)]

        waiting = await submit(url, "waiting")
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        worker.wait_for("worker stopping")
        status, answer = health.ask("/ready")
        (folder / "go").touch()
        code = worker.end()

    assert slots == [100, 100]
    assert sum(completed) == 1
    assert (status, answer["ready"]) == (503, False)
    assert (await read(url, waiting)).status is Status.COMPLETED
    assert code == 0
