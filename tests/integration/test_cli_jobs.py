"""`holdfast jobs`: what is there can be listed, shown, cancelled and brought back."""

from __future__ import annotations

import asyncio
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
    *fields, created, failure, waits = line.split("\t")
    assert fields == [job_id, "failed", "refused", "default", "ada", "1"]
    assert waits == "-"
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
    for line in (f"id\t{job_id}", "status\tfailed", "message\tnot [2J today"):
        assert line in done.stdout.splitlines()
    assert [line.split("\t")[1] for line in done.stdout.partition("\nhistory\n")[2].splitlines()] == [
        "queued",
        "processing",
        "stage",
        "failed",
    ]
    assert "args" not in machine
    assert machine["failure"]["retryable"] is False
    assert "Permanent" in machine["failure"]["stack"] or "raise" in machine["failure"]["stack"]
    assert [(stage["name"], stage["result"]) for stage in machine["stages"]] == [("double", 8)]
    assert re.search(r"^double\tdone\t1\t\d+\.\d{3} s\t-$", done.stdout, re.MULTILINE)
    assert machine["stages"][0]["seconds"] >= 0
    assert machine["key"] is None
    assert [event["kind"] for event in machine["events"]] == ["queued", "processing", "stage", "failed"]


async def test_arguments_are_shown_on_request(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "refused", "hunter2")
    words = ("jobs", "show", job_id, "--url", url)

    quiet = holdfast(*words, cwd=tmp_path).stdout + holdfast(*words, "--json", cwd=tmp_path).stdout
    people = holdfast(*words, "--args", cwd=tmp_path).stdout.splitlines()
    machine = json.loads(holdfast(*words, "--args", "--json", cwd=tmp_path).stdout)

    assert "hunter2" not in quiet
    assert "args\t17 characters; --args shows them" in quiet.splitlines()
    assert 'args\t{"why":"hunter2"}' in people
    assert machine["args"] == {"why": "hunter2"}


async def test_a_failed_job_names_its_dead_letter_and_how_to_see_it(url: str, tmp_path: Path) -> None:
    [job_id] = await failed_jobs(url, tmp_path, "no")
    words = ("jobs", "show", job_id, "--url", url)

    people = holdfast(*words, cwd=tmp_path).stdout
    machine = json.loads(holdfast(*words, "--json", cwd=tmp_path).stdout)

    assert f"\ndead letter\nnew; `holdfast dead show {job_id}` shows what to do next\n" in people
    assert machine["dead_letter"] == {"state": "new"}


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

    assert done.stdout == f"{job_id}\tcancellation requested from its worker\n"
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
    assert (other.returncode, other.stdout) == (2, "")
    assert "there is no queue 'other'; known queues: default" in other.stderr
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
    assert heading == ["id", "status", "name", "owner", "created"]
    assert set("".join(line)) == {"─"}
    assert row[:4] == [job_id, "queued", "sum", "[bold]"]
    assert row[-1] == "ago"


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


WAITING = """
from holdfast import Holdfast

hold = Holdfast()


@hold.job("approval")
async def approval() -> object:
    return await hold.wait_for("approved")


@hold.job("timed-approval")
async def timed_approval() -> object:
    return await hold.wait_for("approved", timeout="3d")


@hold.job("nap")
async def nap() -> None:
    await hold.sleep("2h")


@hold.job("child", queue="unserved")
async def child() -> None: ...


@hold.job("parent")
async def parent() -> None:
    await (await child.submit()).result()
"""


async def waiting_jobs(url: str, folder: Path, *names: str) -> list[str]:
    """Submit jobs and have a worker run them until they wait."""
    ids = [await submit(url, name) for name in names]
    with a_worker(cwd=an_application(folder, WAITING), settings={"DATABASE_URL": url}):
        async with asyncio.timeout(30):
            while not all([(await read(url, job_id)).waiting for job_id in ids]):
                await asyncio.sleep(0.01)
    return ids


async def test_what_a_job_waits_for_is_shown_in_words(url: str, tmp_path: Path) -> None:
    approval, timed_approval, nap, parent = await waiting_jobs(
        url, tmp_path, "approval", "timed-approval", "nap", "parent"
    )

    shown = {
        job_id: holdfast("jobs", "show", job_id, "--url", url, cwd=tmp_path).stdout.splitlines()
        for job_id in (approval, nap, parent)
    }
    listed = holdfast("jobs", "list", "--url", url, cwd=tmp_path).stdout.splitlines()
    listed_json = json.loads(holdfast("jobs", "list", "--json", "--url", url, cwd=tmp_path).stdout)
    machine = json.loads(holdfast("jobs", "show", approval, "--json", "--url", url, cwd=tmp_path).stdout)

    assert "waits_for\tthe signal 'approved'" in shown[approval]
    assert not any(line.startswith("retry_after\t") for line in shown[approval])
    assert "waits_for\tthe end of its sleep" in shown[nap]
    assert any(line.startswith("retry_after\t") for line in shown[nap])
    assert "waits_for\tthe end of 1 job" in shown[parent]
    columns = {line.split("\t")[0]: line.split("\t")[-1] for line in listed}
    until = r"until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert columns[approval] == "for the signal 'approved'"
    assert re.fullmatch(f"for the signal 'approved', {until}", columns[timed_approval])
    assert re.fullmatch(until, columns[nap])
    assert columns[parent] == "for the end of 1 job"
    reasons = {job["id"]: job["reason"] for job in listed_json}
    assert reasons[approval] == reasons[timed_approval] == "waits for the signal 'approved'"
    assert reasons[nap] == "sleeps for 2:00:00"
    assert reasons[parent].startswith("waits for job ")
    assert (machine["waits_for"], machine["waiting"]) == (["the signal 'approved'"], True)


