"""`holdfast.contrib.django`, in the example's project: on the database that Django itself uses."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.stores.sqlite.schema import EXPECTED
from tests.examples.conftest import Installed, run
from tests.integration.cli_process import Running
from tests.pages import ROOT
from tests.servers import Prepare

MIGRATIONS = ROOT / "src/holdfast/contrib/django/migrations"

WITH_DJANGO = """
import django
django.setup()
from django.db import connection, connections, transaction
from django.test import Client
from shop.jobs import confirm, hold
from shop.models import Order
"""


TESTS_IN_A_FILE = """
from mysite.settings import *
if "SHOP_FILE" in os.environ:
    DATABASES["default"]["TEST"] = {"NAME": BASE_DIR / "test.sqlite3"}
"""

NOT_INLINE = """
from django.db import connection
from django.test import TestCase, TransactionTestCase
from shop.jobs import hold


def jobs_in_this_transaction():
    table = "holdfast.jobs" if connection.vendor == "postgresql" else "holdfast_jobs"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return cursor.fetchone()[0]


class IsRolledBack(TestCase):
    def see_one_job(self):
        self.client.post("/orders", {"item": "book"})
        self.assertEqual((jobs_in_this_transaction(), len(hold.find_sync())), (1, 0))

    test_with_a_first_job = test_with_another = see_one_job


class IsCommitted(TransactionTestCase):
    def test_with_a_worker(self):
        placed = self.client.post("/orders", {"item": "book"}).json()["job"]
        self.assertEqual([job.id for job in hold.find_sync()], [placed])
"""

NOT_INLINE_IN_MEMORY = """
from django.test import TestCase
from holdfast.errors import ConfigError
from shop.jobs import hold


class InMemory(TestCase):
    def test_a_job_that_no_worker_could_run_is_refused_with_two_remedies(self):
        with self.assertRaisesRegex(ConfigError, r"inline\\(\\).*'default'.*'TEST'.*'NAME'"):
            self.client.post("/orders", {"item": "book"})
        with self.assertRaises(ConfigError):
            hold.find_sync()
"""


class Project:
    """A copy of the example, with a database of its own."""

    def __init__(self, folder: Path, installed: Installed, database: Mapping[str, str]) -> None:
        self.folder = folder
        self._python = installed.python
        self._env = installed.settings | {"DJANGO_SETTINGS_MODULE": "mysite.settings"} | dict(database)

    def manage(self, *words: str) -> str:
        """Run a command of `manage.py` that must succeed."""
        return run(self._python, "manage.py", *words, cwd=self.folder, env=self._env)

    def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of `manage.py` that may fail."""
        command = [str(self._python), "manage.py", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False
        )

    def add(self, name: str, text: str) -> None:
        """Write at the end of a file, which need not be there yet."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def run_program(self, program: str) -> str:
        """Run a program with Django set up."""
        return run(self._python, "-c", WITH_DJANGO + program, cwd=self.folder, env=self._env)

    @contextmanager
    def worker(self, *words: str) -> Iterator[Running]:
        """Run a worker while the block runs."""
        process = subprocess.Popen(
            [self._python, "manage.py", "holdfast", "worker", "shop.jobs:hold", *words],
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Running.of(process)
        finally:
            process.kill()
            process.wait()


def copied(folder: Path, installed: Installed, database: Mapping[str, str]) -> Project:
    return Project(shutil.copytree(ROOT / "examples/django", folder / "shop"), installed, database)


def settings_of(dsn: str) -> dict[str, str]:
    """Name a PostgreSQL database as the settings of the example do."""
    parts = urlsplit(dsn)
    return {
        "SHOP_DATABASE": parts.path.lstrip("/"),
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port or ""),
        "PGUSER": parts.username or "",
        "PGPASSWORD": parts.password or "",
    }


@pytest.fixture(scope="session")
def prepare_postgres(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Migrate once, in the template of all databases."""

    def migrate(dsn: str) -> None:
        copied(tmp_path_factory.mktemp("migrating"), installed, settings_of(dsn)).manage("migrate")

    return migrate


