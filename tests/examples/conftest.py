"""The wheel as users get it, and environments in which nothing else of this repository can be seen."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pages import ROOT

TIMEOUT_SECONDS = 120
NOT_SHARED = ("holdfast", "_editable_impl_holdfast", "__editable__")
OURS = (
    "HOLDFAST_",
    "RETRY_",
    "WORKER_",
    "CIRCUIT_",
    "GATEWAY_",
    "DATABASE_URL",
    "PYTHONPATH",
    "PG",
    "VIRTUAL_ENV",
)


class Installed(NamedTuple):
    """An environment with the wheel in it."""

    python: Path
    settings: dict[str, str]


def run(*words: str | Path, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a command that must succeed, and return its output."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this repository."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT, env=os.environ)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every package that the tests run with, but not Holdfast: nothing is fetched again."""
    folder = tmp_path_factory.mktemp("packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(NOT_SHARED) and package.suffix != ".pth":
            (folder / package.name).symlink_to(package)
    return folder


@pytest.fixture(scope="session")
def settings(packages: Path) -> dict[str, str]:
    """Return the environment variables of a user who has those packages, and nothing of this repository."""
    plain = {name: value for name, value in os.environ.items() if not name.upper().startswith(OURS)}
    return plain | {
        "PYTHONPATH": str(packages),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture(scope="session")
def installed(wheel: Path, settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel into an environment of its own."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder, env=settings)
    python = folder / "bin/python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        wheel,
        cwd=folder,
        env=settings,
    )
    return Installed(python, settings)
