"""What a worker asks in its loop is answered from an index, however much history there is."""

import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from holdfast.stores.postgres.connections import SESSION
from holdfast.stores.queries import Queries
from tests.contract.conftest import SqliteFile
from tests.contract.steps import LEASE

FILES = set(Queries("holdfast.stores.sqlite"))

IN_ORDER = [
    "claimable",
    "due_dispatches",
    "promote",
    "next_due",
    "expired_leases",
    "cancel_requests",
    "overdue",
    "at_risk",
    "release_held",
    "due_tickets",
    "running_plans",
    "replayable_letters",
    "outdated_stubs",
]
"""Questions about many jobs: the index has them in the order in which they are asked for."""

ELSEWHERE = {
    "find_live",
    "find_ended",
    "find_purged",
    "recent_queues",
    "counts",
    "depths",
    "pause_queue",
    "signal_history",
    "get",
    "events",
    "stage_events",
    "retry",
    "retry_history",
    "held_jobs",
    "provider_names",
    "add_provider",
    "letters",
    "letter_groups",
    "letter_counts",
    "redaction_key",
    "add_plan",
    "raise_alarm",
    "add_alarm_ticket",
    "find_messages",
}
"""Queries that operators run now and then."""

RARELY = {"letters_to_archive"}
"""What the clean-up asks from time to time: there is no index for it, since each job would pay for that."""

LEASED = {"leased_to", "extend_all"}
"""What a worker asks when something went wrong: it walks over the index of what runs now, and no further."""

RESTORING = {file for file in FILES if file.startswith("restore_")}
"""Rows that are restored from an archive, one by one."""

ADDING = {"add_relay", "block_route"}
"""What inserts one row that it is given, and reads none."""

SUBMITTING = {
    "submit",
    "submit_payloads",
    "reserve_key",
    "job_by_key",
    "add_version",
    "latest_version",
    "known_jobs",
    "add_warnings",
    "take_write_lock",
}

VALUES = {
    "batch": "[]",
    "ids": "[]",
    "now": 0,
    "limit": 9,
    "knows": "[]",
    "keys": "[]",
    "queue": "default",
    "worker": "worker",
    "lease": 1,
    "id": "",
    "owner": None,
    "children": "[]",
    "names": "[]",
    **dict.fromkeys(("name", "token", "data", "result", "failure", "timeout", "meta", "actor", "reason"), ""),
    **dict.fromkeys(("holder", "state"), ""),
    "version": 1,
    "events": "[]",
    **dict.fromkeys(("status", "before", "late_at"), None),
    **dict.fromkeys(("old", "new", "at_risk"), 0),
    **dict.fromkeys(("seen", "states", "steps", "fingerprints", "job_ids"), "[]"),
    "planned": 1,
    **dict.fromkeys(("key", "subject"), ""),
    "rows": "[]",
    **dict.fromkeys(("most", "generation", "finished_at", "after_at"), 0),
    **dict.fromkeys(("cause", "evidence", "safe", "plan", "notes", "args", "token", "kind", "facts"), ""),
    **dict.fromkeys(
        ("restart", "same_deadline", "running", "corrected", "with_job", "take", "since", "quiet"), 0
    ),
    **dict.fromkeys(("until", "beyond"), 0),
    **dict.fromkeys(("after", "walk"), 0),
    **dict.fromkeys(("low", "high"), ""),
    "suspected": "[]",
    **dict.fromkeys(("leases", "holders"), "[]"),
    **dict.fromkeys(("relay", "route", "error", "note"), ""),
    **dict.fromkeys(("again", "delay", "at_capacity"), 0),
    **dict.fromkeys(("consumer", "message_id", "job_id"), ""),
    "sequences": "[]",
    **dict.fromkeys(("sequence", "tries"), 0),
    "outstanding": "[]",
    "resend": 1,
}

TABLES = (
    "holdfast_jobs",
    "holdfast_finished",
    "holdfast_stages",
    "holdfast_payloads",
    "holdfast_dead_letters",
    "holdfast_letter_steps",
    "holdfast_tickets",
    "holdfast_outbox_messages",
    "holdfast_dispatches",
    "message",
    "job",
    "payload",
    "letter",
)


@pytest.fixture
async def file(tmp_path: Path) -> sqlite3.Connection:
    made = SqliteFile(str(tmp_path / "jobs.db"))
    store = made.new_store()
    await store.open()
    await store.close()
    return sqlite3.connect(made.path)


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    sql = Queries("holdfast.stores.sqlite")[name]
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", VALUES)]


