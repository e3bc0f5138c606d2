"""What workers ask PostgreSQL again and again: by index and primary key, and twice the batch for twice the price."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration import crowds
from tests.integration.plans import Plan, Value, carry_out, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.servers import PostgresServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.clause("JOB-9", "postgres")]

CROWD = 20_000
SMALL, LARGE = 1_000, 2_000

Values = list["Value | Sequence[Value]"]
Arguments = Callable[[int], Values]


def held(count: int, *columns: Value) -> Values:
    """The ids and tokens of leased jobs, others for each size of batch, and columns that are alike for all."""
    return [crowds.LEASED.ids(count, count), [1] * count, *([value] * count for value in columns)]


def ended(count: int) -> Values:
    return [crowds.FINISHED.ids(0, count)]


LOOP: dict[str, tuple[Arguments, set[str]]] = {
    "claim": (
        lambda n: ["worker", "90 s", ["work"], "default", n],
        {"jobs_ready", "jobs_pkey", "payloads_pkey"},
    ),
    "stages": (lambda n: [crowds.LEASED.ids(n, n)], {"stages_pkey"}),
    "finish": (lambda n: [*held(n, "1"), None, None, None, ["completed"], "{}"], {"jobs_pkey"}),
    "lease_outcomes": (held, {"finished_pkey", "jobs_pkey"}),
    "requeue": (lambda n: [*held(n, "5 s", 0, "retry", "{}"), None, None, None, [False] * n], {"jobs_pkey"}),
    "store_stages": (
        lambda n: [*held(n, "fetch", "#1", "done", 1, "", "1"), None, None, [""] * n],
        {"jobs_pkey"},
    ),
    "extend": (lambda n: [*held(n), "90 s"], {"jobs_pkey"}),
    "begin": (held, {"jobs_pkey"}),
    "promote": (lambda n: [n], {"jobs_parked", "jobs_pkey"}),
    "reclaim": (
        lambda n: [n],
        {"jobs_leased", "jobs_pkey", "jobs_suspected", "lost_workers_pkey", "lost_workers_by_age"},
    ),
    "release_held": (lambda n: ["provider 1", n], {"jobs_held", "jobs_pkey"}),
    "holders": (lambda _: [], {"jobs_held"}),
    "cancel_requests": (lambda _: ["worker"], {"jobs_to_cancel"}),
    "await_ends": (lambda n: [crowds.LEASED.ids(n, n)], {"jobs_pkey"}),
    "ended": (ended, {"finished_pkey", "job_stubs_pkey"}),
    "known_jobs": (ended, {"jobs_pkey", "finished_pkey", "job_stubs_pkey"}),
}
"""The statements, what they are given for a batch of some size, and the indexes that serve them."""


LEASED: dict[str, tuple[Values, set[str]]] = {
    "leased_to": (["worker"], {"jobs_leased"}),
    "extend_all": (["worker", "90 s"], {"jobs_leased", "jobs_pkey"}),
}
"""What a worker asks when something went wrong: it walks over the index of what runs now, and no further."""


async def filled(connection: crowds.Connection) -> None:
    await crowds.fill(connection, crowds.FINISHED, CROWD)
    for kind in (crowds.PARKED, crowds.HELD):
        await crowds.fill(connection, kind, CROWD)
    for kind in (crowds.READY, crowds.DUE, crowds.LOST):
        await crowds.fill(connection, kind, LARGE)
    await crowds.fill(connection, crowds.LEASED, 2 * LARGE)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["empty", "stale", "fresh"])
async def crowded_dsn(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> AsyncIterator[str]:
    """A database whose tables were never analysed, or when they had a few rows, or once they were full."""
    dsn = postgres_server.create_database()
    connection = await crowds.prepared(dsn)
    if request.param == "stale":
        await crowds.analyse_while_tiny(connection)
    await filled(connection)
    if request.param == "fresh":
        await crowds.analyse(connection)
    await connection.close()
    yield dsn
    postgres_server.drop_database(dsn)


async def carried_out(dsn: str, name: str, count: int) -> Plan:
    connection = await connect(dsn)
    try:
        return await carry_out(connection, name, *LOOP[name][0](count))
    finally:
        await connection.close()


@pytest.mark.parametrize("name", LOOP)
async def test_what_a_worker_asks_is_found_by_index(crowded_dsn: str, name: str) -> None:
    plan = await carried_out(crowded_dsn, name, SMALL)

    assert plan.indexes == LOOP[name][1]
    assert plan.unguided == []
    assert plan.nodes("Hash Join") + plan.nodes("Merge Join") == []
    assert plan.nodes("Seq Scan") == []
    assert plan.most_sorted <= SMALL  # the batch may be put in order, never a table


@pytest.mark.parametrize("name", LEASED)
async def test_what_a_worker_has_leased_is_found_among_what_runs(crowded_dsn: str, name: str) -> None:
    connection = await connect(crowded_dsn)
    try:
        plan = await carry_out(connection, name, *LEASED[name][0])
    finally:
        await connection.close()

    assert plan.indexes == LEASED[name][1]
    assert plan.nodes("Seq Scan") + plan.nodes("Hash Join") + plan.nodes("Merge Join") == []


@pytest.mark.parametrize("name", [name for name in LOOP if name not in ("cancel_requests", "holders")])
async def test_twice_the_batch_is_twice_the_work(crowded_dsn: str, name: str) -> None:
    small, large = [await carried_out(crowded_dsn, name, count) for count in (SMALL, LARGE)]

    # Both did what they were asked to. Some tests before roll back what they write, which is visited along.
    assert large.visits >= 1.4 * small.visits
    assert large.visits <= 2.5 * small.visits
    assert large.buffers <= 2.5 * small.buffers


@pytest.mark.parametrize("name", ["extend", "begin"])
async def test_a_batch_asks_the_clock_once(crowded_dsn: str, name: str) -> None:
    plan = await carried_out(crowded_dsn, name, SMALL)

    reads = [node["Actual Loops"] for node in plan.nodes() if node.get("Relation Name") == "meta"]
    assert reads == [1]


async def test_holders_are_found_without_looking_at_their_jobs(crowded_dsn: str) -> None:
    plan = await carried_out(crowded_dsn, "holders", SMALL)

    assert plan.visits < 50
