"""Settings reach a real process: by argument, else by environment, else by default."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Breaker, Holdfast
from tests.integration.cli_process import a_worker, an_application, holdfast, submit, wait

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {
    "RETRY_MAX_ATTEMPTS": "7",
    "RETRY_BASE_DELAY_MS": "1500",
    "RETRY_JITTER_MAX_MS": "250",
    "WORKER_LEASE_TTL_SEC": "45",
    "WORKER_CONCURRENCY": "9",
    "CIRCUIT_WINDOW": "7",
    "CIRCUIT_FAIL_THRESHOLD": "0.25",
    "CIRCUIT_COOLDOWN_MS": "1500",
    "GATEWAY_TIMEOUT_MS": "2500",
}

SHOW = """
from holdfast import Holdfast

hold = Holdfast({arguments})
policy = hold.settings.retry_policy
print([hold.settings.database_url, policy.attempts, hold.settings.retry_base_delay_ms])
"""


@pytest.mark.clause("CFG-1")
async def test_a_worker_takes_its_settings_from_the_environment(tmp_path: Path) -> None:
    folder, url = an_application(tmp_path), f"sqlite:///{tmp_path}/jobs.db"
    job_id = await submit(url, "settings")

    with a_worker(cwd=folder, settings={**ENVIRONMENT, "DATABASE_URL": url}) as worker:
        job = await wait(url, job_id)

    seen = json.loads(job.result or "{}")
    assert {name: str(seen[name.lower()]).removesuffix(".0") for name in ENVIRONMENT} == ENVIRONMENT
    assert '"slots": 9' in worker.output


@pytest.mark.clause("CFG-1")
async def test_an_argument_goes_before_the_environment(tmp_path: Path) -> None:
    folder, url = an_application(tmp_path), f"sqlite:///{tmp_path}/jobs.db"
    job_id = await submit(url, "waiting")

    with a_worker(
        "--slots", "3", "--lease", "1h", cwd=folder, settings={**ENVIRONMENT, "DATABASE_URL": url}
    ) as worker:
        worker.wait_for("begun")
        shown = holdfast("jobs", "show", job_id, "--json", "--url", url, cwd=folder)

    job = json.loads(shown.stdout)
    assert '"slots": 3' in worker.output
    assert job["lease_expires_at"][:13] > job["started_at"][:13]


@pytest.mark.clause("CFG-1")
@pytest.mark.parametrize(
    ("arguments", "environment", "seen"),
    [
        ("", {}, ["sqlite:///holdfast.db", 3, 5000]),
        ("", {"RETRY_MAX_ATTEMPTS": "7", "RETRY_BASE_DELAY_MS": "10"}, ["sqlite:///holdfast.db", 7, 10]),
        ("'sqlite:///given.db', attempts=2", {"RETRY_MAX_ATTEMPTS": "7"}, ["sqlite:///given.db", 2, 5000]),
        ("", {"DATABASE_URL": "sqlite:///env.db", "retry_max_attempts": "8"}, ["sqlite:///env.db", 8, 5000]),
    ],
    ids=["default", "environment", "argument", "any case"],
)
def test_an_argument_goes_before_the_environment_and_that_before_the_default(
    tmp_path: Path, arguments: str, environment: dict[str, str], seen: list[object]
) -> None:
    folder = an_application(tmp_path, SHOW.format(arguments=arguments))

    done = holdfast("schema", "status", "--app", "app:hold", cwd=folder, settings=environment)

    assert done.stdout.splitlines()[0] == str(seen)


@pytest.mark.clause("CFG-1")
def test_a_provider_takes_what_it_does_not_declare_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    hold, own = Holdfast("sqlite:///unused.db"), Breaker(window=3, minimum=1)

    plain = hold.provider("plain").spec
    declared = hold.provider("declared", breaker=own, timeout="9s").spec

    assert plain.breaker == Breaker(
        window=7, minimum=4, threshold=0.25, cooldown=timedelta(milliseconds=1500)
    )
    assert plain.timeout == timedelta(milliseconds=2500)
    assert (declared.breaker, declared.timeout) == (own, timedelta(seconds=9))


@pytest.mark.clause("CFG-1")
def test_commands_use_the_database_of_the_environment(tmp_path: Path) -> None:
    done = holdfast("schema", "apply", cwd=tmp_path, settings={"DATABASE_URL": "sqlite:///named.db"})

    assert done.returncode == 0
    assert (tmp_path / "named.db").exists()


@pytest.mark.clause("CFG-1")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRY_MAX_ATTEMPTS", "0"),
        ("RETRY_MAX_ATTEMPTS", "three"),
        ("HOLDFAST_RETRY_MAX_ATTEMPTS", "0"),
        ("RETRY_BASE_DELAY_MS", "-1"),
        ("RETRY_JITTER_MAX_MS", "1e99"),
        ("WORKER_LEASE_TTL_SEC", "0"),
        ("WORKER_LEASE_TTL_SEC", "nan"),
        ("WORKER_CONCURRENCY", "0"),
        ("HOLDFAST_WORKER_GRACE_SEC", "-1"),
        ("HOLDFAST_WORKER_POLL_SEC", "0"),
        ("CIRCUIT_WINDOW", "0"),
        ("CIRCUIT_FAIL_THRESHOLD", "1"),
        ("CIRCUIT_FAIL_THRESHOLD", "nan"),
        ("CIRCUIT_COOLDOWN_MS", "0"),
        ("HOLDFAST_LOG_LEVEL", "loud"),
        ("HOLDFAST_LOG_FORMAT", "xml"),
    ],
)
def test_a_bad_value_stops_the_start_with_one_line_that_names_it(
    tmp_path: Path, name: str, value: str
) -> None:
    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings={name: value})

    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"holdfast: {name}={value!r} is not usable: ")


@pytest.mark.clause("CFG-1")
@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hidden@host/name",
        "postgresql+asyncpg://me:hidden@host/name",
        "sqlite://relative.db",
        "sqlite:///:memory:",
        "",
        "postgresql://me:hid#den@host/name",
        "postgresql://me:hidden@host:port/name",
        "postgresql://me:hidden@[::1/name",
        "postgresql://me:hidden@127.0.0.1/name?sslmode=sometimes",
    ],
)
def test_an_address_of_no_use_stops_the_start_and_its_password_stays_hidden(tmp_path: Path, url: str) -> None:
    done = holdfast("worker", "app:hold", cwd=an_application(tmp_path), settings={"DATABASE_URL": url})

    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "DATABASE_URL" in line
    assert "is not usable" in line
    assert "hid" not in line
