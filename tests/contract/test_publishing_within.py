"""Whatever the user's connection is, a message published within its transaction shares that transaction's fate."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.messages.outbox import MessageFilter
from holdfast.errors import WithinUnsupported
from tests.contract.callers import Caller, a_caller
from tests.contract.conftest import Database, PostgresDatabase, SqliteFile
from tests.contract.messages import GradingRequest, declare_request
from tests.contract.test_within_drivers import CALLERS, asked, orders

pytestmark = pytest.mark.clause("OUT-1")


@pytest.fixture(params=CALLERS)
def who(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The store, and the kind of the caller's connection."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def database(who: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if who[0] == "sqlite":
        return SqliteFile(str(tmp_path / "jobs.db"))
    return PostgresDatabase(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def caller(who: tuple[str, str], database: Database, hold: Holdfast) -> AsyncIterator[Caller]:
    declare_request(hold)
    await asked(database, "CREATE TABLE orders (number integer)")
    path = database.path if isinstance(database, SqliteFile) else None
    made = a_caller(who[1], dsn=None if path else database.url, path=path)
    await made.open()
    yield made
    await made.close()


async def messages(hold: Holdfast) -> list[str | None]:
    found = await hold.outbox.list(MessageFilter())
    return [message.message_id for message in found[::-1]]


async def test_a_commit_stores_the_callers_row_the_job_and_the_messages_together(
    hold: Holdfast, caller: Caller, database: Database
) -> None:
    @hold.job("greet")
    async def greet(name: str) -> str:
        return name

    await caller.begin()
    await caller.insert(7)
    job = await caller.submit(greet, "Ada")
    first = await caller.publish(hold, GradingRequest(requestId="r1", metadata={"name": "Jürgen's 100 %"}))
    second = await caller.publish(hold, GradingRequest(requestId="r2"))
    before = await messages(hold), await orders(database)
    await caller.commit()

    assert before == ([], [])
    assert (await messages(hold), await orders(database)) == ([first, second], [7])
    assert (await hold.read(job.id)).name == "greet"


async def test_a_rollback_leaves_neither_row_nor_message(
    hold: Holdfast, caller: Caller, database: Database
) -> None:
    await caller.begin()
    await caller.insert(7)
    await caller.publish(hold, GradingRequest(requestId="r1"))
    await caller.rollback()

    assert (await messages(hold), await orders(database)) == ([], [])


async def test_a_savepoint_that_is_rolled_back_takes_its_message_along_and_no_other(
    hold: Holdfast, caller: Caller, database: Database
) -> None:
    await caller.begin()
    kept = await caller.publish(hold, GradingRequest(requestId="r1"))
    await caller.savepoint()
    await caller.insert(2)
    await caller.publish(hold, GradingRequest(requestId="r2"))
    await caller.rollback_to()
    await caller.commit()

    assert (await messages(hold), await orders(database)) == ([kept], [])


async def test_what_is_no_connection_is_refused_and_nothing_is_stored(hold: Holdfast, caller: Caller) -> None:
    with pytest.raises(WithinUnsupported):
        await hold.publish(GradingRequest(requestId="r1"), within=object())

    assert await messages(hold) == []
