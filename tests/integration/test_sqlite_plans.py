"""What workers ask SQLite again and again: by index, at a price that neither history nor old statistics raise."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.stores.queries import Queries
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.database import connect

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clause("JOB-9", "sqlite")

PACKAGE = "holdfast.stores.sqlite"
SQL = Queries(PACKAGE)
NAMES = sorted(SQL)

FOR_PEOPLE = {
    "counts",
    "blocked_routes",
    "depths",
    "find_ended",
    "find_live",
    "find_messages",
    "find_purged",
    "held_jobs",
    "letter_counts",
    "letter_groups",
    "letters",
    "outbox_stats",
    "recent_queues",
}
"""Asked by people and those who watch, not by workers: these may look at everything. There are few dead letters."""

IN_TURN = {
    "letters_to_archive",
    "outdated_jobs",
    "purge_plans",
    "purge_tickets",
}
"""Asked by one worker once a minute: these walk no further than their limit, or over the letters that are kept."""

SHORT = {
    "paused_queues",
    "undelivered_ends",
    "take_write_lock",
    "provider_names",
    "redaction_key",
    "running_plans",
    "routes",
    "delete_relays",
    "lease_partitions",
    "leased_partitions",
    "partitions_of",
    "release_partitions",
    "routes_to_probe",
}
"""These read a table from its beginning that is always short, or no further than their limit, or not at all."""

OF_ONE_JOB_OR_BATCH = {
    "add_dead_messages",
    "add_messages",
    "archive_stages",
    "due_messages",
    "lease_partitions",
    "unchanged_letters",
    "letters_to_delete",
    "reclaim_history",
    "requeue_history",
    "reset_attempts",
    "signals",
    "stage_events",
    "stages",
    "plan_counts",
    "wake",
}
"""These put what belongs to one job, to one plan, to the relays, or to the jobs or messages of one batch, in order."""

DUE_OF_SEVERAL_NAMES = {"due_announcements"}
"""These sort what is due: the index has it by name, so that rows of jobs that no worker knows are never read."""

CROWD = 200_000
SMALL, LARGE = 1_000, 2_000
STEP = 10

_COUNTER = (
    "WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :end) "
)
_ID = "printf('%032x', n)"
_PAYLOAD = f"{_COUNTER} INSERT INTO holdfast_payloads (job_id, args) SELECT {_ID}, '{{}}' FROM numbers"


def _jobs(
    *,
    status: str = "queued",
    retry_after: str = "NULL",
    worker: str = "NULL",
    expires: str = "NULL",
    holder: str = "NULL",
) -> str:
    return f"""{_COUNTER}
        INSERT INTO holdfast_jobs (
            id, name, queue, owner, priority, created_at, queued_at, updated_at, status, retry_after, attempt,
            last_attempt, last_attempt_at, lease_token, leased_by, lease_expires_at, held_by)
        SELECT {_ID}, 'work', 'default', '', 0, 0, 0, 0, '{status}', {retry_after}, 1, 1, 0, 1, {worker}, {expires},
               {holder}
          FROM numbers"""


READY, PARKED, DUE, LEASED, LOST, FINISHED, HELD = (number * 10_000_000 for number in range(1, 8))
NOW = 1_000_000_000

KINDS = {
    READY: (_jobs(), _PAYLOAD),
    PARKED: (_jobs(retry_after=f"{NOW} + n"), _PAYLOAD),
    DUE: (_jobs(retry_after="n"), _PAYLOAD),
    LEASED: (_jobs(status="processing", worker="'worker'", expires=f"{NOW} + 1"), _PAYLOAD),
    LOST: (_jobs(status="processing", worker="'gone'", expires="1"), _PAYLOAD),
    FINISHED: (
        f"""{_COUNTER}
        INSERT INTO holdfast_finished (
            id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
            created_at, queued_at, finished_at)
        SELECT {_ID}, 'work', 'default', '', 'completed', 0, 1, 1, 1, 0, 0, 0, 0, 0 FROM numbers""",
        _PAYLOAD,
    ),
    HELD: (_jobs(retry_after=f"{NOW} + n", holder="'provider ' || (n % 3)"), _PAYLOAD),
}
"""Where the ids of each kind of jobs begin, and what makes them."""


def fill(connection: sqlite3.Connection, first: int, count: int) -> None:
    connection.execute("BEGIN")
    for statement in KINDS[first]:
        connection.execute(statement, {"first": first, "end": first + count})
    connection.execute("COMMIT")


def with_schema(path: Path) -> sqlite3.Connection:
    """Open a file as the store does, with tables in it."""
    connection = connect(str(path), writes=True)
    connection.execute("BEGIN IMMEDIATE")
    schema.apply(connection)
    connection.execute("COMMIT")
    return connection


def reopened(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Open the file again: statistics are read when it is opened."""
    connection.close()
    return connect(str(path), writes=True)


