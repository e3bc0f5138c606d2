"""What the doctor makes of what it finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.doctor.checks import (
    Check,
    Client,
    Health,
    of_backlog,
    of_clients,
    of_clock,
    of_jobs,
    of_loop,
    of_pauses,
    of_postgres,
    of_schema,
    of_sqlite,
    of_unknown_jobs,
    of_writing,
)
from holdfast.ports import Depth, SchemaState
from holdfast.ports.queues import Pause

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)

POSTGRES = {
    "server_version": "16.2 (Debian)",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "jobs_autovacuum": "on",
    "oldest_snapshot_sec": "600",
    "oldest_prepared_sec": "0",
    "max_connections": "100",
    "superuser_reserved_connections": "3",
    "connections": "1",
    "connections_per_worker": "6",
    "listens": "yes",
    "schema": "holdfast",
}
SQLITE = {"server_version": "3.40.1", "file_mode": "0600", "synchronous": "FULL", "journal_mode": "wal"}


def of_database(facts: dict[str, str]) -> list[Check]:
    return list(of_postgres(facts) if "fsync" in facts else of_sqlite(facts))


def health_of(name: str, facts: dict[str, str]) -> Health:
    [health] = [check.health for check in of_database(facts) if check.name == name]
    return health


@pytest.mark.parametrize(
    ("mode", "health"),
    [
        ("0600", Health.OK),
        ("0622", Health.OK),
        ("0640", Health.OK),
        ("0644", Health.WARN),
        ("0604", Health.WARN),
    ],
)
def test_a_file_that_others_can_read_is_warned_of(mode: str, health: Health) -> None:
    assert health_of("file mode", SQLITE | {"file_mode": mode}) is health


@pytest.mark.parametrize("facts", [POSTGRES, SQLITE], ids=["postgres", "sqlite"])
def test_a_safe_database_is_well(facts: dict[str, str]) -> None:
    assert {check.health for check in of_database(facts)} == {Health.OK}


@pytest.mark.parametrize(
    ("name", "change", "health"),
    [
        ("version", {"server_version": "12.9"}, Health.FAIL),
        ("version", {"server_version": "17beta1"}, Health.OK),
        ("fsync", {"fsync": "off"}, Health.FAIL),
        ("synchronous_commit", {"synchronous_commit": "off"}, Health.FAIL),
        ("synchronous_commit", {"synchronous_commit": "remote_apply"}, Health.OK),
        ("full_page_writes", {"full_page_writes": "off"}, Health.WARN),
        ("autovacuum", {"autovacuum": "off"}, Health.WARN),
        ("autovacuum", {"jobs_autovacuum": "false"}, Health.WARN),
        ("snapshots", {"oldest_snapshot_sec": "601"}, Health.WARN),
        ("snapshots", {"oldest_prepared_sec": "7200"}, Health.WARN),
        ("hints", {"listens": "no"}, Health.WARN),
        ("connections", {"connections": "91"}, Health.OK),
        ("connections", {"connections": "92"}, Health.WARN),
        ("connections", {"connections": "100"}, Health.WARN),
    ],
)
def test_postgresql_is_judged_by_its_settings(name: str, change: dict[str, str], health: Health) -> None:
    assert health_of(name, POSTGRES | change) is health


@pytest.mark.parametrize(
    ("name", "change", "health"),
    [
        ("synchronous", {"synchronous": "NORMAL"}, Health.FAIL),
        ("synchronous", {"synchronous": "EXTRA"}, Health.OK),
        ("journal_mode", {"journal_mode": "delete"}, Health.WARN),
    ],
)
def test_sqlite_is_judged_by_its_settings(name: str, change: dict[str, str], health: Health) -> None:
    assert health_of(name, SQLITE | change) is health


@pytest.mark.parametrize(
    ("ahead", "answered_in", "health"),
    [
        (timedelta(), timedelta(), Health.OK),
        (timedelta(seconds=1.9), timedelta(), Health.OK),
        (timedelta(minutes=10), timedelta(), Health.WARN),
        (timedelta(minutes=-10), timedelta(), Health.WARN),
        (timedelta(seconds=4), timedelta(seconds=5), Health.OK),
    ],
    ids=["equal", "close", "ahead", "behind", "a slow answer proves nothing"],
)
def test_clocks_may_differ_by_two_seconds(ahead: timedelta, answered_in: timedelta, health: Health) -> None:
    now = NOON + answered_in / 2 + ahead

    assert of_clock({"now": now.isoformat()}, NOON, NOON + answered_in).health is health


@pytest.mark.parametrize(
    ("state", "health"),
    [
        (SchemaState(found=2, expected=2, min_compatible=1), Health.OK),
        (SchemaState(found=3, expected=2, min_compatible=1), Health.OK),
        (SchemaState(found=3, expected=2, min_compatible=3), Health.FAIL),
        (SchemaState(found=1, expected=2, min_compatible=1), Health.FAIL),
        (SchemaState(found=0, expected=2, min_compatible=0), Health.FAIL),
    ],
)
def test_a_schema_fits_or_fails(state: SchemaState, health: Health) -> None:
    assert of_schema(state).health is health


def test_an_application_without_jobs_and_a_slow_loop_are_warnings() -> None:
    assert of_jobs([]).health is Health.WARN
    assert of_jobs(["a", "b"]).health is Health.OK
    assert of_loop(has_uvloop=False).health is Health.WARN
    assert of_writing("the database is read-only").health is Health.FAIL


@pytest.mark.parametrize(
    ("depth", "health"),
    [
        (Depth("mail", "ready", 9, timedelta(minutes=5)), Health.OK),
        (Depth("mail", "ready", 9, timedelta(minutes=6)), Health.WARN),
        (Depth("mail", "waiting", 9, timedelta(days=6)), Health.OK),
    ],
)
def test_jobs_that_no_worker_takes_are_a_warning(depth: Depth, health: Health) -> None:
    assert of_backlog([depth]).health is health


def test_a_paused_queue_is_named_with_the_operator_who_paused_it() -> None:
    check = of_pauses([Pause("mail", NOON, "ada", "on fire")])

    assert check.health is Health.WARN
    assert "'mail' since 2026-03-02 12:00 UTC by ada (on fire)" in check.detail
    assert of_pauses([]).health is Health.OK


def test_clients_that_retry_by_themselves_are_named() -> None:
    clients = [Client("openai.OpenAI", 2), Client("anthropic.Anthropic", 0), Client("botocore.S3", -1)]
    check = of_clients(clients, attempts=5)

    assert check.health is Health.WARN
    assert check.detail.startswith("openai.OpenAI retries 2 times, so that 5 attempts make up to 15 calls:")
    assert "anthropic" not in check.detail
    assert "botocore" not in check.detail
    assert of_clients(clients[1:], attempts=5).health is Health.OK


def test_a_client_that_retries_is_named_by_its_variable_with_what_to_write_instead() -> None:
    client = Client("requests.Session", 3, "HTTPAdapter(max_retries=0)", location="shop.web.session")

    check = of_clients([client], attempts=2)

    assert check.detail.startswith("shop.web.session, of requests.Session, retries 3 times")
    assert "up to 8 calls: make it with HTTPAdapter(max_retries=0)" in check.detail


def test_jobs_under_names_that_are_not_declared_are_named() -> None:
    check = of_unknown_jobs(["old", "known", "old"], ["known", "renamed"])

    assert (check.health, "old;" in check.detail) == (Health.WARN, True)
    assert of_unknown_jobs(["known"], ["known"]).health is Health.OK
