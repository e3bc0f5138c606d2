"""The outbox service: list, show, retry and skip messages, and unblock routes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.messages.outbox import (
    RELEASED,
    BlockedRoute,
    MessageFilter,
    OutboxMessage,
    outbox_id,
)
from holdfast.core.strict_json import ensure_storable
from holdfast.engine.operations.store_access import OperatorService, in_sync
from holdfast.ports.messages.outbox import OutboxStats

if TYPE_CHECKING:
    import builtins


class OutboxService(OperatorService):
    """Inspects and repairs the outbox, for operators. Reached as `hold.outbox`."""

    async def list(
        self,
        message_filter: MessageFilter = MessageFilter(),  # noqa: B008 - a frozen value
    ) -> "builtins.list[OutboxMessage]":
        """Return messages of the outbox, the newest first.

        The next page is the one *before* the last message of a page. Raises `MessageNotFound` if that was deleted.
        """
        await self._access.open()
        return await self._store.outbox.find(message_filter)

    async def show(self, message_id: str) -> OutboxMessage:
        """Return one message by its id in the outbox. Raises `MessageNotFound`."""
        await self._access.open()
        return await self._store.outbox.get(message_id)

    async def stats(self) -> OutboxStats:
        """Count what waits, is held and has failed."""
        await self._access.open()
        return await self._store.outbox.stats()

    async def routes(self) -> "builtins.list[BlockedRoute]":
        """Return the routes that a broker refuses, the longest blocked first."""
        await self._access.open()
        return await self._store.outbox.routes()

    async def retry(
        self, message_ids: Sequence[str], *, actor: str, reason: str = ""
    ) -> "builtins.list[str]":
        """Publish failed messages again, with fresh attempts; return the ids of those that had failed.

        What is behind them in their aggregates follows once they are published. Their dead letters are closed. Raises `MessageNotFound` for what is not
        an id of the outbox: nothing was changed.
        """
        note = await self._note("retried", message_ids, actor=actor, reason=reason)
        retried = await self._store.outbox.retry(message_ids, note=note)
        if retried:
            self._runtime.logger.info("messages retried", **_summary(retried, actor, reason))
        return retried

    async def skip(self, message_ids: Sequence[str], *, actor: str, reason: str = "") -> "builtins.list[str]":
        """Give up publishing messages, so that what is behind them goes on; return the ids of those that were skipped.

        Those that are published already are left out. The dead letters of failed ones are discarded. Raises `MessageNotFound` for what is not an id of the outbox:
        nothing was changed.
        """
        note = await self._note("skipped", message_ids, actor=actor, reason=reason)
        skipped = await self._store.outbox.skip(message_ids, note=note)
        if skipped:
            self._runtime.logger.info("messages skipped", **_summary(skipped, actor, reason))
        return skipped

    async def unblock(self, route: str, *, actor: str, reason: str = "") -> int | None:
        """Unblock a route before its next probe, and return how many messages it held; `None` if it is not blocked.

        The alarm about it is cleared. The messages are released in batches; what is left when this is interrupted, relays
        release. If the broker still refuses the route, it is blocked again, with another ticket.
        """
        ensure_storable(route=route, actor=actor, reason=reason)
        await self._access.open_for_change()
        outbox = self._store.outbox
        held = await outbox.unblock_route(route)
        if held is not None:
            self._runtime.logger.info(
                "route unblocked", route=route, messages=held, actor=actor, reason=reason
            )
            while await outbox.release_route(route, limit=RELEASED) == RELEASED:
                pass
        return held

    async def _note(
        self, action: str, message_ids: Sequence[str], *, actor: str, reason: str
    ) -> dict[str, str]:
        """Open the store, and return what is noted with each message."""
        ensure_storable(actor=actor, reason=reason)
        for message_id in message_ids:
            outbox_id(message_id)
        await self._access.open_for_change()
        at = await self._store.now()
        return {"action": action, "actor": actor, "reason": reason, "at": at.isoformat()}

    list_sync = in_sync(list)  # noqa: A003 - the method above is meant
    show_sync = in_sync(show)
    stats_sync = in_sync(stats)
    routes_sync = in_sync(routes)
    retry_sync = in_sync(retry)
    skip_sync = in_sync(skip)
    unblock_sync = in_sync(unblock)


def _summary(message_ids: Sequence[str], actor: str, reason: str) -> dict[str, Any]:
    """Return the fields of a log line about messages; of many, some ids."""
    return {"messages": len(message_ids), "ids": list(message_ids[:20]), "actor": actor, "reason": reason}