@pytest.fixture(scope="module", params=[0, 1, 3, 30, 3_000], ids="analysed with {} jobs".format)
def analysed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A file that was analysed while it had some jobs of each kind; with none, there are no statistics."""
    path = tmp_path_factory.mktemp("analysed") / "jobs.db"
    connection = with_schema(path)
    for first in KINDS if request.param else ():
        fill(connection, first, request.param)
    connection.execute("ANALYZE")
    connection = reopened(connection, path)
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    """How SQLite would carry out a statement, step by step."""
    values = dict.fromkeys(re.findall(r":(\w+)", SQL[name]))
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FOR_PEOPLE | SHORT | IN_TURN])
def test_no_statement_of_a_worker_scans_a_table(analysed: sqlite3.Connection, name: str) -> None:
    scans = [step for step in plan(analysed, name) if step.startswith("SCAN")]

    # A batch comes as JSON, and is read from end to end; a subquery or list was made of it before. The index of leases
    # holds what runs now: a worker walks over it when its event loop was blocked, or an answer was lost.
    assert [
        step
        for step in scans
        if "VIRTUAL TABLE" not in step
        and not re.search(
            r"\(subquery|want$|parent$|holders$|leased$|partition$|chosen$|aggregate$|CONSTANT ROW$|USING INDEX holdfast_jobs_leased$",
            step,
        )
    ] == []


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in FOR_PEOPLE | OF_ONE_JOB_OR_BATCH | DUE_OF_SEVERAL_NAMES]
)
def test_no_statement_of_a_worker_sorts_a_table(analysed: sqlite3.Connection, name: str) -> None:
    assert [step for step in plan(analysed, name) if "TEMP B-TREE" in step] == []


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A file with jobs of all kinds, most of them finished or parked, analysed when it had one of each."""
    path = tmp_path_factory.mktemp("crowded") / "jobs.db"
    connection = with_schema(path)
    for first in KINDS:
        fill(connection, first, 1)
    connection.execute("ANALYZE")
    for table in ("jobs", "finished", "payloads"):
        connection.execute(f"DELETE FROM holdfast_{table}")
    connection = reopened(connection, path)
    for first in KINDS:
        fill(connection, first, CROWD if first in (PARKED, FINISHED, HELD) else 2 * LARGE)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A file with ready jobs, and nothing else."""
    with closing(with_schema(tmp_path_factory.mktemp("alone") / "jobs.db")) as connection:
        fill(connection, READY, 2 * LARGE)
        yield connection


Work = Callable[[sqlite3.Connection], Any]


def steps(connection: sqlite3.Connection, work: Work) -> int:
    """Count the steps of SQLite's machine that *work* takes, and take the work back."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += STEP
        return 0

    connection.execute("BEGIN IMMEDIATE")
    connection.set_progress_handler(counted, STEP)
    try:
        work(connection)
    finally:
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
    return count


def a_claim_of(limit: int) -> Work:
    def claim(connection: sqlite3.Connection) -> None:
        [ids, _] = connection.execute(
            SQL["claimable"], {"queue": "default", "limit": limit, "now": NOW, "knows": '["work"]'}
        ).fetchone()
        assert len(json.loads(ids)) == limit
        taken = {"worker": "worker", "lease": 1, "now": NOW, "ids": ids}
        assert connection.execute(SQL["claim"], taken).rowcount == limit

    return claim


