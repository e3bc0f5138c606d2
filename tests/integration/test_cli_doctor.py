"""`holdfast doctor` finds what would break a promise, and says what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import asyncpg

from tests.integration.cli_process import an_application, apply_schema, holdfast

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import PrivatePostgres

SQLITE = ["database", "schema", "version", "synchronous", "journal_mode", "writable", "clock", "uvloop"]
POSTGRES = [
    "database",
    "schema",
    "version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "connections",
    "writable",
    "clock",
    "uvloop",
]


def examined(url: str, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the doctor; return its exit code and each check's health and detail by name."""
    done = holdfast("doctor", "--json", *words, cwd=folder, settings={"DATABASE_URL": url})
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
    assert "patient" in full["jobs"][1]
    assert (code, bare["jobs"][0]) == (0, "warn")


def test_people_read_one_line_for_each_check(tmp_path: Path) -> None:
    done = holdfast("doctor", "--url", "sqlite:///absent.db", cwd=tmp_path)

    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["database", "warn"],
        ["uvloop", "ok"],
    ]
