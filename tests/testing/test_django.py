"""The guide's Django project works as written, and so does what it says about threads and transactions."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import DOCS, blocks

GUIDE = DOCS / "guides/testing-your-jobs.md"
TIMEOUT_SECONDS = 60

SETTINGS = """
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "real.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": "test.db"},
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "holdfast.contrib.django"]
ROOT_URLCONF = "views"
SECRET_KEY = "not one"
USE_TZ = True
"""

MORE_TESTS = """
import threading

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import TestCase, override_settings
from django.urls import path
from jobs import hold

from holdfast.testing import inline

seen = []


@hold.stage()
def rename(user_id, name):
    User.objects.filter(pk=user_id).update(username=name)
    seen.append(threading.current_thread())


@hold.job("plain")
def plain(user_id):
    seen.append(threading.current_thread())
    rename(user_id, User.objects.get(pk=user_id).username.upper())


@hold.job("async")
async def asynchronous(user_id):
    user = await User.objects.aget(pk=user_id)
    await rename.in_thread(user_id, user.username.upper())


@hold.job("parent")
def parent(user_id):
    async_to_sync(plain.submit)(user_id)


@hold.stage()
async def rename_on_loop(user_id):
    await User.objects.filter(pk=user_id).aupdate(username="ADA")


@hold.stage()
def pass_on(user_id):
    plain.submit_sync(user_id)


@hold.job("plain submission", deadline="1h")
def plain_submission(user_id):
    plain.submit_sync(user_id).result_sync()


@hold.job("to an async one")
def to_async(user_id):
    asynchronous.submit_sync(user_id)


@hold.job("by a stage")
def by_stage(user_id):
    pass_on(user_id)


@hold.job("by a stage on the loop")
def by_loop(user_id):
    rename_on_loop.on_loop(user_id)


@hold.job("after a rest")
def after_a_rest(user_id):
    hold.sleep_sync("2h")
    plain_submission.submit_sync(user_id)


def plain_view(request, job):
    user = User.objects.create(username="ada")
    async_to_sync(globals()[job].submit)(user.pk)
    return HttpResponse()


async def async_view(request, job):
    user = await User.objects.acreate(username="ada")
    await globals()[job].submit(user.pk)
    return HttpResponse()


urlpatterns = [path("plain/<job>", plain_view), path("async/<job>", async_view)]


@override_settings(ROOT_URLCONF=__name__)
class InTheTestsTransaction(TestCase):
    def setUp(self):
        seen.clear()
        self.ended = self.enterContext(inline(hold))
        self.assertEqual(User.objects.count(), 0, "the test before was rolled back")

    def run_everywhere(self, job):
        for view in ("plain", "async"):
            with self.subTest(view):
                User.objects.all().delete()
                self.client.get(f"/{view}/{job}")
                self.assertEqual(User.objects.get().username, "ADA")

    def test_plain_job(self):
        self.run_everywhere("plain")
        self.assertEqual(set(seen), {threading.current_thread()})

    def test_async_job(self):
        self.run_everywhere("asynchronous")

    def test_a_plain_job_that_submits_another(self):
        self.run_everywhere("parent")

    def test_a_plain_job_waits_where_those_run_that_it_waits_for(self):
        for job in ("plain_submission", "to_async", "by_stage", "by_loop", "after_a_rest"):
            self.run_everywhere(job)
        self.assertEqual({job.status for job in self.ended}, {"completed"})

    async def test_async_test(self):
        for job in ("plain", "asynchronous"):
            await User.objects.all().adelete()
            await self.async_client.get(f"/async/{job}")
            self.assertEqual((await User.objects.aget()).username, "ADA")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the guide's Django section, in a folder of their own."""
    for block in blocks(GUIDE):
        if "under Django" in block.remark:
            assert block.title is not None
            with (tmp_path / block.title).open("a", encoding="utf-8") as file:
                file.write(block.text)
    (tmp_path / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "test_more.py").write_text(MORE_TESTS, encoding="utf-8")
    return tmp_path


def test_every_test_of_the_project_passes(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "django", "test", "--settings=settings"],
        cwd=project,
        env={
            "PYTHONPATH": os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")]),
            "HOLDFAST_LOG_LEVEL": "ERROR",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert re.search("Ran 9 tests", done.stderr), done.stderr
    assert not (project / "real.db").exists(), "the real database was not used"
