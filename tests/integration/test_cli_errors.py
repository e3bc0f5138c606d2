"""What cannot be is said in one line, with an exit code to go by, and never with a stack trace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.integration.cli_process import an_application, apply_schema, holdfast, submit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Prepare

MISUSED, UNAVAILABLE = 2, 3


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "Traceback" not in line
    return line.removeprefix("holdfast: ")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("absent:hold", "there is no module 'absent'"),
        ("absent.inner:hold", "there is no module 'absent.inner'"),
        ("app:absent", "module 'app' has no 'absent'"),
        ("app:nothing", "app:nothing is a NoneType, not a Holdfast"),
        ("app:add", "app:add is a JobFunction, not a Holdfast"),
        ("app", "'app' is not a reference to an application"),
        (":hold", "':hold' is not a reference to an application"),
        ("app:", "'app:' is not a reference to an application"),
        ("..app:hold", "cannot import '..app'"),
    ],
)
def test_an_application_that_cannot_be_found(tmp_path: Path, named: str, message: str) -> None:
    done = holdfast("worker", named, cwd=an_application(tmp_path))

    assert done.returncode == MISUSED
    assert only_line(done).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import absent_part", "ModuleNotFoundError: No module named 'absent_part' (app.py, line 1)"),
        ("x = 1\ny = x / 0", "ZeroDivisionError: division by zero (app.py, line 2)"),
        ("def broken(", "SyntaxError: '(' was never closed (app.py, line 1)"),
        ("raise SystemExit(0)", "SystemExit: 0 (app.py, line 1)"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines (app.py, line 1)"),
    ],
)
def test_an_application_that_fails_on_import_says_where(tmp_path: Path, text: str, message: str) -> None:
    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path, text))

    assert done.returncode == MISUSED
    assert only_line(done) == f"cannot import 'app': {message}"


def test_two_jobs_of_one_name_stop_the_start(tmp_path: Path) -> None:
    twice = (
        "from holdfast import Holdfast\nhold = Holdfast()\nfor _ in 'ab':\n    hold.job('x')(lambda: None)\n"
    )

    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path, twice))

    assert done.returncode == MISUSED
    assert only_line(done).startswith("a job named 'x' is declared twice")


@pytest.mark.parametrize(
    "words",
    [
        ("worker",),
        ("worker", "app:hold", "--slots", "0"),
        ("worker", "app:hold", "--slots", "many"),
        ("worker", "app:hold", "--lease", "soon"),
        ("worker", "app:hold", "--lease", "0s"),
        ("worker", "app:hold", "--grace", "-1s"),
        ("worker", "app:hold", "--queue", "mail:3", "--queue", "reports"),
        ("worker", "app:hold", "--queue", "mail:0"),
        ("worker", "app:hold", "--queue", "mail:1.5"),
        ("worker", "app:hold", "--queue", "mail:1", "--queue", "mail:2"),
        ("worker", "app:hold", "--queue", ""),
        ("worker", "app:hold", "--queue", ":3"),
        ("dev", "app:hold", "--queue", "", "--seat", "nowhere"),
        ("worker", "app:hold", "--health-host", "127.0.0.1"),
        ("worker", "app:hold", "--log-level", "loud"),
        ("worker", "app:hold", "--log-format", "xml"),
        ("jobs", "list", "--status", "lost"),
        ("jobs", "list", "--limit", "0"),
        ("jobs", "list", "--before", "yesterday"),
        ("jobs", "list", "--unknown"),
        ("jobs", "list", "--app", "app:hold", "--url", "sqlite:///x.db"),
        ("jobs", "retry"),
        ("jobs", "retry", "--name", "sum"),
        ("jobs", "retry", "--all-failed", "00000000-0000-0000-0000-000000000000"),
        ("jobs", "show"),
        ("jobs", "list", "--at-risk", "soon"),
        ("jobs", "list", "--at-risk", "5m", "--status", "failed"),
        ("jobs", "list", "--at-risk", "5m", "--before", "00000000-0000-0000-0000-000000000000"),
        ("jobs", "accept-late", "0" * 32, "--actor", " "),
        ("jobs", "signal", "0" * 32),
        ("jobs", "signal", "0" * 32, "approved", "--actor", "ada", "--data", "yes"),
        ("queues", "pause", "--actor", "ada"),
        ("queues", "pause", "mail", "--actor", ""),
        ("schedules", "list"),
        ("schedules", "list", "app:absent"),
        ("frobnicate",),
    ],
    ids=" ".join,
)
def test_words_that_make_no_sense(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = holdfast(*words, cwd=an_application(tmp_path))

    assert done.returncode == MISUSED
    assert only_line(done)
    assert list(tmp_path.glob("*.db")) == []


@pytest.mark.parametrize("words", [(), ("jobs",), ("queues",), ("schedules",), ("schema",)])
def test_a_group_without_a_command_shows_what_there_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = holdfast(*words, cwd=tmp_path)

    assert done.returncode == MISUSED
    assert "Commands:" in done.stderr


def test_a_missing_schema_is_named_with_its_remedy(
    tmp_path: Path, postgres_server: object, postgres_dsn: str
) -> None:
    empty = postgres_dsn.rsplit("/", 1)[0] + "/postgres"

    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings={"DATABASE_URL": empty})

    assert done.returncode == MISUSED
    assert "run `holdfast schema apply`" in only_line(done)


async def test_a_schema_that_is_too_new_asks_for_an_upgrade(tmp_path: Path, postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("UPDATE holdfast.meta SET schema_version = 99, min_compatible = 98")
    await connection.close()

    for words in (("worker", "app:hold"), ("jobs", "list"), ("schema", "apply")):
        done = holdfast(*words, cwd=an_application(tmp_path), settings={"DATABASE_URL": postgres_dsn})

        assert done.returncode == MISUSED
        assert only_line(done).endswith("upgrade holdfast")


@pytest.mark.parametrize(
    "words", [("worker", "app:hold"), ("jobs", "list"), ("schema", "apply")], ids=" ".join
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((":{port}/", ":1/"), "PostgreSQL does not answer"),
        (("/{name}", "/absent"), 'PostgreSQL refuses the connection: database "absent" does not exist'),
        (("postgres:", "unknown:"), "PostgreSQL refuses the connection: password authentication failed"),
    ],
    ids=["no server", "no such database", "wrong user"],
)
def test_a_postgresql_that_cannot_be_reached(
    tmp_path: Path, postgres_dsn: str, words: tuple[str, ...], change: tuple[str, str], message: str
) -> None:
    where, name = postgres_dsn.rsplit("/", 1)
    old = change[0].format(port=where.rsplit(":", 1)[1], name=name)
    url = postgres_dsn.replace(old, change[1])

    done = holdfast(*words, cwd=an_application(tmp_path), settings={"DATABASE_URL": url})

    assert done.returncode == UNAVAILABLE
    assert only_line(done).startswith(message)


async def test_a_postgresql_user_without_rights_is_reported(tmp_path: Path, postgres_dsn: str) -> None:
    role = "guest_" + postgres_dsn.rsplit("_", 1)[1][:12]
    admin = await asyncpg.connect(postgres_dsn)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'guest'")
    try:
        url = f"postgresql://{role}:guest@{postgres_dsn.split('@')[1]}"
        done = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings={"DATABASE_URL": url})
    finally:
        await admin.execute(f"DROP ROLE {role}")
        await admin.close()

    assert done.returncode == UNAVAILABLE
    assert "permission denied" in only_line(done)


async def test_a_postgresql_that_is_read_only(tmp_path: Path, postgres_dsn: str) -> None:
    job_id = await submit(postgres_dsn, "sum", 1)
    admin = await asyncpg.connect(postgres_dsn)
    name = postgres_dsn.rsplit("/", 1)[1]
    await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    await admin.close()
    settings = {"DATABASE_URL": postgres_dsn}

    worked = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings=settings)
    cancelled = holdfast("jobs", "cancel", job_id, cwd=tmp_path, settings=settings)
    listed = holdfast("jobs", "list", cwd=tmp_path, settings=settings)

    for done in (worked, cancelled):
        assert done.returncode == UNAVAILABLE
        assert only_line(done).startswith("the PostgreSQL database is read-only")
    assert (listed.returncode, listed.stdout[:36]) == (0, job_id)


@pytest.mark.parametrize("words", [("worker", "app:hold"), ("schema", "apply")], ids=" ".join)
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///absent/jobs.db", "the folder 'absent' for the SQLite file does not exist"),
        ("sqlite:///folder", "cannot open the SQLite file 'folder'"),
        ("sqlite:///text.db", "'text.db' is not a usable SQLite file"),
    ],
    ids=["no folder", "a folder", "not a database"],
)
def test_a_sqlite_file_that_cannot_be_used(
    tmp_path: Path, words: tuple[str, ...], url: str, message: str
) -> None:
    an_application(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("this is no database at all, " * 50)

    done = holdfast(*words, cwd=tmp_path, settings={"DATABASE_URL": url})

    assert done.returncode == UNAVAILABLE
    assert only_line(done).startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list"),
        ("jobs", "cancel", "0" * 32),
        ("jobs", "retry", "--all-failed"),
        ("jobs", "signal", "0" * 32, "approved", "--actor", "ada"),
        ("queues", "list"),
        ("queues", "pause", "mail", "--actor", "ada"),
    ],
    ids=" ".join,
)
def test_looking_for_jobs_makes_no_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = holdfast(*words, "--url", "sqlite:///absent.db", cwd=tmp_path)

    assert done.returncode == UNAVAILABLE
    assert only_line(done).startswith("there is no SQLite file 'absent.db'")
    assert list(tmp_path.iterdir()) == []


def test_an_application_that_has_not_begun_is_distinguished_from_a_wrong_address(tmp_path: Path) -> None:
    done = holdfast("jobs", "list", "--app", "app:hold", cwd=an_application(tmp_path))

    assert done.returncode == UNAVAILABLE
    assert only_line(done) == (
        "there is no SQLite file 'holdfast.db' yet: no worker of this application has run, and nothing was submitted"
    )
    assert list(tmp_path.glob("*.db")) == []


@pytest.fixture(scope="module")
def obedient(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to start a program that keeps to the permissions of files, which root need not do."""
    if os.geteuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    closed = tmp_path_factory.mktemp("closed")
    closed.chmod(0o555)
    tried = subprocess.run(["sh", "-c", '"$@"', "sh", *prefix, "touch", closed / "file"], check=False)
    if tried.returncode == 0 or shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and cannot give that up here")
    return prefix


