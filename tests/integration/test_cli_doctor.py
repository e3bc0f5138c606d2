"""`holdfast doctor` finds what would break a promise, and says what to do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import Holdfast
from tests.acceptance.harness.clocks import WrongClock
from tests.acceptance.harness.prerequisites import PrerequisiteMissingError
from tests.integration.cli_process import TIMEOUT, an_application, apply_schema, holdfast, submit
from tests.servers import in_ci

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers import BrokerServer
    from tests.servers import PostgresServer, PrivatePostgres

TABLES = ["writable", "paused queues", "backlog", "dead letters"]
SQLITE = [
    "database",
    "schema",
    "version",
    "file mode",
    "synchronous",
    "journal_mode",
    "clock",
    *TABLES,
    "uvloop",
]
POSTGRES = [
    "database",
    "schema",
    "version",
    "tables",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "snapshots",
    "connections",
    "hints",
    "clock",
    *TABLES,
    "uvloop",
]


def examined(url: str, folder: Path, *words: str, **settings: str) -> tuple[int, dict[str, Any]]:
    """Run the doctor; return its exit code and each check's health and detail by name."""
    done = holdfast("doctor", "--json", *words, cwd=folder, settings={"DATABASE_URL": url, **settings})
    answer = json.loads(done.stdout)
    assert answer["ok"] is (done.returncode == 0)
    return done.returncode, {check["name"]: (check["health"], check["detail"]) for check in answer["checks"]}


