"""What lies in deploy/ does what it says: commands that exist, limits that fit each other, steps that work."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
import typer
import yaml

from holdfast.cli import app
from holdfast.config import Settings, variables_of
from tests.integration.cli_process import a_worker, apply_schema, holdfast
from tests.pages import blocks
from tests.servers import in_ci
from tools.debian import NotInstalledError, install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers import PostgresServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/holdfast-worker.service"
DOCKERFILE = DEPLOY / "docker/Dockerfile"

AFTER_GRACE = 15
"""Seconds that a worker may need after the grace time: five to stop handlers, ten to write."""


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Read a command as the command line would, without carrying it out; fails if it makes no sense."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    values: dict[str, Any] = command.make_context("holdfast", rest).params
    return values


def unit() -> dict[str, str]:
    """The part of the unit that says how the worker runs; of a setting that stands twice, the last."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())["services"]
    return services


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile, continued ones joined."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def test_the_commands_of_the_unit_and_the_images_exist() -> None:
    program, *words = shlex.split(unit()["ExecStart"])
    [default] = [ast.literal_eval(rest) for name, rest in instructions() if name == "CMD"]
    services = compose()

    assert program.endswith("/holdfast")
    assert parsed(words)["processes"] == 2
    assert parsed(default)["name"] == "app:hold"
    assert parsed(services["worker"]["command"])["name"] == "app:hold"
    parsed(services["schema"]["command"])


def test_the_settings_exist() -> None:
    known = {variable for name in Settings.model_fields for variable in variables_of(name)}
    lines = (DEPLOY / "systemd/worker.env").read_text().splitlines()
    in_unit = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    [environment] = [rest for name, rest in instructions() if name == "ENV"]
    in_image = {pair.partition("=")[0] for pair in environment.split()} - {"PYTHONUNBUFFERED"}

    assert in_unit <= known
    assert in_image <= known
    assert set(compose()["worker"]["environment"]) <= known


def test_no_worker_is_killed_before_its_grace_time_and_what_follows_it_are_over() -> None:
    grace = Settings().worker_grace_sec
    worker = compose()["worker"]

    assert float(unit()["TimeoutStopSec"]) >= grace + AFTER_GRACE
    assert float(worker["stop_grace_period"].removesuffix("s")) >= grace + AFTER_GRACE
    assert float(worker["environment"]["HOLDFAST_WORKER_GRACE_SEC"]) == grace


def test_the_watchdog_waits_longer_than_a_lease_and_lets_neighbours_finish() -> None:
    settings = unit()

    assert settings["Type"] == "notify"
    assert float(settings["WatchdogSec"]) > Settings().worker_lease_ttl_sec
    assert settings["WatchdogSignal"] == settings["KillSignal"] == "SIGTERM"


def applying() -> list[str]:
    """The command of the page that makes the tables."""
    page = (ROOT / "docs/guides/deploying.md").read_text().replace("\\\n", "")
    [line] = re.findall("^systemd-run .*$", page, flags=re.MULTILINE)
    return shlex.split(line)


def test_the_tables_are_made_by_the_program_the_user_and_the_settings_of_the_unit() -> None:
    options, program, *words = split_at_program(applying())
    settings = unit()
    header = re.sub(r"\s*\\\n#\s*", " ", UNIT.read_text().partition("[Unit]")[0])

    assert program == shlex.split(settings["ExecStart"])[0]
    assert f"--uid={settings['User']}" in options
    assert f"--property=EnvironmentFile={settings['EnvironmentFile']}" in options
    assert words == ["schema", "apply"]
    assert " ".join(applying()) in header


def split_at_program(words: Sequence[str]) -> tuple[Any, ...]:
    """Give what is said to `systemd-run`, and then each word of the command that it runs."""
    [first] = [number for number, word in enumerate(words) if word.endswith("/holdfast")]
    return (words[:first], *words[first:])


