"""`holdfast jobs`: what is there can be listed, shown, cancelled and brought back."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

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

    from tests.servers import Prepare

NO_SUCH_JOB = "0197f0c4-0000-7000-8000-000000000000"


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_dsn"))


async def failed_jobs(url: str, folder: Path, *whys: str, **options: Any) -> list[str]:
    """Submit jobs and have a worker fail them."""
    ids = [await submit(url, "refused", why, **options) for why in whys]
    with a_worker(cwd=an_application(folder), settings={"DATABASE_URL": url}):
        for job_id in ids:
            await wait(url, job_id)
    return ids


async def test_a_list_is_filtered_limited_and_paged(url: str, tmp_path: Path) -> None:
    first = await submit(url, "sum", 1, owner="ada")
    second = await submit(url, "sum", 2, owner="bob")
    third = await submit(url, "elsewhere", owner="ada")

    def listed(*words: str) -> list[str]:
        done = holdfast("jobs", "list", *words, "--url", url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    assert listed() == [third, second, first]
    assert listed("--limit", "2") == [third, second]
    assert listed("--before", second.upper()) == [first]
    assert listed("--owner", "ada") == [third, first]
    assert listed("--name", "sum", "--owner", "bob") == [second]
    assert listed("--queue", "other") == [third]
    assert listed("--status", "queued", "--limit", "1") == [third]
    assert listed("--status", "failed") == []


async def test_in_a_pipe_a_job_is_a_line_of_tab_separated_fields(url: str, tmp_path: Path) -> None:
    [job_id] = await failed_jobs(url, tmp_path, "no", owner="ada")

    done = holdfast("jobs", "list", "--url", url, cwd=tmp_path)

    [line] = done.stdout.splitlines()
    *fields, created, failure = line.split("\t")
    assert fields == [job_id, "failed", "refused", "default", "ada", "1"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", created)
    assert failure == "UNKNOWN"


async def test_machines_get_snake_case_and_instants_in_utc(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "sum", 1)

    done = holdfast("jobs", "list", "--json", "--url", url, cwd=tmp_path)

    [job] = json.loads(done.stdout)
    assert (job["id"], job["status"], job["leased_by"]) == (job_id, "queued", None)
    assert datetime.fromisoformat(job["created_at"]).utcoffset() == timedelta(0)


async def test_a_job_is_shown_with_its_failure_stages_and_history(url: str, tmp_path: Path) -> None:
    [job_id] = await failed_jobs(url, tmp_path, "not \x1b[2J today")

    done = holdfast("jobs", "show", job_id, "--url", url, cwd=tmp_path)
    machine = json.loads(holdfast("jobs", "show", job_id, "--json", "--url", url, cwd=tmp_path).stdout)

    assert "\x1b" not in done.stdout
    for line in (f"id\t{job_id}", "status\tfailed", "message\tnot [2J today", "double\tdone\t1\t-"):
        assert line in done.stdout.splitlines()
    assert [line.split("\t")[1] for line in done.stdout.partition("\nhistory\n")[2].splitlines()] == [
        "queued",
        "processing",
        "stage",
        "failed",
    ]
    assert machine["args"] == {"why": "not \x1b[2J today"}
    assert machine["failure"]["retryable"] is False
    assert "Permanent" in machine["failure"]["stack"] or "raise" in machine["failure"]["stack"]
    assert [(stage["name"], stage["result"]) for stage in machine["stages"]] == [("double", 8)]
    assert [event["kind"] for event in machine["events"]] == ["queued", "processing", "stage", "failed"]


async def test_a_result_is_shown(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "sum", 20)
    with a_worker(cwd=an_application(tmp_path), settings={"DATABASE_URL": url}):
        await wait(url, job_id)

    machine = json.loads(holdfast("jobs", "show", job_id, "--json", "--url", url, cwd=tmp_path).stdout)
    people = holdfast("jobs", "show", job_id, "--url", url, cwd=tmp_path).stdout

    assert machine["result"] == 41
    assert "result\t41" in people.splitlines()


async def test_cancelling_ends_what_waits_and_refuses_what_has_ended(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "sum", 1)

    tried = holdfast("jobs", "cancel", job_id, "--dry-run", "--url", url, cwd=tmp_path)
    between = (await read(url, job_id)).status
    done = holdfast("jobs", "cancel", job_id, "--url", url, cwd=tmp_path)
    again = holdfast("jobs", "cancel", job_id, "--url", url, cwd=tmp_path)
    tried_again = holdfast("jobs", "cancel", job_id, "--dry-run", "--url", url, cwd=tmp_path)

    assert (tried.returncode, tried.stdout) == (0, f"{job_id}\twould be cancelled (queued)\n")
    assert between is Status.QUEUED
    assert (done.returncode, done.stdout) == (0, f"{job_id}\tcancelled\n")
    assert (await read(url, job_id)).status is Status.CANCELLED
    for refused in (again, tried_again):
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"holdfast: job {job_id} is cancelled")


async def test_a_running_job_is_cancelled_through_its_worker(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "tidy")

    with a_worker(cwd=an_application(tmp_path), settings={"DATABASE_URL": url}) as worker:
        worker.wait_for("begun")
        done = holdfast("jobs", "cancel", job_id, "--url", url, cwd=tmp_path)
        job = await wait(url, job_id)

    assert done.stdout == f"{job_id}\tits worker was asked to stop it\n"
    assert job.status is Status.CANCELLED


async def test_several_jobs_are_retried_and_those_that_cannot_be_are_named(url: str, tmp_path: Path) -> None:
    first, second = await failed_jobs(url, tmp_path, "one", "two")
    waiting = await submit(url, "sum", 1)

    done = holdfast("jobs", "retry", first, waiting, NO_SUCH_JOB, second, "--url", url, cwd=tmp_path)

    assert done.returncode == 1
    assert done.stdout == f"{first}\tqueued\n{second}\tqueued\n"
    assert done.stderr.splitlines() == [
        f"holdfast: job {waiting} is queued; only a failed job can be retried",
        f"holdfast: there is no job {NO_SUCH_JOB}",
    ]
    assert [(await read(url, job_id)).attempt for job_id in (first, second)] == [0, 0]


async def test_all_failed_jobs_of_a_name_are_retried_after_a_look(url: str, tmp_path: Path) -> None:
    ids = await failed_jobs(url, tmp_path, "one", "two", owner="ada")
    words = ("jobs", "retry", "--all-failed", "--name", "refused", "--owner", "ada", "--url", url)

    look = holdfast(*words, "--dry-run", cwd=tmp_path)
    between = [(await read(url, job_id)).status for job_id in ids]
    other = holdfast(*words[:3], "--queue", "other", "--url", url, cwd=tmp_path)
    done = holdfast(*words, "--json", cwd=tmp_path)

    assert look.stdout.splitlines() == [f"{job_id}\twould be retried" for job_id in reversed(ids)]
    assert between == [Status.FAILED, Status.FAILED]
    assert (other.returncode, other.stdout) == (0, "")
    assert json.loads(done.stdout) == [
        {"id": job_id, "done": True, "detail": "queued"} for job_id in reversed(ids)
    ]
    assert [(await read(url, job_id)).status for job_id in ids] == [Status.QUEUED, Status.QUEUED]


@pytest.mark.parametrize("words", [("show",), ("cancel",), ("retry",), ("retry", "--dry-run")], ids=" ".join)
@pytest.mark.parametrize("job_id", [NO_SUCH_JOB, "seventeen"])
async def test_a_job_that_is_not_there_is_refused(
    url: str, tmp_path: Path, words: tuple[str, ...], job_id: str
) -> None:
    await apply_schema(url)

    done = holdfast("jobs", *words, job_id, "--url", url, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: there is no job ")
    assert len(done.stderr.splitlines()) == 1


async def test_jobs_of_an_application_are_found_through_it(tmp_path: Path) -> None:
    folder = an_application(tmp_path, "from holdfast import Holdfast\nhold = Holdfast('sqlite:///own.db')\n")
    job_id = await submit(f"sqlite:///{tmp_path}/own.db", "sum", 1)

    done = holdfast(
        "jobs", "list", "--app", "app:hold", cwd=folder, settings={"DATABASE_URL": "sqlite:///x.db"}
    )

    assert done.stdout[:36] == job_id


async def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    job_id = await submit(url, "sum", 1, owner="[bold]")

    text = on_a_terminal("jobs", "list", "--url", url, cwd=tmp_path)

    heading, line, row = (part.split() for part in text.splitlines()[:3])
    assert heading == ["id", "status", "name", "queue", "owner", "attempt", "created", "failure"]
    assert set("".join(line)) == {"─"}
    assert row[:5] == [job_id, "queued", "sum", "default", "[bold]"]


def on_a_terminal(*words: str, cwd: Path) -> str:
    """Run a command whose output is a terminal, and return what it would show without colours."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "160", "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "holdfast", *words]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, cwd=cwd, env=environment, stdout=theirs, check=True, timeout=60)
        os.close(theirs)
        shown = terminal.read(65_536).decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r", "")
