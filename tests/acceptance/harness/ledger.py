"""The application of the runs about messages: entries of accounts, which are published to RabbitMQ in their order.

Each entry goes to two queues. A run reads one of them at its end; a consumer of the application reads the other, and
makes a job of each entry, which posts it.
"""

import asyncio

import asyncpg
from pydantic import BaseModel

from holdfast import Holdfast, current
from holdfast.core.messages.outbox import NewMessage
from holdfast.types import JobCall
from holdfast.wiring.system import SystemIds

EXCHANGE = "ledger"
QUEUE = "ledger.entries"
POSTING = "ledger.posting"
"""The queue that the consumer reads."""

POSTED = "ledger_posted"
"""The table of the entries that were posted: nothing but Holdfast keeps one from being in it twice."""

_IDS = SystemIds()


def build(url: str, broker_url: str = "amqp://127.0.0.1:9/") -> Holdfast:
    """Declare the message, its consumer and the job on the database at *url*; messages go to the broker."""
    hold = Holdfast(url)
    hold.broker("rabbitmq", broker_url)
    database = _Database(url)

    @hold.message("entry", exchange=EXCHANGE, routing_key=QUEUE, aggregate_type="Account")
    class Entry(BaseModel):
        account: int
        number: int

    @hold.job("post")
    async def post(entry: str) -> None:
        pool = await database.pool()
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(f"INSERT INTO {POSTED} (entry) VALUES ($1)", entry)
            await current().complete(None, within=connection)

    @hold.consumer(Entry, queue=POSTING)
    def receive(entry: Entry) -> JobCall[None]:
        return post.call(f"{entry.account}:{entry.number}")

    return hold


class _Database:
    """Connections of the application itself, opened by the first job."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool | None = None

    async def pool(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(self._url, min_size=1, max_size=4)
            return self._pool


def an_entry(account: int, number: int) -> NewMessage:
    """Return the entry *number* of an account. Its id for consumers says which it is."""
    return NewMessage(
        _IDS.job_id(),
        "Account",
        f"account-{account}",
        "entry",
        f'{{"account": {account}, "number": {number}}}',
        message_id=f"{account}:{number}",
    )
