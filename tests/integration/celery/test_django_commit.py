"""In a Django project `delay_on_commit` of a durable task stores the job in the transaction itself."""

from pathlib import Path

from tests.integration.cli_process import python

PROJECT = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}})
django.setup()

from celery import Celery
from celery.contrib.django.task import DjangoTask
from django.db import transaction

from holdfast.celery import durable
from holdfast.contrib.django import DjangoHoldfast

app = Celery("site", broker="memory://", task_cls=DjangoTask)
hold = DjangoHoldfast()
hold.apply_schema_sync()


@durable(hold)
@app.task
def charge(order: int) -> None: ...


def stored() -> list[str]:
    return sorted(hold.read_sync(job.id).args for job in hold.find_sync())


try:
    with transaction.atomic():
        charge.delay_on_commit(1)
        raise LookupError
except LookupError:
    print("rolled back", stored())
with transaction.atomic():
    charge.delay_on_commit(2)
    charge.apply_async_on_commit((3,), countdown=60)
print("committed", stored())
charge.delay_on_commit(4)
print("without a transaction", len(stored()))
hold.close_sync()
"""


def test_a_job_is_stored_if_and_only_if_the_transaction_commits(tmp_path: Path) -> None:
    (tmp_path / "site_project.py").write_text(PROJECT, encoding="utf-8")

    ran = python("site_project.py", cwd=tmp_path)

    assert ran.stdout.splitlines() == [
        "rolled back []",
        """committed ['{"order":2}', '{"order":3}']""",
        "without a transaction 3",
    ], ran.stderr
