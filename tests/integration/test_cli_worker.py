"""`holdfast worker` as a process: it gets signals, and nothing is lost."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from holdfast import Status
from tests.integration.cli_process import (
    a_worker,
    an_application,
    apply_schema,
    holdfast,
    read,
    submit,
    wait,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare, PrivatePostgres

MOST_MEGABYTES = 70


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@pytest.mark.clause("JOB-7")
async def test_a_job_that_ends_within_the_grace_time_is_completed_after_sigterm(
    url: str, folder: Path
) -> None:
    job_id = await submit(url, "waiting")

    with a_worker("--grace", "30s", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        (folder / "go").touch()
        code = worker.end()

    job = await read(url, job_id)
    assert code == 0
    assert (job.status, job.attempt, job.result) == (Status.COMPLETED, 1, '"done"')


@pytest.mark.clause("JOB-7")
async def test_a_job_that_outlasts_the_grace_time_is_queued_with_its_attempt_returned(
    url: str, folder: Path
) -> None:
    job_id = await submit(url, "tidy")

    with a_worker("--grace", "100ms", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("tidied up")
        code = worker.end()

    job = await read(url, job_id)
    assert code == 0
    assert (job.status, job.attempt, job.leased_by) == (Status.QUEUED, 0, None)


@pytest.mark.clause("JOB-7")
async def test_a_stopping_worker_claims_nothing_more(url: str, folder: Path) -> None:
    await submit(url, "waiting")

    with a_worker(cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        late = await submit(url, "sum", 1)
        (folder / "go").touch()
        worker.end()

    job = await read(url, late)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


@pytest.mark.clause("JOB-7")
@pytest.mark.parametrize("name", ["tidy", "threaded", "blocking"])
async def test_a_second_signal_gives_running_jobs_back_at_once(url: str, folder: Path, name: str) -> None:
    job_id = await submit(url, name)

    with a_worker("--grace", "1h", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        worker.signal(signal.SIGTERM)
        code = worker.end()

    job = await read(url, job_id)
    assert code == 0
    assert (job.status, job.attempt, job.leased_by) == (Status.QUEUED, 0, None)


@pytest.mark.clause("JOB-7")
async def test_what_a_worker_gave_back_is_run_by_the_next(url: str, folder: Path) -> None:
    job_id = await submit(url, "waiting")
    with a_worker("--grace", "0s", cwd=folder, settings={"DATABASE_URL": url}) as first:
        first.wait_for("begun")
        first.signal(signal.SIGINT)
        first.end()

    (folder / "go").touch()
    with a_worker(cwd=folder, settings={"DATABASE_URL": url}):
        job = await wait(url, job_id)

    assert (job.status, job.attempt) == (Status.COMPLETED, 1)


async def test_a_third_signal_ends_the_process_and_the_job_stays(url: str, folder: Path) -> None:
    job_id = await submit(url, "stubborn")
    (folder / "app.py").write_text(STUBBORN, encoding="utf-8")

    with a_worker("--grace", "1h", cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        for _ in range(2):
            worker.signal(signal.SIGTERM)
            worker.wait_for("worker stopping")
        worker.signal(signal.SIGTERM)
        code = worker.end()

    job = await read(url, job_id)
    assert code == 128 + signal.SIGTERM
    assert (job.status, job.attempt) == (Status.PROCESSING, 1)


STUBBORN = """
import asyncio
from holdfast import Holdfast

hold = Holdfast()