def test_a_claim_takes_the_same_steps_beside_a_crowd(
    alone: sqlite3.Connection, crowded: sqlite3.Connection
) -> None:
    few, many = (steps(connection, a_claim_of(100)) for connection in (alone, crowded))

    assert few > 100
    assert many <= 1.5 * few


def ids(first: int, count: int) -> list[str]:
    return [f"{first + number:032x}" for number in range(count)]


def rows(count: int, *columns: Any) -> dict[str, Any]:
    """A batch of changes to leased jobs: id, token and columns that are alike for all."""
    named = ids(LEASED, count)
    return {"batch": json.dumps([[job, 1, *columns] for job in named]), "ids": json.dumps(named), "now": NOW}


def lost(count: int) -> dict[str, Any]:
    """Jobs that lost their worker, in which one ran under suspicion."""
    return {"ids": json.dumps(ids(LOST, count)), "suspected": '["worker"]', "now": NOW}


A_STAGE = ("fetch", "#1", "done", 1, "", "1", None, None, "")

LOOP: dict[str, Callable[[int], dict[str, Any]]] = {
    "count_still_leased": rows,
    "still_leased": rows,
    "extend": lambda n: {**rows(n), "lease": 1},
    "cancel_requested": rows,
    "begin": rows,
    "requeue": lambda n: rows(n, 5, 0, "retry", "{}"),
    "requeue_history": lambda n: rows(n, 5, 0, "retry", "{}"),
    "reset_attempts": lambda n: rows(n, *A_STAGE),
    "store_stages": lambda n: rows(n, *A_STAGE),
    "lease_outcomes": rows,
    "overdue_among": rows,
    "finish": lambda n: rows(n, "completed", "1", None, None),
    "finish_overdue": lambda n: {**rows(n, "completed", "1", None, None), "timeout": "{}"},
    "delete_jobs": rows,
    "stages": rows,
    "promote": lambda n: {"limit": n, "now": NOW},
    "expired_leases": lambda n: {"limit": n, "now": NOW},
    "suspected_workers": lost,
    "record_lost_workers": lost,
    "reclaim": lost,
    "reclaim_history": lost,
    "release_held": lambda n: {"holder": "provider 1", "limit": n, "now": NOW},
    "ended": lambda n: {"ids": json.dumps(ids(FINISHED, n))},
    "known_jobs": lambda n: {"ids": json.dumps(ids(FINISHED, n))},
}


@pytest.mark.parametrize("name", LOOP)
def test_twice_the_batch_takes_twice_the_steps(crowded: sqlite3.Connection, name: str) -> None:
    small, large = (steps(crowded, asking(name, LOOP[name](count))) for count in (SMALL, LARGE))

    assert large >= 1.5 * small  # both did what they were asked to
    assert large <= 2.5 * small


@pytest.mark.parametrize("name", ["next_due", "cancel_requests", "holders"])
def test_a_question_without_a_batch_takes_few_steps(crowded: sqlite3.Connection, name: str) -> None:
    assert steps(crowded, asking(name, {"now": NOW, "worker": "worker"})) < 1_000


_TICKETS = f"""{_COUNTER}
    INSERT INTO holdfast_tickets (id, kind, rank, raised_at, facts, due_at)
    SELECT {_ID}, 'dead letter', n % 3, 0, '{{}}', {NOW} + CASE WHEN n < 30 THEN -1 ELSE 1 END FROM numbers"""


@pytest.mark.parametrize(("limit", "due"), [(15, 15), (40, 30)])
def test_taking_tickets_looks_at_none_that_is_put_off(tmp_path: Path, limit: int, due: int) -> None:
    with closing(with_schema(tmp_path / "jobs.db")) as connection:
        connection.execute(_TICKETS, {"first": 0, "end": 10_000})
        ask = asking("due_tickets", {"now": NOW, "limit": limit})

        ranks = [int(row["id"], 16) % 3 for row in ask(connection)]

        assert (len(ranks), ranks) == (due, sorted(ranks))
        assert steps(connection, ask) < 1_500


def asking(name: str, values: dict[str, Any]) -> Work:
    """Carry out a statement with those of *values* that it names."""
    named = {key: values[key] for key in re.findall(r":(\w+)", SQL[name])}
    return lambda connection: connection.execute(SQL[name], named).fetchall()
