"""The publisher: stores messages in the outbox; concurrent publications of one process share their inserts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.aio.batcher import Batcher
from holdfast.core.errors import HoldfastError
from holdfast.core.messages.outbox import NewMessage
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Metrics, Store

BATCH = 1_000
TIMEOUT = timedelta(seconds=30)


class Publisher:
    """Stores messages durably; relays publish them afterwards."""

    def __init__(self, store: Store, store_retry: StoreRetry, *, metrics: Metrics) -> None:
        self._store = store
        self._store_retry = store_retry
        self._metrics = metrics
        self._batcher: Batcher[NewMessage, Exception | None] = Batcher(
            self._write_batch, limit=BATCH, name="holdfast publisher"
        )

    async def publish(self, message: NewMessage) -> None:
        """Store one message. Once this returns, no crash loses it."""
        refusal = await self._batcher.ask_alone(message)
        if refusal is not None:
            raise refusal

    async def publish_many(self, batch: Sequence[NewMessage]) -> None:
        """Store messages: all of them, or none."""
        await self._write(batch)

    async def publish_within(self, connection: Any, batch: Sequence[NewMessage]) -> None:
        """Store messages in the caller's own transaction: they exist once it commits."""
        await self._store.outbox.add_within(connection, batch)

    async def drain(self) -> None:
        """Wait until what was published is stored."""
        await self._batcher.drain()

    async def _write_batch(self, batch: Sequence[NewMessage]) -> list[Exception | None]:
        """Write messages of unrelated callers: one that the store rejects fails alone."""
        try:
            await self._write(batch)
        except HoldfastError:
            raise  # the store is unavailable, or has no tables: each would fail the same way
        except Exception:
            if len(batch) == 1:
                raise
            return [await self._write_alone(message) for message in batch]
        return [None] * len(batch)

    async def _write_alone(self, message: NewMessage) -> Exception | None:
        try:
            await self._write([message])
        except Exception as error:  # noqa: BLE001 - raised to the caller that published this
            return error
        return None

    async def _write(self, batch: Sequence[NewMessage]) -> None:
        await self._store_retry.call(lambda _: self._store.outbox.add(batch), within=TIMEOUT)
        self._metrics.count("messages_stored", len(batch))