@pytest.mark.clause("JOB-9", "sqlite")
@pytest.mark.parametrize(
    "name", sorted(FILES - ELSEWHERE - ADDING - SUBMITTING - RARELY - RESTORING - LEASED)
)
def test_no_query_of_the_loop_scans_a_table_of_jobs(file: sqlite3.Connection, name: str) -> None:
    steps = plan(file, name)

    assert steps
    assert [step for step in steps if step.startswith("SCAN") and step.split()[1] in TABLES] == []


@pytest.mark.clause("JOB-9", "sqlite")
@pytest.mark.parametrize("name", IN_ORDER)
def test_no_query_over_many_jobs_sorts_them(file: sqlite3.Connection, name: str) -> None:
    steps = plan(file, name)

    assert [step for step in steps if "TEMP B-TREE" in step] == []
    assert any("USING INDEX" in step or "USING COVERING INDEX" in step for step in steps)


@pytest.mark.clause("JOB-9", "sqlite")
def test_a_claim_reads_the_index_of_ready_jobs(file: sqlite3.Connection) -> None:
    assert "SEARCH job USING INDEX holdfast_jobs_ready (queue=?)" in plan(file, "claimable")


SOME_JOBS = """
INSERT INTO holdfast.jobs (id, name, queue, owner, priority, created_at, queued_at, updated_at)
SELECT gen_random_uuid(), 'work', 'default', '', 0, now(), now(), now() FROM generate_series(1, 1000)
"""