@pytest.mark.parametrize("words", [("worker", "app:hold"), ("schema", "apply")], ids=" ".join)
@pytest.mark.parametrize("found", ["a store", "an empty file", "nothing"])
async def test_a_sqlite_file_in_a_folder_that_is_read_only(
    tmp_path: Path, obedient: list[str], words: tuple[str, ...], found: str
) -> None:
    an_application(tmp_path)
    file = tmp_path / "jobs.db"
    if found == "a store":
        await submit(f"sqlite:///{file}", "sum", 1)
    elif found == "an empty file":
        file.touch()
    tmp_path.chmod(0o555)

    done = holdfast(*words, cwd=tmp_path, settings={"DATABASE_URL": f"sqlite:///{file}"}, through=obedient)
    tmp_path.chmod(0o755)

    assert done.returncode == UNAVAILABLE
    assert str(file) in only_line(done)


async def test_a_sqlite_file_that_is_read_only_in_a_folder_that_is_not(
    tmp_path: Path, obedient: list[str]
) -> None:
    an_application(tmp_path)
    file = tmp_path / "jobs.db"
    await submit(f"sqlite:///{file}", "sum", 1)
    file.chmod(0o444)
    settings = {"DATABASE_URL": f"sqlite:///{file}"}

    worked = holdfast("worker", "app:hold", cwd=tmp_path, settings=settings, through=obedient)
    examined = holdfast("doctor", cwd=tmp_path, settings=settings, through=obedient)

    assert worked.returncode == UNAVAILABLE
    assert only_line(worked).startswith(f"the SQLite file {str(file)!r} is read-only")
    assert examined.returncode == 1
    assert "writable\tfail\t" in examined.stdout


def test_a_reader_that_had_enough_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m holdfast jobs list --help | true"

    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