async def test_a_signal_reaches_a_job_that_waits_for_it(url: str, tmp_path: Path) -> None:
    [job_id] = await waiting_jobs(url, tmp_path, "approval")

    done = holdfast(
        *("jobs", "signal", job_id, "approved", "--actor", "ada"),
        *("--data", '{"by": "ada"}', "--url", url),
        cwd=tmp_path,
    )
    with a_worker(cwd=tmp_path, settings={"DATABASE_URL": url}):
        job = await wait(url, job_id)
    late = holdfast(
        "jobs", "signal", job_id, "approved", "--actor", "ada", "--json", "--url", url, cwd=tmp_path
    )

    assert (done.returncode, done.stdout) == (0, f"{job_id}\tsignalled\n")
    assert json.loads(job.result or "") == {"by": "ada"}
    assert late.returncode == 1
    assert [answer["done"] for answer in json.loads(late.stdout)] == [False]
    assert late.stderr == f"holdfast: job {job_id} is completed, so no signal reaches it\n"


async def test_a_signal_that_no_wait_has_taken_is_shown_with_the_job(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "sum", 1)

    holdfast(
        *("jobs", "signal", job_id, "aproved", "--actor", "ada", "--data", "7", "--url", url), cwd=tmp_path
    )
    shown = holdfast("jobs", "show", job_id, "--url", url, cwd=tmp_path).stdout
    machine = json.loads(holdfast("jobs", "show", job_id, "--json", "--url", url, cwd=tmp_path).stdout)

    assert "unread signals\naproved\t7\n" in shown
    assert "signalled\tsignal=aproved actor=ada" in shown
    assert machine["unread_signals"] == [{"signal": "aproved", "data": 7}]


async def test_a_signal_that_says_two_things_at_once_is_refused(url: str, tmp_path: Path) -> None:
    job_id = await submit(url, "sum", 1)

    done = holdfast(
        *("jobs", "signal", job_id, "approved", "--actor", "ada", "--url", url),
        *("--data", '{"by": "ada", "by": "bob"}'),
        cwd=tmp_path,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "the key 'by' twice" in done.stderr


async def test_a_signal_needs_a_job(url: str, tmp_path: Path) -> None:
    await apply_schema(url)

    done = holdfast("jobs", "signal", NO_SUCH_JOB, "approved", "--actor", "ada", "--url", url, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"holdfast: there is no job {NO_SUCH_JOB}\n"


LATE = """
import asyncio
from datetime import timedelta

from holdfast import Holdfast, current

hold = Holdfast()


@hold.job("grade", on_deadline="finish")
async def grade() -> str:
    while (left := current().time_left) is not None and left > timedelta(0):
        await asyncio.sleep(0.01)
    return "late"
"""


async def test_late_results_are_accepted_after_a_look(url: str, tmp_path: Path) -> None:
    folder, settings = (
        an_application(tmp_path, LATE),
        {"DATABASE_URL": url, "HOLDFAST_WORKER_POLL_SEC": "0.05"},
    )
    with a_worker(cwd=folder, settings=settings):
        job_id = await submit(url, "grade", deadline="3s")
        async with asyncio.timeout(30):
            while (await read(url, job_id)).late_at is None:
                await asyncio.sleep(0.01)
    words = ("jobs", "accept-late", job_id, "--actor", "ada", "--app", "app:hold")

    shown = json.loads(holdfast("jobs", "show", job_id, "--json", cwd=folder, settings=settings).stdout)
    look = holdfast(*words, "--dry-run", cwd=folder, settings=settings)
    done = holdfast(*words, "--reason", "agreed", cwd=folder, settings=settings)
    again = holdfast(*words, cwd=folder, settings=settings)
    people = holdfast("jobs", "show", job_id, cwd=folder, settings=settings).stdout.splitlines()

    assert (shown["late_result"], shown["result"], shown["failure"]["error_class"]) == (
        "late",
        None,
        "TIMEOUT",
    )
    assert (look.returncode, look.stdout) == (0, f"{job_id}\twould be accepted\n")
    assert (done.returncode, done.stdout) == (0, f"{job_id}\tcompleted\n")
    assert again.returncode == 1
    assert 'result\t"late"' in people
    assert any(line.endswith("accepted\tactor=ada reason=agreed") for line in people)


async def test_jobs_at_risk_are_listed_by_their_deadline(url: str, tmp_path: Path) -> None:
    far = await submit(url, "tidy", deadline="9m")
    near = await submit(url, "tidy", deadline="4m")
    await submit(url, "tidy")

    both = holdfast("jobs", "list", "--at-risk", "10m", "--url", url, cwd=tmp_path)
    one = holdfast("jobs", "list", "--at-risk", "5m", "--url", url, cwd=tmp_path)

    assert [line[:36] for line in both.stdout.splitlines()] == [near, far]
    assert [line[:36] for line in one.stdout.splitlines()] == [near]
    deadline = (await read(url, near)).deadline_at
    assert deadline is not None
    assert one.stdout.split("\t")[-1] == f"{deadline:%Y-%m-%dT%H:%M:%SZ}\n"