@pytest.mark.clause("JOB-9", "postgres")
async def test_a_claim_on_postgres_reads_the_index_of_ready_jobs(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    sql = Queries("holdfast.stores.postgres")["claim"]
    await connection.execute(
        SOME_JOBS
    )  # of an empty table that autovacuum has just seen, every index is as good
    await connection.execute("ANALYZE holdfast.jobs")

    rows = await connection.fetch(f"EXPLAIN {sql}", "worker", LEASE, ["work"], "default", 9)

    await connection.close()
    steps = "\n".join(row[0] for row in rows)
    assert "Index Scan using jobs_ready" in steps
    assert "Seq Scan on jobs" not in steps
    assert "Sort" not in steps


SOME_ANNOUNCEMENTS = """
INSERT INTO holdfast.announcements (job_id, name, kind, generation, attempt, at, due_at)
SELECT gen_random_uuid(), 'work ' || number % 50, 'completed', 1, 1, now(), now() FROM generate_series(1, 5000) AS number
"""


async def test_announcements_on_postgres_are_found_by_the_names_of_known_jobs(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    sql = Queries("holdfast.stores.postgres")["take_announcements"]
    await connection.execute(SOME_ANNOUNCEMENTS)
    await connection.execute("ANALYZE holdfast.announcements")

    rows = await connection.fetch(f"EXPLAIN {sql}", ["work 1"], 9, LEASE)

    await connection.close()
    steps = "\n".join(row[0] for row in rows)
    assert "announcements_due" in steps
    assert "Seq Scan on announcements due" not in steps


ONE, MANY = "01900000-0000-7000-8000-000000000000", ["01900000-0000-7000-8000-000000000001"]

WAITING = {
    "lock_parent_and_children": (ONE, 1, MANY),
    "mark_children": (MANY,),
    "count_pending": (ONE, MANY),
    "ends": (MANY,),
}
"""What a job asks when it waits for others, with values for it."""


@pytest.mark.clause("JOB-9", "postgres")
@pytest.mark.parametrize("name", WAITING)
async def test_a_job_that_waits_for_others_on_postgres_finds_them_by_their_ids(
    postgres_dsn: str, name: str
) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    sql = Queries("holdfast.stores.postgres")[name]

    rows = await connection.fetch(f"EXPLAIN {sql}", *WAITING[name])

    await connection.close()
    steps = "\n".join(row[0] for row in rows)
    assert "jobs_pkey" in steps
    assert "Seq Scan" not in steps


@pytest.mark.clause("JOB-9", "sqlite")
@pytest.mark.parametrize("name", sorted(LEASED))
def test_what_a_worker_has_leased_is_found_among_what_runs(file: sqlite3.Connection, name: str) -> None:
    assert plan(file, name) == ["SCAN holdfast_jobs USING INDEX holdfast_jobs_leased"]


OF_A_RELAY = {
    "due_messages": "SEARCH message USING INDEX holdfast_outbox_pending (partition_number=? AND sequence<?)",
    "next_retry": "SEARCH holdfast_outbox_messages USING INDEX holdfast_outbox_retried (partition_number=? AND due_at>?)",
    "settle_messages": "SEARCH message USING INDEX sqlite_autoindex_holdfast_outbox_messages_1 (id=?)",
    "release_messages": "SEARCH message USING INDEX holdfast_outbox_held (held_by=?)",
    "release_route": "SEARCH message USING INDEX holdfast_outbox_held (held_by=?)",
    "message_to_probe": "SEARCH message USING INDEX holdfast_outbox_held (held_by=?)",
}
"""What a relay asks again and again, and the index that answers it."""


@pytest.mark.clause("OUT-3", "sqlite")
@pytest.mark.parametrize("name", OF_A_RELAY)
def test_a_relay_finds_its_messages_by_an_index(file: sqlite3.Connection, name: str) -> None:
    assert OF_A_RELAY[name] in plan(file, name)


MANY_MESSAGES = """
INSERT INTO holdfast.outbox_messages (aggregate_type, aggregate_id, message_type, payload, status, held_by, due_at)
SELECT 'Submission', (number % 500)::text, 'grading.request', '{}',
       CASE WHEN number <= 15000 THEN 'published' ELSE 'pending' END,
       CASE WHEN number BETWEEN 15001 AND 17000 THEN 'rabbitmq/vstep.exchange/other' END,
       CASE WHEN number BETWEEN 17001 AND 17500 THEN now() + interval '1 hour' END
  FROM generate_series(1, 20000) AS number
"""
NUMBERS, TOKENS = list(range(8)), [0] * 8

OF_A_RELAY_ON_POSTGRES = {
    "due_messages": ((NUMBERS, TOKENS, 100), {"outbox_pending", "outbox_retried", "outbox_unpublished"}),
    "settle_messages": (
        (MANY, ["published"], [0], None, None, NUMBERS, None, None),
        {"outbox_messages_pkey"},
    ),
    "release_messages": ((["message:x", "message:y"],), {"outbox_held"}),
    "release_route": (("rabbitmq/vstep.exchange/other", 1_000), {"outbox_held"}),
}
"""The statement, its values, and the indexes that answer it."""


@pytest.mark.clause("OUT-3", "postgres")
@pytest.mark.parametrize("status", ["published", "pending"])
@pytest.mark.parametrize("name", OF_A_RELAY_ON_POSTGRES)
async def test_a_relay_on_postgres_finds_its_messages_by_an_index_whatever_the_statistics_say(
    postgres_dsn: str, name: str, status: str
) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    values, indexes = OF_A_RELAY_ON_POSTGRES[name]
    await connection.execute(MANY_MESSAGES)
    await connection.execute("UPDATE holdfast.outbox_messages SET status = $1, held_by = NULL", status)
    await connection.execute("ANALYZE holdfast.outbox_messages")
    await connection.execute(MANY_MESSAGES)

    rows = await connection.fetch(f"EXPLAIN {Queries('holdfast.stores.postgres')[name]}", *values)

    await connection.close()
    steps = "\n".join(row[0] for row in rows)
    assert {index for index in indexes if index not in steps} == set()
    assert "Seq Scan on outbox_messages" not in steps
    assert "idx_outbox_status" not in steps


@pytest.mark.clause("OUT-3", "postgres")
async def test_a_relay_on_postgres_settles_messages_by_their_ids_though_the_statistics_are_stale(
    postgres_dsn: str,
) -> None:
    connection = await asyncpg.connect(postgres_dsn, server_settings=SESSION)
    await connection.execute("ANALYZE holdfast.outbox_messages")  # it is empty
    await connection.execute(MANY_MESSAGES)
    values = (MANY * 100, ["published"] * 100, [0] * 100, None, None, NUMBERS, None, None)

    rows = await connection.fetch(
        f"EXPLAIN {Queries('holdfast.stores.postgres')['settle_messages']}", *values
    )

    await connection.close()
    used = {index for row in rows for index in re.findall(r"(?:using|on) (\w*outbox_\w+)", row[0])}
    assert used - {"outbox_routes", "outbox_routes_pkey", "outbox_messages"} == {"outbox_messages_pkey"}
