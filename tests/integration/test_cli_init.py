"""`holdfast init` writes a project that runs as it is, and overwrites nothing."""

from pathlib import Path

import pytest

from holdfast.cli.commands.init import starter
from tests.integration.cli_process import a_worker, holdfast, python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = holdfast("init", "project", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "project"


def test_the_files_are_listed_and_written(tmp_path: Path) -> None:
    done = holdfast("init", "somewhere/new", cwd=tmp_path)

    listed = [tmp_path / line for line in done.stdout.split()]
    assert {path.name for path in listed} == set(starter())
    assert all(path.is_file() for path in listed)
    assert "README.md has the next three commands" in done.stderr


def test_the_projects_own_tests_pass_and_leave_no_database(project: Path) -> None:
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert not (project / "holdfast.db").exists()


def test_its_worker_runs_what_the_program_submits(project: Path) -> None:
    with a_worker(cwd=project, settings={}):
        done = python("app.py", "Bob", cwd=project)

    assert (done.returncode, done.stdout) == (0, "welcomed Bob at Bob@example.org\n"), done.stderr


def test_a_readme_has_three_commands(project: Path) -> None:
    _, commands, _ = (project / "README.md").read_text(encoding="utf-8").split("```")

    assert len(commands.split("\n")[1:-1]) == 3


@pytest.mark.parametrize("name", list(starter()))
def test_a_file_that_is_there_is_not_overwritten_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")

    done = holdfast("init", cwd=tmp_path)

    assert done.returncode == 1
    assert f"holdfast: {name} already exists; nothing was written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = holdfast("init", "file/inside", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: cannot write file/inside")
    assert done.stderr.count("\n") == 1


def test_what_was_written_before_something_went_wrong_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "test_app.py").symlink_to(tmp_path / "nowhere")  # it is there, and yet does not exist

    done = holdfast("init", cwd=tmp_path)

    assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["test_app.py"]
