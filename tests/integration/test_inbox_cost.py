"""What a reception asks PostgreSQL: by index, at a cost that the messages which were received before do not raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration import crowds
from tests.integration.plans import carry_out, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.integration.plans import Value
    from tests.servers import PostgresServer

RECEIVED = 50_000
BATCH = 100
KNOWN = [f"m-{number:06}" for number in range(0, BATCH * 7, 7)]
NEW = [f"n-{number:06}" for number in range(BATCH)]
JOB = "01900000-0000-7000-8000-000000000000"

FILL = f"""
INSERT INTO holdfast.inbox_messages (consumer, message_id, fingerprint, job_id, received_at)
SELECT 'grading', 'm-' || lpad(n::text, 6, '0'), 'print', gen_random_uuid(), now() - n * interval '1 second'
  FROM generate_series(1, {RECEIVED}) AS n
"""

RECEPTION: dict[str, tuple[Sequence[Value | Sequence[Value]], set[str]]] = {
    "record_messages": (["grading", NEW, ["print"] * BATCH, [None] * BATCH], set()),
    "repeat_messages": (["grading", KNOWN], {"inbox_messages_pkey"}),
    "name_jobs": (["grading", KNOWN, [JOB] * BATCH], {"inbox_messages_pkey"}),
    "forget_messages": (["grading", KNOWN], {"inbox_messages_pkey"}),
    "purge_inbox": (["13 hours", BATCH], {"inbox_by_age", "inbox_messages_pkey"}),
}
"""The values of each statement, and the indexes that it looks rows up in."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["never analysed", "analysed"])
async def crowded_dsn(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> AsyncIterator[str]:
    """A database that has received many messages."""
    dsn = postgres_server.create_database()
    connection = await crowds.prepared(dsn)
    await connection.execute(FILL)
    if request.param == "analysed":
        await crowds.analyse(connection)
    await connection.close()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.mark.parametrize("name", RECEPTION)
async def test_a_reception_finds_its_messages_by_index(crowded_dsn: str, name: str) -> None:
    values, indexes = RECEPTION[name]
    connection = await connect(crowded_dsn)
    try:
        plan = await carry_out(connection, name, *values)
    finally:
        await connection.close()

    assert plan.indexes == indexes
    assert plan.unguided == []
    assert plan.nodes("Seq Scan") + plan.nodes("Hash Join") + plan.nodes("Merge Join") == []
    assert plan.most_sorted <= BATCH
    assert plan.visits <= 20 * BATCH