async def test_a_sqlite_file_is_well(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    await apply_schema(url)

    code, checks = examined(url, tmp_path)

    assert code == 0
    assert list(checks) == SQLITE
    assert {health for health, _ in checks.values()} == {"ok"}


def test_a_sqlite_file_that_is_not_there_yet_is_no_failure(tmp_path: Path) -> None:
    code, checks = examined("sqlite:///absent.db", tmp_path)

    assert code == 0
    assert checks["database"][0] == "warn"
    assert list(tmp_path.iterdir()) == []


def test_a_sqlite_file_whose_folder_is_missing_fails(tmp_path: Path) -> None:
    code, checks = examined("sqlite:///absent/jobs.db", tmp_path)

    assert code == 1
    assert checks["database"] == ("fail", "the folder of the file 'absent/jobs.db' does not exist; create it")


async def test_a_safe_postgresql_is_well(restartable_postgres: PrivatePostgres, tmp_path: Path) -> None:
    url = restartable_postgres.create_database(apply_schema)

    code, checks = examined(url, tmp_path)

    assert code == 0
    assert list(checks) == POSTGRES
    assert {health for health, _ in checks.values()} == {"ok"}


async def test_settings_that_lose_jobs_fail(restartable_postgres: PrivatePostgres, tmp_path: Path) -> None:
    url = restartable_postgres.create_database(apply_schema)
    admin = await asyncpg.connect(url)
    name = url.rsplit("/", 1)[1]
    await admin.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    await admin.execute("ALTER SYSTEM SET autovacuum = off")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.close()

    code, checks = examined(url, tmp_path)

    assert code == 1
    assert checks["synchronous_commit"][0] == "fail"
    assert checks["synchronous_commit"][1].endswith("set it to on")
    assert checks["autovacuum"][0] == "warn"


@pytest.mark.parametrize("version", [1, 99])
async def test_a_schema_that_does_not_fit_fails_with_what_to_do(
    postgres_server: PostgresServer, tmp_path: Path, version: int
) -> None:
    url = postgres_server.create_database(apply_schema)
    await execute(url, f"UPDATE holdfast.meta SET schema_version = {version}, min_compatible = {version}")

    code, checks = examined(url, tmp_path)

    assert (code, checks["schema"][0]) == (1, "fail")
    assert ("holdfast schema apply" if version == 1 else "upgrade holdfast") in checks["schema"][1]
    assert "backlog" not in checks


async def test_autovacuum_that_is_off_for_the_table_of_jobs_is_found(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database(apply_schema)
    await execute(url, "ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")

    _, checks = examined(url, tmp_path)

    assert checks["autovacuum"][0] == "warn"
    assert "holdfast.jobs" in checks["autovacuum"][1]


async def test_a_server_that_has_no_room_for_another_worker_is_a_warning(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    url = restartable_postgres.create_database(apply_schema)
    await execute(url, "ALTER SYSTEM SET superuser_reserved_connections = 195")
    restartable_postgres.restart()

    _, checks = examined(url, tmp_path)

    assert checks["connections"][0] == "warn"
    assert "max_connections" in checks["connections"][1]


async def test_an_open_transaction_is_seen_with_its_age(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database(apply_schema)
    holder = await asyncpg.connect(url)
    await holder.execute("CREATE TABLE mine (); BEGIN; INSERT INTO mine DEFAULT VALUES")
    async with Holdfast(url) as hold:
        async with asyncio.timeout(TIMEOUT):
            while int((await hold.runtime.store.facts())["oldest_snapshot_sec"]) == 0:
                await asyncio.sleep(0.05)
        await holder.execute("COMMIT")

        assert (await hold.runtime.store.facts())["oldest_snapshot_sec"] == "0"
    await holder.close()


def test_a_clock_that_is_wrong_is_a_warning(postgres_server: PostgresServer, tmp_path: Path) -> None:
    try:
        clock = WrongClock(tmp_path / "clock", seconds=600)
    except PrerequisiteMissingError as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))
    url = postgres_server.create_database(apply_schema)

    _, checks = examined(url, tmp_path, **clock.environment)

    assert checks["clock"][0] == "warn"
    assert "synchronise the clocks" in checks["clock"][1]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_what_stands_still_is_found(
    store: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db" if store == "sqlite" else postgres_server.create_database()
    await apply_schema(url)
    an_application(tmp_path)
    job_id = await submit(url, "from-tomorrow")
    because = ("--force", "--actor", "ada", "--reason", "on fire")  # no job of that queue was ever stored
    assert holdfast("queues", "pause", "mail", *because, "--url", url, cwd=tmp_path).returncode == 0
    if store == "sqlite":
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as file, file:
            file.execute("UPDATE holdfast_jobs SET updated_at = updated_at - 3600000000")
    else:
        await execute(url, "UPDATE holdfast.meta SET clock_offset = interval '1 hour'")

    code, checks = examined(url, tmp_path, "--app", "app:hold")

    assert job_id
    assert checks["backlog"][0] == checks["paused queues"][0] == checks["unknown jobs"][0] == "warn"
    assert checks["backlog"][1].startswith("1 jobs of 'default' are ready, one for 1:00:")
    assert "by ada (on fire)" in checks["paused queues"][1]
    assert "from-tomorrow" in checks["unknown jobs"][1]
    assert code == (0 if store == "sqlite" else 1)  # the shared server runs without fsync


def test_clients_that_retry_by_themselves_are_found(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(
        "import anthropic, openai\nfrom holdfast import Holdfast\nhold = Holdfast()\n"
        "class Box:\n    model = openai.AsyncOpenAI(api_key='x')\n"
        "quiet = anthropic.Anthropic(api_key='x', max_retries=0)\n"
    )
    (tmp_path / "modest.py").write_text(
        "import openai\nfrom holdfast import Holdfast\nhold = Holdfast()\n"
        "model = openai.OpenAI(api_key='x', max_retries=0)\n"
    )
    url = f"sqlite:///{tmp_path}/jobs.db"

    _, eager = examined(url, tmp_path, "--app", "eager:hold")
    _, modest = examined(url, tmp_path, "--app", "modest:hold")

    assert eager["sdk retries"][0] == "warn"
    assert eager["sdk retries"][1].startswith("openai.AsyncOpenAI retries 2 times")
    assert "anthropic" not in eager["sdk retries"][1]
    assert modest["sdk retries"] == ("ok", "1 clients found, none retries")


EAGER = """
import anthropic, httpx, openai, requests
from requests.adapters import HTTPAdapter
from holdfast import Holdfast

hold = Holdfast(attempts=4)
chat = openai.AsyncOpenAI(api_key="x", max_retries=1)
model = anthropic.Anthropic(api_key="x")
web = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=5))
session = requests.Session()
session.mount("https://", HTTPAdapter(max_retries=3))
calm = requests.Session()
"""


def test_each_client_that_retries_is_reported_with_its_variable_its_calls_and_its_cure(
    tmp_path: Path,
) -> None:
    (tmp_path / "eager.py").write_text(EAGER)

    code, checks = examined(f"sqlite:///{tmp_path}/jobs.db", tmp_path, "--app", "eager:hold")

    health, detail = checks["sdk retries"]
    clients = [sentence.partition(" retries ")[0] for sentence in detail.split("; ")]
    assert (code, health) == (0, "warn")
    assert clients == [
        "eager.chat, of openai.AsyncOpenAI,",
        "eager.model, of anthropic.Anthropic,",
        "eager.session, of requests.Session,",
        "eager.web, of httpx.AsyncClient,",
    ]
    assert "so that 4 attempts make up to 8 calls: make it with max_retries=0" in detail
    assert "so that 4 attempts make up to 24 calls: make it with a transport with retries=0" in detail
    assert "so that 4 attempts make up to 16 calls: make it with HTTPAdapter(max_retries=0)" in detail


BOTO = """
import boto3
from botocore.config import Config
from holdfast import Holdfast

hold = Holdfast(attempts=2)
login = {"region_name": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
legacy = boto3.client("s3", **login, config=Config(retries={"mode": "legacy"}))
standard = boto3.client("s3", **login, config=Config(retries={"mode": "standard"}))
quiet = boto3.client("s3", **login, config=Config(retries={"total_max_attempts": 1}))
"""


def test_clients_of_aws_are_reported_too(tmp_path: Path) -> None:
    pytest.importorskip("boto3", reason="boto3 is not a dependency here; install it to run this test")
    (tmp_path / "cloud.py").write_text(BOTO)

    _, checks = examined(f"sqlite:///{tmp_path}/jobs.db", tmp_path, "--app", "cloud:hold")

    detail = checks["sdk retries"][1]
    assert "cloud.legacy, of botocore.S3, retries 4 times, so that 2 attempts make up to 10 calls" in detail
    assert "cloud.standard, of botocore.S3, retries 2 times" in detail
    assert "cloud.quiet" not in detail
    assert "total_max_attempts" in detail


async def execute(url: str, statement: str) -> None:
    """Have a statement carried out."""
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def test_a_postgresql_without_fsync_fails(postgres_dsn: str, tmp_path: Path) -> None:
    code, checks = examined(postgres_dsn, tmp_path)

    assert code == 1
    assert checks["fsync"][0] == "fail"
    assert checks["full_page_writes"][0] == "warn"
    assert checks["schema"][0] == "fail"
    assert "writable" not in checks


async def test_a_postgresql_that_is_read_only_fails(
    restartable_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    url = restartable_postgres.create_database(apply_schema)
    admin = await asyncpg.connect(url)
    await admin.execute(f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET default_transaction_read_only = on')
    await admin.close()

    code, checks = examined(url, tmp_path)

    assert code == 1
    assert checks["writable"][0] == "fail"


def test_a_database_that_is_away_fails_in_one_check(tmp_path: Path) -> None:
    code, checks = examined("postgresql://me:hidden@127.0.0.1:1/name", tmp_path)

    assert code == 1
    assert checks["database"][0] == "fail"
    assert "hidden" not in str(checks)


def test_the_jobs_of_an_application_are_counted(tmp_path: Path) -> None:
    an_application(tmp_path)
    (tmp_path / "bare.py").write_text("from holdfast import Holdfast\nhold = Holdfast()\n")
    url = f"sqlite:///{tmp_path}/jobs.db"

    _, full = examined(url, tmp_path, "--app", "app:hold")
    code, bare = examined(url, tmp_path, "--app", "bare:hold")

    assert full["jobs"][0] == "ok"
    assert "waiting" in full["jobs"][1]
    assert (code, bare["jobs"][0]) == (0, "warn")


def test_people_read_one_line_for_each_check(tmp_path: Path) -> None:
    done = holdfast("doctor", "--url", "sqlite:///absent.db", cwd=tmp_path)

    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["database", "warn"],
        ["uvloop", "ok"],
    ]


def test_each_declared_broker_is_checked_and_a_missing_one_is_one_clear_line(
    tmp_path: Path, rabbitmq_server: BrokerServer, redis_server: BrokerServer
) -> None:
    an_application(
        tmp_path,
        "from holdfast import Holdfast\n"
        "hold = Holdfast()\n"
        f"hold.broker('rabbitmq', {rabbitmq_server.url!r})\n"
        f"hold.broker('streams', {redis_server.url!r})\n"
        "hold.broker('away', 'amqp://guest:hunter2@127.0.0.1:1/')\n"
        "hold.broker('local', print)\n",
    )

    code, checks = examined(f"sqlite:///{tmp_path}/jobs.db", tmp_path, "--app", "app:hold")

    assert code == 1
    assert checks["broker rabbitmq"][0] == "ok"
    assert checks["broker rabbitmq"][1].startswith("RabbitMQ ")
    assert checks["broker streams"][0] == "ok"
    assert checks["broker streams"][1].startswith("Redis 7")
    assert checks["broker local"][0] == "ok"
    assert checks["broker away"][0] == "fail"
    assert checks["broker away"][1].startswith("RabbitMQ at 127.0.0.1:1 cannot be reached")
