"""Another program inserts messages with plain SQL: columns, defaults and indexes are a contract."""

import json
import sqlite3
from contextlib import closing

import asyncpg
import pytest

from holdfast.core.messages.outbox import MessageFilter, MessageStatus, published
from holdfast.ports import Store
from tests.contract.conftest import Database, SqliteFile
from tests.contract.test_outbox_store import due, leased, settled

pytestmark = pytest.mark.clause("OUT-2")

COLUMNS = [
    "id",
    "aggregate_id",
    "aggregate_type",
    "message_type",
    "payload",
    "status",
    "created_at",
    "processed_at",
    "retry_count",
    "error_message",
]

INSERT = """
INSERT INTO {table} (aggregate_id, aggregate_type, message_type, payload)
VALUES ('sub_1', 'Submission', 'grading.request', '{{"requestId": "r1"}}')
"""


async def asked(database: Database, sqlite: str, postgres: str) -> list[tuple[object, ...]]:
    """Ask as a program that knows nothing but the contract."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as file:
            rows = file.execute(sqlite).fetchall()
            file.commit()
        return rows
    connection = await asyncpg.connect(database.url)
    try:
        return [tuple(row) for row in await connection.fetch(postgres)]
    finally:
        await connection.close()


async def insert(database: Database) -> None:
    await asked(
        database,
        INSERT.format(table="holdfast_outbox_messages"),
        INSERT.format(table="holdfast.outbox_messages"),
    )


async def test_the_first_ten_columns_are_those_of_the_contract(database: Database, store: Store) -> None:
    rows = await asked(
        database,
        "SELECT name FROM pragma_table_info('holdfast_outbox_messages') ORDER BY cid",
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'holdfast' "
        "AND table_name = 'outbox_messages' ORDER BY ordinal_position",
    )

    assert [name for (name,) in rows][:10] == COLUMNS


async def test_every_other_column_has_a_default(database: Database, store: Store) -> None:
    rows = await asked(
        database,
        "SELECT name FROM pragma_table_info('holdfast_outbox_messages') "
        'WHERE "notnull" AND dflt_value IS NULL ORDER BY cid',
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'holdfast' "
        "AND table_name = 'outbox_messages' AND is_nullable = 'NO' AND column_default IS NULL "
        "AND is_identity = 'NO' AND is_generated = 'NEVER' ORDER BY ordinal_position",
    )

    assert {name for (name,) in rows} == {"aggregate_id", "aggregate_type", "message_type", "payload"}


async def test_status_and_aggregate_have_the_indexes_of_the_contract(
    database: Database, store: Store
) -> None:
    rows = await asked(
        database,
        "SELECT list.name, info.name FROM pragma_index_list('holdfast_outbox_messages') AS list, "
        "pragma_index_info(list.name) AS info WHERE list.name LIKE '%idx_outbox%' ORDER BY list.name, info.seqno",
        "SELECT index.relname, attribute.attname FROM pg_index JOIN pg_class AS index ON index.oid = indexrelid "
        "JOIN pg_attribute AS attribute ON attribute.attrelid = index.oid "
        "WHERE indrelid = 'holdfast.outbox_messages'::regclass AND index.relname LIKE 'idx_outbox%' "
        "ORDER BY index.relname, attribute.attnum",
    )

    assert [(str(name).removeprefix("holdfast_"), column) for name, column in rows] == [
        ("idx_outbox_aggregate", "aggregate_id"),
        ("idx_outbox_aggregate", "aggregate_type"),
        ("idx_outbox_status", "status"),
        ("idx_outbox_status", "created_at"),
    ]


async def test_a_message_of_plain_sql_is_pending_and_is_published(database: Database, store: Store) -> None:
    await insert(database)
    await insert(database)
    leases = await leased(store)

    first, second = await due(store, leases)
    await settled(store, leases, published(first))

    assert first.id != second.id
    assert (first.message_type, json.loads(first.payload)) == ("grading.request", {"requestId": "r1"})
    assert (first.message_id, first.headers, first.retry_count) == (None, "{}", 0)
    stored = await store.outbox.get(first.id)
    assert stored.status is MessageStatus.PUBLISHED
    assert stored.created_at is not None
    assert stored.processed_at is not None


async def test_messages_that_another_program_stored_without_a_time_are_listed_once(
    database: Database, store: Store
) -> None:
    for _ in range(3):
        await insert(database)
    newest, timed, oldest = await store.outbox.find(MessageFilter())
    change = f"SET created_at = NULL WHERE id <> '{timed.id}'"
    await asked(
        database, f"UPDATE holdfast_outbox_messages {change}", f"UPDATE holdfast.outbox_messages {change}"
    )

    found, page = [], MessageFilter(limit=1)
    while messages := await store.outbox.find(page):
        found += [message.id for message in messages]
        page = MessageFilter(limit=1, before=messages[0].id)

    assert found == [message.id for message in await store.outbox.find(MessageFilter())]
    assert sorted(found) == sorted([newest.id, timed.id, oldest.id])


@pytest.mark.parametrize(
    "change", ["aggregate_id = NULL", "aggregate_type = repeat('x', 65)", "status = 'sent'"]
)
async def test_what_breaks_the_contract_is_refused_by_the_database(
    database: Database, store: Store, change: str
) -> None:
    await insert(database)

    with pytest.raises((sqlite3.IntegrityError, asyncpg.PostgresError)):
        await asked(
            database,
            "UPDATE holdfast_outbox_messages SET " + change.replace("repeat('x', 65)", "hex(zeroblob(33))"),
            f"UPDATE holdfast.outbox_messages SET {change}",
        )


@pytest.mark.parametrize("aggregate", ["a", "äé", "x" * 64, "sub_1"])
async def test_every_aggregate_is_in_a_partition_that_a_relay_reads(
    database: Database, store: Store, aggregate: str
) -> None:
    await asked(
        database,
        INSERT.format(table="holdfast_outbox_messages").replace("sub_1", aggregate),
        INSERT.format(table="holdfast.outbox_messages").replace("sub_1", aggregate),
    )

    [message] = await due(store, await leased(store))

    assert message.aggregate_id == aggregate
