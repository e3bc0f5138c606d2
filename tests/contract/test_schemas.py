"""Applications that share a PostgreSQL database, each with a schema of its own, see nothing of each other."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import asyncpg
import pytest

from holdfast import Backoff, Holdfast, JobFilter, JobFunction
from holdfast.errors import ConfigError, SchemaMissing
from holdfast.ports import Hint, HintKind
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_job
from tests.contract.callers import POSTGRES, Django, a_caller
from tests.contract.steps import TIMEOUT

DROP = 'DROP SCHEMA IF EXISTS "order" CASCADE'


async def ask(dsn: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@pytest.fixture
async def other_schema(postgres_dsn: str) -> AsyncIterator[str]:
    """A second schema beside the default one, with a name that SQL reserves."""
    store = PostgresStore(postgres_dsn, schema="order")
    await store.apply_schema()
    await store.close()
    yield "order"
    await ask(postgres_dsn, DROP)


@pytest.fixture
async def holds(postgres_dsn: str, other_schema: str) -> AsyncIterator[tuple[Holdfast, Holdfast]]:
    """Two applications: one in the default schema, one in the other."""
    first = Holdfast(postgres_dsn, attempts=1, backoff=Backoff.none())
    second = Holdfast(postgres_dsn, schema=other_schema, attempts=1, backoff=Backoff.none())
    async with first, second:
        yield first, second


def declared(hold: Holdfast, answer: str) -> JobFunction[[str], str]:
    @hold.job("greet")
    async def greet(name: str) -> str:
        return f"{answer} {name}"

    return greet


async def test_each_runs_its_own_jobs_of_the_same_name(holds: tuple[Holdfast, Holdfast]) -> None:
    first, second = holds
    one, two = declared(first, "hello"), declared(second, "ahoy")

    async with first.worker(poll=0.05), second.worker(poll=0.05):
        mine = await one.options(key="k").submit("Ada")
        theirs = await two.options(key="k").submit("Ada")
        answers = [await job.result(timeout=TIMEOUT) for job in (mine, theirs)]

    assert answers == ["hello Ada", "ahoy Ada"]
    assert not theirs.existing
    assert [job.id for job in await first.find()] == [mine.id]
    assert [job.id for job in await second.find()] == [theirs.id]


async def test_providers_queues_letters_and_clocks_are_apart(holds: tuple[Holdfast, Holdfast]) -> None:
    first, second = holds
    for hold in holds:
        hold.provider("model")

    await first.providers.pause("model", actor="ada")
    await first.queues.pause("mail", actor="ada")

    assert (await first.providers.show("model")).state == "paused"
    assert (await second.providers.show("model")).state == "closed"
    assert await second.runtime.store.queues.paused() == []
    assert await second.runtime.store.redaction_key() != await first.runtime.store.redaction_key()


async def test_a_failed_job_leaves_its_letter_in_its_own_schema(holds: tuple[Holdfast, Holdfast]) -> None:
    first, second = holds

    @second.job("bad")
    async def bad() -> None:
        raise ValueError

    async with second.worker(poll=0.05):
        job = await bad.submit()
        await second.wait(job.id, timeout=TIMEOUT)

    assert [letter.job_id for letter in await second.dead_letters.list()] == [job.id]
    assert await first.dead_letters.list() == []


async def test_hints_reach_their_own_application_only(postgres_dsn: str, other_schema: str) -> None:
    first, second = PostgresStore(postgres_dsn), PostgresStore(postgres_dsn, schema=other_schema)
    received: dict[str, asyncio.Queue[Hint]] = {"first": asyncio.Queue(), "second": asyncio.Queue()}
    first.listen(received["first"].put_nowait, (HintKind.READY,))
    second.listen(received["second"].put_nowait, (HintKind.READY,))
    async with asyncio.timeout(TIMEOUT):
        for queue in received.values():
            assert (await queue.get()).subject == ""  # it listens from now on

        await second.submit([a_job(queue="theirs")])
        await first.submit([a_job(queue="ours")])

        assert await received["second"].get() == Hint(HintKind.READY, "theirs")
        assert await received["first"].get() == Hint(HintKind.READY, "ours")
    await first.close()
    await second.close()


@pytest.mark.parametrize("kind", POSTGRES)
async def test_a_job_within_a_transaction_lands_in_its_schema(
    kind: str, postgres_dsn: str, holds: tuple[Holdfast, Holdfast]
) -> None:
    first, second = holds
    greet = declared(second, "ahoy")
    caller = a_caller(kind, dsn=postgres_dsn, path=None)
    await caller.open()

    await caller.begin()
    job = await caller.submit(greet, "Ada")
    await caller.commit()

    await caller.close()
    assert [found.id for found in await second.find(JobFilter(name="greet"))] == [job.id]
    assert await first.find() == []


async def test_django_migrates_the_schema_of_each_of_the_projects_holdfasts(postgres_dsn: str) -> None:
    caller = Django(postgres_dsn)
    await asyncio.to_thread(caller.open)
    hold = await asyncio.to_thread(migrated_by_django, "order")

    tables = await ask(
        postgres_dsn, "SELECT 1 FROM pg_tables WHERE schemaname = 'order' AND tablename = 'jobs'"
    )

    await asyncio.to_thread(caller.close)
    await ask(postgres_dsn, DROP)
    assert hold.settings.database_schema == "order"
    assert tables == [(1,)]


def migrated_by_django(schema: str) -> Holdfast:
    """Run the operation of our migrations, in a project that declares one `DjangoHoldfast`."""
    from django.db import connections

    from holdfast.contrib.django import DjangoHoldfast
    from holdfast.contrib.django.schema import apply_schema

    hold = DjangoHoldfast(schema=schema)
    apply_schema().code(None, SimpleNamespace(connection=connections["default"]))
    return hold


async def test_a_schema_that_is_missing_is_reported_though_another_is_there(postgres_dsn: str) -> None:
    with pytest.raises(SchemaMissing, match="no Holdfast schema"):
        await Holdfast(postgres_dsn, schema="absent").open()


async def test_tables_of_something_else_are_left_alone(postgres_dsn: str) -> None:
    await ask(postgres_dsn, 'CREATE SCHEMA "order"')
    await ask(postgres_dsn, 'CREATE TABLE "order".jobs (mine integer)')
    store = PostgresStore(postgres_dsn, schema="order")

    with pytest.raises(ConfigError, match="holds something else"):
        await store.apply_schema()

    await store.close()
    tables = await ask(postgres_dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'order'")
    await ask(postgres_dsn, DROP)
    assert tables == [("jobs",)]
