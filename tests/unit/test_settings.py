"""Which variable of the environment sets what, and when a bad value counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Job
from holdfast.config import GENERIC, Settings, load_settings, variables_of
from holdfast.errors import ConfigError
from holdfast.testing import inline

if TYPE_CHECKING:
    from pathlib import Path

URL = "sqlite:///never-opened.db"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing in the environment that sets anything."""
    for name in Settings.model_fields:
        for variable in (*variables_of(name), name.upper()):
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.clause("CFG-1")
def test_the_names_that_operators_know_are_those_without_a_prefix() -> None:
    assert {name.upper() for name in GENERIC} == {
        "RETRY_MAX_ATTEMPTS",
        "RETRY_BASE_DELAY_MS",
        "RETRY_JITTER_MAX_MS",
        "WORKER_LEASE_TTL_SEC",
        "GATEWAY_TIMEOUT_MS",
        "WORKER_CONCURRENCY",
        "CIRCUIT_WINDOW",
        "CIRCUIT_FAIL_THRESHOLD",
        "CIRCUIT_COOLDOWN_MS",
        "DATABASE_URL",
        "GATEWAY_URL",
    }


@pytest.mark.clause("CFG-1")
@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_each_setting_has_a_name_with_the_prefix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {"archive_key": "7" * 40, "database_pooled": "True"}
    value = odd.get(name) or str(Settings.model_fields[name].default or "7")
    monkeypatch.setenv(f"HOLDFAST_{name.upper()}", value)

    assert str(getattr(load_settings(), name)).removesuffix(".0") == value


@pytest.mark.clause("CFG-1")
def test_the_name_with_the_prefix_goes_before_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "four")
    monkeypatch.setenv("HOLDFAST_RETRY_MAX_ATTEMPTS", "5")

    settings = load_settings()

    settings.ensure_usable()
    assert settings.retry_max_attempts == 5


@pytest.mark.parametrize("variable", ["holdfast_log_level", "Holdfast_Log_Level"])
def test_the_case_of_a_variable_is_ignored(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "debug")

    settings = load_settings()

    assert settings.log_level == "debug"
    assert settings.source_of("log_level") == "HOLDFAST_LOG_LEVEL"


def test_settings_within_a_model_keep_the_values_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    class Configuration(BaseModel):
        holdfast: Settings

    settings = Settings(log_level="error")
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "debug")

    assert Configuration(holdfast=settings).holdfast.log_level == "error"
    assert Configuration.model_validate({"holdfast": {}}).holdfast.log_level == "debug"


@pytest.mark.parametrize("name", sorted(Settings.model_fields.keys() - GENERIC))
def test_no_other_name_is_read_without_the_prefix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name.upper(), "verbose")

    settings = load_settings()

    settings.ensure_usable()
    assert getattr(settings, name) == Settings.model_fields[name].default


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORKER_CONCURRENCY", "auto"), ("RETRY_MAX_ATTEMPTS", "-1"), ("CIRCUIT_WINDOW", "10s")],
)
async def test_a_value_for_another_program_counts_when_a_worker_starts_and_not_before(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, value)
    hold = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    hold.provider("gateway")

    @hold.job
    async def greet() -> str:
        return "hello"

    async with hold:
        await greet.submit()
        with pytest.raises(ConfigError, match=rf"^{name}='{value}' is not usable: "):
            async with hold.worker():
                raise AssertionError("it started")


def test_an_argument_spares_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "many")

    load_settings(retry_max_attempts=4).ensure_usable()


def test_a_bad_value_under_our_own_name_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKER_CONCURRENCY", "auto")

    with pytest.raises(ConfigError, match=r"^HOLDFAST_WORKER_CONCURRENCY='auto' is not usable: "):
        Holdfast(URL)


async def test_an_address_for_another_program_counts_when_the_database_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://shop:secret@db/shop")
    hold = Holdfast()

    @hold.job
    async def greet() -> str:
        return "hello"

    refused = r"^DATABASE_URL='mysql://…@db/shop' is not usable: .*; for one of Holdfast's own, set HOLDFAST_DATABASE_URL$"
    for _ in range(2):
        with pytest.raises(ConfigError, match=refused):
            await greet.submit()
    await hold.close()
    with inline(hold) as ended:
        await greet.submit()

    assert [_named(job) for job in ended] == ["greet completed"]


def _named(job: Job) -> str:
    return f"{job.name} {job.status}"


@pytest.mark.parametrize("variable", ["HOLDFAST_DATABASE_URL", "HOLDFAST_DATABASE_DIRECT_URL"])
def test_an_address_under_our_own_name_is_refused_at_once(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://db/shop")
    monkeypatch.setenv(variable, "mysql://shop:secret@db/shop")

    with pytest.raises(ConfigError, match=f"^{variable}='mysql://…@db/shop' is not usable: "):
        Holdfast()


def test_an_address_given_in_code_is_named_as_the_argument() -> None:
    with pytest.raises(ConfigError, match=r"^database_url='mysql://db/shop' is not usable: "):
        Holdfast("mysql://db/shop")
