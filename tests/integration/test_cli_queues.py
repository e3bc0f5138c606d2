"""`holdfast queues` and `holdfast schedules`: what waits where, what is paused, and what recurs."""

from __future__ import annotations

import json
import signal
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs import transitions
from holdfast.core.providers.holder import Holder
from tests.integration.cli_process import a_worker, an_application, apply_schema, holdfast, read, submit, wait

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare

RECURRING = """
from holdfast import Holdfast

hold = Holdfast()


@hold.every("1h")
@hold.job("tidy up")
async def tidy_up() -> None: ...


@hold.cron("0 9 * * 1", tz="Europe/Berlin", name="monday mail")
@hold.job("mail")
async def mail() -> None: ...
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


async def test_queues_are_listed_with_their_live_and_held_jobs_and_who_paused_them(
    url: str, tmp_path: Path
) -> None:
    for queue in ("mail", "mail", "reports"):
        await submit(url, "sum", 1, queue=queue)
    await hold_one(url, "mail")
    words = ("--actor", "ada", "--reason", "the printer is on fire", "--url", url)
    holdfast("queues", "pause", "mail", *words, cwd=tmp_path)

    people = holdfast("queues", "list", "--url", url, cwd=tmp_path)
    machine = holdfast("queues", "list", "--json", "--url", url, cwd=tmp_path)

    mail, reports = (line.split("\t") for line in people.stdout.splitlines())
    assert mail[:4] == ["mail", "2", "0", "ada"]
    assert mail[5:] == ["the printer is on fire", "1"]
    assert reports == ["reports", "1", "0", "-", "-", "-", "0"]
    listed, plain = json.loads(machine.stdout)
    assert (listed["queue"], listed["paused_by"]) == ("mail", "ada")
    assert abs(datetime.fromisoformat(listed["paused_at"]) - datetime.now(UTC)) < timedelta(minutes=5)
    assert plain == {
        "queue": "reports",
        "queued": 1,
        "processing": 0,
        "paused_by": None,
        "paused_at": None,
        "reason": None,
        "held": 0,
    }


async def hold_one(url: str, queue: str) -> None:
    """Claim a job as a worker would, and have it held."""
    async with Holdfast(url) as hold:
        store = hold.runtime.store
        [claim] = await store.claim("worker", queue, limit=1, lease=timedelta(minutes=1))
        await store.settle("worker", [transitions.hold(claim, "its breaker is open", held_by=Holder("llm"))])


async def test_a_paused_queue_rests_until_it_is_resumed(url: str, tmp_path: Path) -> None:
    folder, settings = an_application(tmp_path), {"DATABASE_URL": url}
    rests = await submit(url, "elsewhere")
    pausing = ("queues", "pause", "other", "--actor", "ada")
    resuming = ("queues", "resume", "other", "--actor", "bob")

    paused, again = (holdfast(*pausing, cwd=folder, settings=settings) for _ in range(2))
    with a_worker("--queue", "other", "--queue", "default", cwd=folder, settings=settings):
        await wait(url, await submit(url, "sum", 1))
        between = (await read(url, rests)).status
        resumed = holdfast(*resuming, "--json", cwd=folder, settings=settings)
        ended = await wait(url, rests)
    idle = holdfast(*resuming, cwd=folder, settings=settings)

    assert [done.returncode for done in (paused, again, resumed, idle)] == [0, 0, 0, 0]
    assert (paused.stdout, again.stdout) == ("other\tpaused\n", "other\twas paused before\n")
    assert [done.stderr for done in (paused, again, resumed, idle)] == [""] * 4
    assert between is Status.QUEUED
    assert json.loads(resumed.stdout) == {"queue": "other", "changed": True, "detail": "resumed"}
    assert ended.status is Status.COMPLETED
    assert idle.stdout == "other\twas not paused\n"


OWN_LOGGER = """
from holdfast import Holdfast


class Audit:
    verbose = False

    def info(self, event: str, **fields: object) -> None:
        print(event, fields["actor"])

    debug = warning = error = info


hold = Holdfast(logger=Audit())
"""


def test_the_own_logger_of_an_application_logs_what_a_command_did(tmp_path: Path) -> None:
    folder = an_application(tmp_path, OWN_LOGGER)
    holdfast("schema", "apply", "--app", "app:hold", cwd=folder)

    done = holdfast("queues", "pause", "mail", "--force", "--actor", "ada", "--app", "app:hold", cwd=folder)

    assert done.stdout == "queue paused ada\nmail\tpaused\n"


async def test_a_worker_serves_queues_by_weight(url: str, tmp_path: Path) -> None:
    first, second = await submit(url, "sum", 1), await submit(url, "elsewhere")

    with a_worker(
        "--queue",
        "other:9",
        "--queue",
        "default:1",
        cwd=an_application(tmp_path),
        settings={"DATABASE_URL": url},
    ) as worker:
        ended = [await wait(url, job_id) for job_id in (first, second)]
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert [job.status for job in ended] == [Status.COMPLETED, Status.COMPLETED]
    assert code == 0


async def test_schedules_are_listed_with_their_last_and_next_tick(url: str, tmp_path: Path) -> None:
    folder, settings = an_application(tmp_path, RECURRING), {"DATABASE_URL": url}
    await apply_schema(url)
    words = ("schedules", "list", "app:hold")

    before = json.loads(holdfast(*words, "--json", cwd=folder, settings=settings).stdout)
    with a_worker(cwd=folder, settings=settings) as worker:
        await begun(url, "monday mail", "tidy up")
        worker.signal(signal.SIGTERM)
        worker.end()
    after = json.loads(holdfast(*words, "--json", cwd=folder, settings=settings).stdout)
    people = holdfast(*words, cwd=folder, settings=settings).stdout

    assert [(each["name"], each["job"], each["when"], each["last"]) for each in before] == [
        ("monday mail", "mail", "cron 0 9 * * 1 (Europe/Berlin)", None),
        ("tidy up", "tidy up", "every 1h", None),
    ]
    monday, hour = (datetime.fromisoformat(each["next"]) for each in before)
    assert (monday.isoweekday(), monday.hour in (7, 8)) == (1, True)
    assert (hour.minute, hour.second) == (0, 0)
    assert all(datetime.fromisoformat(each["last"]) < datetime.fromisoformat(each["next"]) for each in after)
    assert [line.split("\t")[0] for line in people.splitlines()] == ["monday mail", "tidy up"]


def test_before_the_first_worker_schedules_have_no_last_tick_and_no_file_is_made(tmp_path: Path) -> None:
    done = holdfast("schedules", "list", "app:hold", cwd=an_application(tmp_path, RECURRING))

    assert [line.split("\t")[3] for line in done.stdout.splitlines()] == ["-", "-"]
    assert list(tmp_path.glob("*.db")) == []


async def begun(url: str, *names: str) -> None:
    """Wait until a worker has begun these schedules."""
    async with Holdfast(url) as hold:
        last_ticks: dict[str, datetime] = {}
        while len(last_ticks) < len(names):
            _, last_ticks = await hold.runtime.store.schedules.last_ticks(names)


async def test_looking_at_schedules_writes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    await apply_schema(url)

    done = holdfast(
        "schedules",
        "list",
        "app:hold",
        cwd=an_application(tmp_path, RECURRING),
        settings={"DATABASE_URL": url},
    )

    assert done.returncode == 0
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        assert connection.execute("SELECT count(*) FROM holdfast_schedules").fetchone() == (0,)
