"""A key that is purged while its submission is in flight is free again, and taken."""

from typing import Any

import asyncpg

from holdfast.core.jobs.job import Receipt
from holdfast.stores.postgres.jobs import submitting
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.queries import Queries
from tests.builders import a_job

SQL = Queries("holdfast.stores.postgres")


class Interrupted:
    """A connection that lets another one purge the keys, once, before it reads which jobs took them."""

    def __init__(self, connection: Any, other: Any) -> None:
        self._connection = connection
        self._other = other
        self.purged = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, sql: str, *values: Any) -> Any:
        if sql == SQL["jobs_by_key"] and not self.purged:
            self.purged += 1
            await self._other.execute("DELETE FROM holdfast.job_keys WHERE key = 'k1'")
        return await self._connection.fetch(sql, *values)


async def test_a_key_that_is_purged_between_its_reservation_and_its_look_up_is_taken_by_the_new_job(
    postgres_dsn: str,
) -> None:
    store = PostgresStore(postgres_dsn)
    await store.apply_schema()
    await store.submit([a_job(key="k1"), a_job(key="k2")])
    connection, other = [await asyncpg.connect(postgres_dsn) for _ in range(2)]
    link = Interrupted(connection, other)
    new = a_job(key="k1")

    async with connection.transaction():
        first, second = await submitting.submit_unique(link, SQL, [new, a_job(key="k2")], [])

    assert link.purged == 1
    assert first == Receipt(new.id)
    assert isinstance(second, Receipt)
    assert second.existing
    assert await store.submit([a_job(key="k1")]) == [Receipt(new.id, existing=True)]
    for each in (connection, other, store):
        await each.close()