def test_without_that_step_the_worker_of_the_unit_does_not_start_and_with_it_it_does(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database()
    settings = {"DATABASE_URL": url}
    shutil.copy(DEPLOY / "docker/app.py", tmp_path)
    _, _, *words = split_at_program(applying())

    refused = holdfast("worker", "app:hold", cwd=tmp_path, settings=settings)
    holdfast(*words, cwd=tmp_path, settings=settings)
    with a_worker("--processes", "2", cwd=tmp_path, settings=settings) as worker:
        worker.signal(signal.SIGTERM)
        code = worker.end()

    assert str(refused.returncode) == unit()["RestartPreventExitStatus"]
    assert code == 0
    postgres_server.drop_database(url)


def test_kubernetes_asks_what_a_worker_answers_and_waits_longer_than_a_lease() -> None:
    [block] = [block for block in blocks(ROOT / "docs/guides/deploying.md") if block.language == "yaml"]
    container = yaml.safe_load(block.text)
    live, ready = container["livenessProbe"], container["readinessProbe"]

    assert parsed(container["args"])["name"] == "app:hold"
    settings = {each["name"]: each["value"] for each in container["env"]}
    assert settings.keys() <= {each for name in Settings.model_fields for each in variables_of(name)}
    assert (live["httpGet"]["path"], ready["httpGet"]["path"]) == ("/live", "/ready")
    assert {str(probe["httpGet"]["port"]) for probe in (live, ready)} == {
        settings["HOLDFAST_WORKER_HEALTH_PORT"]
    }
    assert live["periodSeconds"] * live["failureThreshold"] > Settings().worker_lease_ttl_sec


def test_workers_start_when_the_schema_is_applied_and_there_are_two() -> None:
    services = compose()

    assert services["schema"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services["worker"]["depends_on"]["schema"]["condition"] == "service_completed_successfully"
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"


def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    analyze = systemd_analyze()
    copy = tmp_path / UNIT.name
    # What is yours is not on this machine: the program, and the user.
    text = re.sub("^ExecStart=.*$", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    copy.write_text(re.sub("^(User|Group)=.*\n", "", text, flags=re.MULTILINE))

    done = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        try:
            install("systemd")
        except NotInstalledError as missing:
            (pytest.fail if in_ci() else pytest.skip)(str(missing))
        found = shutil.which("systemd-analyze")
    assert found is not None
    return found


def test_the_image_is_made_of_files_that_exist_and_runs_as_an_unprivileged_user() -> None:
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY"]
    sources = [source for words in copied for source in words if not source.startswith("--from")]
    ignored = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if f"!{source}" not in ignored] == []
    assert [rest for name, rest in instructions() if name == "USER"] == ["10001"]


def test_what_an_application_needs_is_built_and_installed_with_holdfast(tmp_path: Path) -> None:
    build, install_all = pip_lines(tmp_path / "wheels")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    wheel = a_wheel(tmp_path, "ledger")
    requirements = (DEPLOY / "docker/requirements.txt").read_text()
    (source / "requirements.txt").write_text(f"{requirements}{wheel}\n")
    installed = tmp_path / "installed"

    sh(f"{build} --no-deps", cwd=source)
    sh(f"{install_all} --no-deps --target {installed}", cwd=tmp_path)

    (tmp_path / "app.py").write_text(f"import ledger\n{(DEPLOY / 'docker/app.py').read_text()}")
    code = "import app, holdfast; print(holdfast.__file__); print([spec.name for spec in app.hold.runtime.registry])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [str(installed / "holdfast/__init__.py"), "['greet']"]


def pip_lines(wheels: Path) -> list[str]:
    """The commands of the Dockerfile that build and install, for this machine."""
    commands = [re.sub(r"^--mount=\S+ *", "", rest) for name, rest in instructions() if name == "RUN"]
    pip = f"{sys.executable} -m pip --quiet --disable-pip-version-check "
    return [
        command.replace("pip ", pip, 1).replace("/wheels", str(wheels))
        for command in commands
        if command.startswith("pip ")
    ]


def a_wheel(folder: Path, name: str) -> Path:
    """Make a package of one empty module, as another project might have published it."""
    path, about = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path


def sh(command: str, *, cwd: Path) -> None:
    """Run a line as an image is built: through a shell, which finds the files that a pattern names."""
    subprocess.run(["sh", "-c", command], cwd=cwd, check=True, timeout=300)


async def test_the_health_check_of_the_image_distinguishes_a_worker_that_is_alive_from_none(
    tmp_path: Path,
) -> None:
    [rest] = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    command = ast.literal_eval(rest.partition("CMD ")[2])
    port = free_port()
    check = [sys.executable, *(word.replace(":8080/", f":{port}/") for word in command[1:])]
    url = f"sqlite:///{tmp_path}/jobs.db"
    await apply_schema(url)
    shutil.copy(DEPLOY / "docker/app.py", tmp_path)

    before = subprocess.run(check, capture_output=True, check=False, timeout=30)
    with a_worker("--health-port", str(port), cwd=tmp_path, settings={"DATABASE_URL": url}) as worker:
        alive = subprocess.run(check, capture_output=True, check=False, timeout=30)
        assert worker.process.poll() is None

    assert before.returncode != 0
    assert (alive.returncode, alive.stderr) == (0, b"")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