@pytest.fixture(scope="session")
def migrated_file(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrate once, in the file that all tests copy."""
    folder = tmp_path_factory.mktemp("migrating")
    copied(folder, installed, {"SHOP_FILE": str(folder / "shop.db")}).manage("migrate")
    assert not (folder / "shop.db-wal").exists(), "a part of the database is in another file"
    return folder / "shop.db"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """A database that was migrated."""
    if request.param == "postgres":
        return settings_of(request.getfixturevalue("postgres_dsn"))
    copy = shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "a shop.db")
    return {"SHOP_FILE": str(copy)}


@pytest.fixture
def project(tmp_path: Path, installed: Installed, database: Mapping[str, str]) -> Project:
    return copied(tmp_path, installed, database)


def test_migrate_makes_the_tables_and_may_be_run_again(project: Project) -> None:
    assert "[X] 0009_schema_version_10" in project.manage("showmigrations", "holdfast")
    assert "nothing to apply" in project.manage("holdfast", "schema", "status", "--app", "shop.jobs:hold")

    project.manage("migrate", "holdfast", "zero")
    project.manage("migrate")


def test_a_view_stores_row_and_job_together_and_a_worker_runs_the_job(project: Project) -> None:
    with project.worker("--processes", "2", "--settings", "mysite.settings") as worker:
        worker.wait_for("worker started")
        said = project.run_program("""
placed = Client().post("/orders", {"item": "book"}).json()["job"]
print(hold.handle(placed, "confirm").result_sync(timeout=30), Order.objects.get().confirmed)
""")
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert said == "confirmed book True\n"
    assert code == 0


def test_what_is_rolled_back_leaves_neither_row_nor_job(project: Project) -> None:
    said = project.run_program("""
try:
    with transaction.atomic():
        Client().post("/orders", {"item": "book"})
        raise LookupError
except LookupError:
    print(Order.objects.count(), len(hold.find_sync()))
with transaction.atomic():
    Client().post("/orders", {"item": "book"})
print(Order.objects.count(), len(hold.find_sync()))
""")

    assert said == "0 0\n1 1\n"


def test_a_plain_job_leaves_no_connection_of_djangos_open(project: Project) -> None:
    said = project.run_program("""
import asyncio

def use():
    Order.objects.count()
    return connections["default"], connections["default"].connection is not None

async def main():
    used, open_then = await hold.runtime.executor.run(use)
    print(open_then, used.connection is None)

asyncio.run(main())
""")

    assert said == "True True\n"


@pytest.mark.clause("OUT-1")
@pytest.mark.parametrize("more", [(), ("--parallel", "2")], ids=["one by one", "parallel"])
def test_what_tests_submit_is_in_the_test_database_and_rolled_back_with_them(
    more: tuple[str, ...], project: Project
) -> None:
    project.add("mysite/in_a_file.py", TESTS_IN_A_FILE)
    project.add("shop/jobs.py", "\nhold.find_sync()  # connects before there is a test database\n")
    project.add("shop/test_not_inline.py", NOT_INLINE)

    said = project.manage("test", "--settings", "mysite.in_a_file", *more)

    assert "Ran 6 tests" in said
    assert project.run_program("print(len(hold.find_sync()))") == "0\n"


@pytest.mark.parametrize("file", [":memory:", "shop.sqlite3"])
def test_tests_in_memory_run_jobs_inline_and_refuse_others(
    file: str, tmp_path: Path, installed: Installed
) -> None:
    project = copied(tmp_path, installed, {"SHOP_FILE": file})
    project.add("shop/test_not_inline.py", NOT_INLINE_IN_MEMORY)

    assert "Ran 4 tests" in project.manage("test")

    assert list(project.folder.glob("*.sqlite3")) == []


def test_commands_work_on_the_database_of_the_project(project: Project) -> None:
    project.run_program("""Client().post("/orders", {"item": "book"})""")

    assert "\tqueued\tconfirm\t" in project.manage("holdfast", "jobs", "list")
    assert "nothing to apply" in project.manage("holdfast", "schema", "apply")
    assert "1 declared: confirm" in project.ask("holdfast", "doctor").stdout
    assert list(project.folder.glob("holdfast.db*")) == []


def test_help_says_how_the_command_is_called(tmp_path: Path, installed: Installed) -> None:
    project = copied(tmp_path, installed, {})

    for words in (("holdfast", "--help"), ("help", "holdfast")):
        assert "Usage: manage.py holdfast [OPTIONS] COMMAND" in project.manage(*words)


def test_a_project_without_one_has_the_jobs_of_its_default_database(
    tmp_path: Path, installed: Installed
) -> None:
    project = copied(tmp_path, installed, {})
    (project.folder / "shop/jobs.py").write_text("", encoding="utf-8")

    asked = project.ask("holdfast", "jobs", "list")

    assert asked.returncode == 3
    assert f"there is no SQLite file '{project.folder / 'db.sqlite3'}'" in asked.stderr


def test_a_project_with_several_has_to_say_which_is_meant(tmp_path: Path, installed: Installed) -> None:
    project = copied(tmp_path, installed, {})
    project.add("shop/jobs.py", "\nother = DjangoHoldfast()\n")

    asked = project.ask("holdfast", "jobs", "list")

    assert asked.returncode == 2
    assert "2 DjangoHoldfast objects; choose one with --app" in asked.stderr


@pytest.mark.parametrize(
    ("alias", "database_settings", "complaint"),
    [
        ("default", {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "in memory"),
        (
            "default",
            {"ENGINE": "django.db.backends.dummy"},
            "is unknown, and jobs are stored in PostgreSQL or",
        ),
        ("orders", {"ENGINE": "django.db.backends.dummy"}, "DATABASES has no 'orders'"),
    ],
)
def test_a_database_that_cannot_keep_jobs_is_refused_when_it_is_needed(
    alias: str, database_settings: dict[str, Any], complaint: str, installed: Installed, tmp_path: Path
) -> None:
    said = run(
        installed.python,
        "-c",
        f"""
from django.conf import settings
settings.configure(DATABASES={{"default": {database_settings!r}}})
from holdfast.errors import ConfigError
from holdfast.contrib.django import DjangoHoldfast
hold = DjangoHoldfast({alias!r})
try:
    hold.find_sync()
except ConfigError as error:
    print(error)
""",
        cwd=tmp_path,
        env=installed.settings,
    )

    assert complaint in said


def test_django_has_a_migration_for_the_newest_schema() -> None:
    names = sorted(path.stem for path in MIGRATIONS.glob("[0-9]*.py"))
    versions = [re.fullmatch(r"\d{4}_schema_version_(\d+)", name) for name in names]

    assert all(versions)
    assert [int(found[1]) for found in versions if found][-1] == EXPECTED