@hold.job("stubborn")
async def stubborn() -> None:
    print("begun", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
"""


async def test_an_idle_worker_is_small(url: str, folder: Path) -> None:
    done = await submit(url, "sum", 1)

    with a_worker(cwd=folder, settings={"DATABASE_URL": url}, anew=True) as worker:
        await wait(url, done)
        megabytes = worker.resident_mb

    assert megabytes < MOST_MEGABYTES


async def test_a_worker_works_on_the_queues_it_is_given(url: str, folder: Path) -> None:
    left = await submit(url, "sum", 1)
    await submit(url, "elsewhere")

    with a_worker(
        "--queue", "other", "--queue", "third", cwd=folder, settings={"DATABASE_URL": url}
    ) as worker:
        worker.wait_for("elsewhere ran")
        worker.signal(signal.SIGTERM)
        worker.end()

    assert (await read(url, left)).status is Status.QUEUED


async def test_log_lines_are_json_or_text_from_the_level_that_is_asked_for(tmp_path: Path) -> None:
    folder, url = an_application(tmp_path), f"sqlite:///{tmp_path}/jobs.db"
    settings = {"DATABASE_URL": url, "HOLDFAST_LOG_FORMAT": "text", "HOLDFAST_LOG_LEVEL": "error"}

    with a_worker("--log-format", "json", "--log-level", "DEBUG", cwd=folder, settings=settings) as worker:
        await submit(url, "sum", 2)
        completed = json.loads(worker.wait_for("completed"))
    with a_worker("--log-level", "info", cwd=folder, settings=settings) as worker:
        worker.signal(signal.SIGTERM)
        stopped = worker.wait_for("worker stopped")

    assert completed["event"] == "job completed"
    assert completed["status"] == "completed"
    assert "[info     ] worker stopped" in stopped
    assert "\x1b" not in stopped


def test_a_worker_with_nothing_to_run_says_so(tmp_path: Path) -> None:
    folder = an_application(tmp_path, "from holdfast import Holdfast\nhold = Holdfast('sqlite:///jobs.db')\n")

    with a_worker(cwd=folder, settings={}) as worker:
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert code == 0
    assert "no jobs declared" in worker.output


async def test_a_running_worker_comes_back_after_its_database_did(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    url = restartable_postgres.create_database(apply_schema)
    folder = an_application(tmp_path)

    with a_worker(cwd=folder, settings={"DATABASE_URL": url}) as worker:
        restartable_postgres.stop("immediate")
        worker.wait_for("PostgreSQL does not answer")
        restartable_postgres.start()
        job = await wait(url, await submit(url, "sum", 20))
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert (job.status, job.result, code) == (Status.COMPLETED, "41", 0)


async def test_a_running_worker_outlasts_a_failover_to_a_database_that_is_read_only(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    import asyncpg

    url = restartable_postgres.create_database(apply_schema)
    folder, name = an_application(tmp_path), url.rsplit("/", 1)[1]
    job_id = await submit(url, "waiting")
    admin = await asyncpg.connect(restartable_postgres.dsn())

    async def turn(state: str) -> None:
        await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}')

    async def disconnect() -> None:
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)

    with a_worker(cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        await turn("on")
        await disconnect()
        worker.wait_for("read-only")
        (folder / "go").touch()
        await turn("off")  # what is connected now stays read-only, as on a primary that was demoted
        job = await wait(url, job_id)
    await admin.close()

    assert (job.status, job.attempt) == (Status.COMPLETED, 1)


async def test_a_worker_that_cannot_store_what_became_of_a_job_says_so_when_it_leaves(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    url = restartable_postgres.create_database(apply_schema)
    folder = an_application(tmp_path)
    job_id = await submit(url, "waiting")

    with a_worker(cwd=folder, settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        restartable_postgres.stop("immediate")
        (folder / "go").touch()
        worker.wait_for("store unavailable")
        worker.signal(signal.SIGTERM)
        code = worker.end()
    restartable_postgres.start()

    job = await read(url, job_id)
    assert code == 3
    assert worker.output.splitlines()[-1].startswith(
        "holdfast: the outcomes of 1 attempts could not be stored"
    )
    assert (job.status, job.attempt) == (Status.PROCESSING, 1)


@pytest.mark.parametrize("stopped", ["fast", "immediate"])
def test_a_worker_that_finds_no_database_says_so_and_leaves(
    restartable_postgres: PrivatePostgres, tmp_path: Path, stopped: str
) -> None:
    url = restartable_postgres.create_database(apply_schema)
    restartable_postgres.stop("fast" if stopped == "fast" else "immediate")

    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings={"DATABASE_URL": url})

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: PostgreSQL does not answer")
    assert len(done.stderr.splitlines()) == 1
