"""Each example project passes its own tests, with the built wheel and without the source tree."""

import shutil
from pathlib import Path

import pytest

from tests.brokers import PrivateRabbitMQ, PrivateRedis
from tests.examples.conftest import Installed, run
from tests.pages import DOCS, ROOT, blocks

EXAMPLES = ROOT / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
FLEETS = ("arq", "celery")
"""Before and after: their guides show projects of their own."""

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestDeprecationWarning")


def test_holdfast_comes_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    place = run(
        installed.python,
        "-c",
        "import holdfast; print(holdfast.__file__)",
        cwd=tmp_path,
        env=installed.settings,
    )

    assert Path(place.strip()).is_relative_to(installed.python.parent.parent)


@pytest.mark.parametrize("name", sorted({*NAMES} - {*FLEETS}))
def test_an_example_passes_its_own_tests(name: str, installed: Installed, tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / name, tmp_path / name)
    words = ("manage.py", "test") if (project / "manage.py").exists() else PYTEST

    said = run(
        installed.python, *words, cwd=project, env=installed.settings | {"HOLDFAST_LOG_LEVEL": "ERROR"}
    )

    assert "3 passed" in said or "Ran 3 tests" in said


@pytest.mark.clause("GRD-4")
def test_a_celery_project_loses_orders_before_and_none_after_it_adopted_holdfast(
    installed: Installed, tmp_path: Path, private_rabbitmq: PrivateRabbitMQ
) -> None:
    project = shutil.copytree(EXAMPLES / "celery", tmp_path / "celery")

    said = run(
        installed.python, *PYTEST, cwd=project, env=installed.settings | {"BROKER_URL": private_rabbitmq.url}
    )

    assert "3 passed" in said


@pytest.mark.clause("GRD-2")
def test_an_arq_project_loses_orders_before_and_none_after_it_adopted_holdfast(
    installed: Installed, tmp_path: Path, private_redis: PrivateRedis
) -> None:
    project = shutil.copytree(EXAMPLES / "arq", tmp_path / "arq")

    said = run(
        installed.python, *PYTEST, cwd=project, env=installed.settings | {"REDIS_URL": private_redis.url}
    )

    assert "3 passed" in said


@pytest.mark.parametrize("name", sorted({*NAMES} - {*FLEETS}))
def test_the_files_on_an_examples_page_are_those_of_the_example(name: str) -> None:
    shown = {
        block.title: block.text
        for block in blocks(DOCS / f"guides/{name}.md")
        if block.title is not None and block.title != "mysite/settings.py"
    }

    assert shown == {title: (EXAMPLES / name / title).read_text(encoding="utf-8") for title in shown}
    assert shown
