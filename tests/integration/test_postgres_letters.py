"""What is PostgreSQL's own about dead letters: who waits for whom, poolers, walks, and failures that it cannot read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast.core.dead_letters.letter import Cause, LetterState, remediate, triage, validate
from holdfast.core.dead_letters.replay_plan import Phase, Plan
from holdfast.core.errors import JobNotFound
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, complete
from holdfast.ports.store import Settled
from holdfast.stores.postgres.dead_letters import purging
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_job
from tests.contract.steps import a_completed_job, a_failed_job, claimed
from tests.integration.plans import carry_out, connect
from tests.poolers import PgBouncer
from tests.servers import ServerMissingError, in_ci

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from holdfast.core.jobs.job import Claim
    from tests.servers import PostgresServer

    Act = Callable[[PostgresStore, str], Coroutine[object, object, None]]

TIMEOUT = 30.0
TOKEN = "p1"
NOW = timedelta(0)

WAITING = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'holdfast' AND wait_event_type = 'Lock'
"""


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(postgres_dsn)
    await made.apply_schema()
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in front of the tests' PostgreSQL."""
    try:
        made = PgBouncer(postgres_server.dsn()).__enter__()
    except ServerMissingError as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))
    yield made
    made.close()


@pytest.fixture
async def pooled(pooler: PgBouncer, postgres_dsn: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """A store behind the pooler, on the database of `store`."""
    made = PostgresStore(pooler.dsn(postgres_dsn), pooled=True)
    await made.open()
    yield made
    await made.close()


async def planned(store: PostgresStore, *claims: Claim) -> None:
    """Take the letters of failed jobs to the point where they wait for their turn in a plan."""
    plan = Plan(TOKEN, "ann", made_at=0, letters=len(claims))
    seen = [(claim.id, 1) for claim in claims]
    steps = [
        triage(Cause.TRANSIENT, actor="ann"),
        remediate("the service is back", actor="ann"),
        validate("it writes nothing", TOKEN, actor="ann"),
    ]
    moved = await store.dead_letters.move(seen, steps, plan=plan)
    assert sorted(moved) == sorted(claim.id for claim in claims)


async def replay(store: PostgresStore, take: int) -> list[str] | None:
    row = await store.replay_plans.get(TOKEN)
    return await store.replay_plans.advance(row, replace(Plan.load(row.state), phase=Phase.PACED), take=take)


async def test_a_failure_that_the_database_cannot_read_does_not_keep_its_job_from_ending(
    store: PostgresStore,
) -> None:
    await store.submit([a_job()])
    claim = await claimed(store)
    unreadable = Failure.of(ErrorClass.BUG, "no text in PostgreSQL has \x00")

    end = Finish(claim.id, claim.token, Status.FAILED, failure=unreadable)
    assert await store.settle("worker", [end]) == [Settled.WRITTEN]

    letter = await store.dead_letters.get(claim.id)
    assert (letter.state, letter.failure.message) == (LetterState.NEW, unreadable.message)


async def replays(store: PostgresStore, _: str) -> None:
    assert await replay(store, 1)


async def retries(store: PostgresStore, job_id: str) -> None:
    await store.retry(job_id)


async def forgets(store: PostgresStore, job_id: str) -> None:
    assert await store.retention.delete_letters([(job_id, 2)]) == [job_id]


@pytest.mark.parametrize("act", [replays, retries, forgets])
async def test_a_letter_is_locked_after_its_job_as_the_table_does_it(
    postgres_dsn: str, store: PostgresStore, act: Act
) -> None:
    claim = await a_failed_job(store)
    await planned(store, claim)
    watcher, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    await other.execute("BEGIN")
    await other.execute("UPDATE holdfast.finished SET late_at = finished_at WHERE id = $1", claim.id)

    acting = asyncio.create_task(act(store, claim.id))
    async with asyncio.timeout(TIMEOUT):
        while not await watcher.fetchval(WAITING):
            await asyncio.sleep(0.01)
    # What a result does that is accepted late. Were the letter locked by now, each would wait for the other.
    await other.execute("UPDATE holdfast.dead_letters SET holds = holds + 1 WHERE job_id = $1", claim.id)
    await other.execute("COMMIT")

    await acting
    await watcher.close()
    await other.close()


async def test_a_letter_that_leaves_its_plan_while_its_turn_comes_is_not_replayed(
    postgres_dsn: str, store: PostgresStore
) -> None:
    claim = await a_failed_job(store)
    await planned(store, claim)
    watcher, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    await other.execute("BEGIN")
    await other.execute(
        "UPDATE holdfast.dead_letters SET state = 'triaged', plan = NULL, version = version + 1 WHERE job_id = $1",
        claim.id,
    )

    acting = asyncio.create_task(replay(store, 1))
    async with asyncio.timeout(TIMEOUT):
        while not await watcher.fetchval(WAITING):
            await asyncio.sleep(0.01)
    await other.execute("COMMIT")

    assert await acting == []
    assert (await store.get(claim.id)).status is Status.FAILED
    assert (await store.dead_letters.get(claim.id)).state is LetterState.TRIAGED
    await watcher.close()
    await other.close()


async def test_a_letter_whose_plan_begins_while_it_is_forgotten_stays(
    postgres_dsn: str, store: PostgresStore
) -> None:
    claim = await a_failed_job(store)
    await planned(store, claim)
    watcher, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    await other.execute("BEGIN")
    await other.execute("UPDATE holdfast.plans SET running = true, version = version + 1")

    acting = asyncio.create_task(store.retention.delete_letters([(claim.id, 2)]))
    async with asyncio.timeout(TIMEOUT):
        while not await watcher.fetchval(WAITING):
            await asyncio.sleep(0.01)
    # What the plan does next. Were the job locked by now, each would wait for the other.
    await other.execute("UPDATE holdfast.finished SET late_at = finished_at WHERE id = $1", claim.id)
    await other.execute("COMMIT")

    assert await acting == []
    assert (await store.get(claim.id)).status is Status.FAILED
    assert (await store.dead_letters.get(claim.id)).state is LetterState.VALIDATED
    await watcher.close()
    await other.close()


async def test_a_letter_takes_every_step_behind_a_pooler(pooled: PostgresStore) -> None:
    claims = [await a_failed_job(pooled) for _ in range(2)]
    await planned(pooled, *claims)

    first, second = sorted(claim.id for claim in claims)
    assert await replay(pooled, 1) == [first]
    again = await claimed(pooled)
    assert await pooled.settle("worker", [complete(again, "1")]) == [Settled.WRITTEN]
    assert (await pooled.dead_letters.get(first)).state is LetterState.VERIFIED
    records = await pooled.retention.letter_records([second])
    assert await pooled.retention.delete_letters([(second, 2)]) == []
    row = await pooled.replay_plans.get(TOKEN)
    assert await pooled.replay_plans.advance(row, replace(Plan.load(row.state), phase=Phase.DONE)) == []
    assert await pooled.retention.delete_letters([(second, 2)]) == [second]
    assert await pooled.retention.restore_letters(records) == [second]
    assert (await pooled.retry(second)).generation == 2
    assert (await pooled.dead_letters.get(second)).state is LetterState.CLOSED


@pytest.fixture
def short_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a purge look at one row for each that it may delete."""
    monkeypatch.setattr(purging, "LEAST", 1)
    monkeypatch.setattr(purging, "LOOKS", 1)


@pytest.mark.usefixtures("short_walks")
async def test_a_purge_goes_on_where_it_has_come_to(store: PostgresStore) -> None:
    for _ in range(2):
        await a_failed_job(store)
    done = await a_completed_job(store)

    purged = [await store.retention.purge_finished(older_than=NOW, limit=1) for _ in range(3)]

    assert purged == [0, 0, 1]  # two letters kept their jobs
    with pytest.raises(JobNotFound):
        await store.get(done.id)


@pytest.mark.usefixtures("short_walks")
async def test_a_purge_that_comes_to_the_end_begins_again(postgres_dsn: str, store: PostgresStore) -> None:
    claim = await a_failed_job(store)
    await store.retry(claim.id)
    assert await store.settle("worker", [complete(await claimed(store), "1")]) == [Settled.WRITTEN]
    assert await store.retention.purge_finished(older_than=NOW, limit=1) == 0
    other = await asyncpg.connect(postgres_dsn)
    await other.execute("DELETE FROM holdfast.dead_letters WHERE job_id = $1", claim.id)
    await other.close()

    assert await store.retention.purge_finished(older_than=NOW, limit=1) == 1


@pytest.mark.usefixtures("short_walks")
async def test_keys_are_purged_a_piece_at_a_time(store: PostgresStore) -> None:
    for key in ("a", "b", "c"):
        await a_completed_job(store, a_job(key=key, subject=key, version=1))
    assert await store.retention.purge_finished(older_than=NOW, limit=9) == 3

    purged = [await store.retention.purge_keys(older_than=NOW, limit=2) for _ in range(4)]

    assert purged == [4, 2, 0, 0], "those of two jobs at once, and each has a key and a version"


async def test_an_id_that_carries_no_time_is_purged_all_the_same(store: PostgresStore) -> None:
    for odd in ("00000000-0000-4000-8000-000000000001", "fffffff0-0000-4000-8000-000000000001"):
        await a_completed_job(store, a_job()._replace(id=odd))

    assert await store.retention.purge_finished(older_than=NOW, limit=9) == 2


async def test_a_job_younger_than_the_limit_is_not_even_looked_at(
    postgres_dsn: str, store: PostgresStore
) -> None:
    for _ in range(3):
        await a_completed_job(store)
    connection = await connect(postgres_dsn)

    plan = await carry_out(
        connection, "purge_finished", "1 day", 9, 1000, "00000000-0000-0000-0000-000000000000"
    )

    await connection.close()
    walked = [node for node in plan.nodes() if node.get("Subplan Name") == "CTE walked"]
    assert [node["Actual Rows"] for node in walked] == [0]


TICKETS = """
INSERT INTO holdfast.tickets (id, kind, rank, raised_at, due_at)
SELECT n::text, 'dead letter', n % 3, now, now + CASE WHEN n < 30 THEN interval '-1 hour' ELSE interval '1 hour' END
  FROM generate_series(0, 9999) AS n, holdfast.clock
"""


async def test_taking_tickets_looks_at_none_that_is_put_off_and_sorts_what_is_taken_alone(
    postgres_dsn: str, store: PostgresStore
) -> None:
    connection = await connect(postgres_dsn)
    await connection.execute(TICKETS)
    await connection.execute("ANALYZE holdfast.tickets")

    plan = await carry_out(connection, "take_tickets", 15, "1 minute")

    await connection.execute("DELETE FROM holdfast.tickets")
    await connection.close()
    [walk] = [node for node in plan.nodes("Index Scan") if node["Index Name"] == "tickets_due"]
    assert walk["Actual Rows"] == 15
    assert "rank" in walk["Index Cond"]
    assert "due_at" in walk["Index Cond"]
    assert walk.get("Rows Removed by Filter", 0) == 0
    assert plan.most_sorted == 15


LOOP = {
    "running_plans": (),
    "plan_counts": (TOKEN,),
    "letters_to_replay": (TOKEN, 9),
    "take_tickets": (9, "1 minute"),
    "groups_notified": (["a"], "1 hour"),
    "count_letters_since": ("1 day",),
}
"""What a worker asks again and again, with values for it."""


@pytest.mark.parametrize("name", LOOP)
async def test_what_workers_ask_again_and_again_is_answered_from_an_index(
    postgres_dsn: str, store: PostgresStore, name: str
) -> None:
    connection = await connect(postgres_dsn)

    plan = await carry_out(connection, name, *LOOP[name])

    await connection.close()
    assert plan.nodes("Seq Scan") == []
    assert plan.indexes
