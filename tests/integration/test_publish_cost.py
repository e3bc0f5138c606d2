"""What a message costs the caller's transaction on PostgreSQL: one statement, and no batch is unnested for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.stores.queries import Queries
from tests.integration.cli_process import apply_schema

if TYPE_CHECKING:
    from tests.servers import Prepare


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


class Placed(BaseModel):
    """A message."""

    number: int


async def test_a_job_and_a_message_in_a_transaction_are_one_statement_each(postgres_dsn: str) -> None:
    hold = Holdfast(postgres_dsn)
    hold.broker("local", print)
    hold.message("placed")(Placed)
    asked: list[str] = []

    @hold.job("ship")
    async def ship(number: int) -> None: ...

    connection = await asyncpg.connect(postgres_dsn)
    connection.add_query_logger(lambda record: asked.append(record.query))
    async with hold, connection.transaction():
        await ship.options(within=connection).submit(7)
        await hold.publish(Placed(number=7), within=connection)
    await connection.close()

    sql = Queries("holdfast.stores.postgres")
    assert asked == ["BEGIN;", sql["submit_one"], sql["add_message"], "COMMIT;"]
