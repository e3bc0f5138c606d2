"""The outbox: messages that are stored in the transaction which causes them, and that relays publish.

The messages are divided into partitions, which relays lease; all messages of an aggregate are in one. Everything that
a relay writes carries the tokens of its leases: of a partition that another relay has leased since, nothing is written.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from holdfast.core.messages.outbox import (
    BATCH,
    BlockedRoute,
    DueMessage,
    MessageFilter,
    MessageTransition,
    NewMessage,
    OutboxMessage,
    PartitionLease,
)


class DueMessages(NamedTuple):
    """What a relay reads of its partitions."""

    messages: list[DueMessage]
    """The oldest first; one that is `behind` another is to be held, not to be published."""
    blocked: frozenset[str] = frozenset()
    """The routes that are blocked, as text: their messages are to be held, not to be published."""
    unblocked: frozenset[str] = frozenset()
    """The routes that are unblocked, and are to be passed to `release_route`."""
    next_due: timedelta | None = None
    """How long until the next message is due that is retried; `None` if there is none."""


class SettledMessages(NamedTuple):
    """What the store has written of a relay's transitions."""

    written: frozenset[str]
    """The ids of the messages. The others were settled before, or belong to a lease that was lost."""
    blocked: frozenset[str] = frozenset()
    """The routes that were not blocked before."""
    alarmed: frozenset[str] = frozenset()
    """Of those, the ones that were full so recently that the alarm about them is still raised."""


class Probe(NamedTuple):
    """A blocked route that is to be tried with its oldest message; without one, no message is held for it any more."""

    route: str
    message: DueMessage | None
    at_capacity: bool = False
    """Whether the route was full when it was tried last."""


class OutboxStats(NamedTuple):
    """How the outbox stands."""

    pending: int
    """Messages to be published, those that are held included."""
    held: int
    failed: int
    oldest: timedelta | None
    """How long the oldest pending message that is not held has waited."""
    blocked_routes: int


class OutboxStore(Protocol):
    """The operations of a store on the outbox."""

    async def add(self, batch: Sequence[NewMessage]) -> None:
        """Store messages durably, in their order. One whose id or key is stored already is left out.

        After `StoreUnavailable` the outcome is unknown; sent again, the same messages are stored once.
        """
        ...

    async def add_within(self, connection: Any, batch: Sequence[NewMessage]) -> None:
        """Store messages in the transaction that *connection* is in: published after its owner commits."""
        ...

    async def lease_partitions(self, relay: str, *, lease: timedelta) -> list[PartitionLease]:
        """Extend the leases of *relay*, take its fair share of the partitions, and return all that it holds now.

        The share is the number of partitions divided by that of the relays that called this within the last *lease*,
        rounded up. What is above it is given up; only what is free or expired is taken. Call it several times per lease.
        """
        ...

    async def release_partitions(self, relay: str) -> None:
        """Give up all leases of *relay*, which stops: the others take them with their next call."""
        ...

    async def due(self, leases: Sequence[PartitionLease], *, limit: int = BATCH) -> DueMessages:
        """Read the oldest messages that are due in these partitions, without locking them.

        A partition whose token does not match is left out. Call it again at once if it returned *limit* messages. A
        message stays due until it is settled: a relay that reads ahead leaves out what it has in flight.
        """
        ...

    async def settle(
        self, leases: Sequence[PartitionLease], transitions: Sequence[MessageTransition]
    ) -> SettledMessages:
        """Write what became of messages, with the dead letters of those that failed, in one transaction.

        Of a partition whose token does not match, nothing is written. A message is published, fails or is retried
        once: sent again, a transition changes nothing.
        """
        ...

    async def probes(self, leases: Sequence[PartitionLease], *, again: timedelta) -> list[Probe]:
        """Return a held message for each blocked route that is to be tried now; the next try is due after *again*.

        Only messages of these partitions are returned, each the first unpublished one of its aggregate. The message stays
        held: settle it if the broker takes it, then unblock the route.
        """
        ...

    async def postpone_probe(self, route: str, *, delay: timedelta, error: str, full: bool) -> None:
        """Write why a probe of a blocked route was refused; the next one is due after *delay*."""
        ...

    async def unblock_route(self, route: str, *, quiet: timedelta | None = None) -> int | None:
        """Let messages be published to a route again; return how many it has held; `None` if it is not blocked.

        They are released by `release_route`. The alarm about the route is cleared in the same transaction; but with
        *quiet*, that of a route that was full only if it is not full again for that long. Called again before all messages
        are released, it returns how many are left.
        """
        ...

    async def release_route(self, route: str, *, limit: int) -> int:
        """Release the oldest messages that an unblocked route has held, *limit* at most, and return how many.

        Fewer than *limit* are the last: nothing is left of the route, once its quiet time has passed. Of one that is
        blocked again, none is released. Any process can go on with what another has begun.
        """
        ...

    async def routes(self) -> list[BlockedRoute]:
        """List the blocked routes, the longest blocked first."""
        ...

    async def get(self, message_id: str) -> OutboxMessage:
        """Read one message. Raises `MessageNotFound`."""
        ...

    async def find(self, message_filter: MessageFilter) -> list[OutboxMessage]:
        """List messages, the newest first. Raises `MessageNotFound` if the one that ends the page is not there."""
        ...

    async def retry(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        """Make failed messages pending again, with fresh attempts, and note it with them; return their ids.

        Those that have not failed are left out. The messages behind them are released once they are published. Their
        dead letters are closed in the same transaction, but for one that is being replayed.
        """
        ...

    async def skip(self, message_ids: Sequence[str], *, note: Mapping[str, str]) -> list[str]:
        """Give up publishing these messages, pending or failed, release those behind them, and return their ids.

        A relay may publish a pending one at this moment nevertheless; it is skipped all the same. The dead letters of
        those that had failed are discarded in the same transaction.
        """
        ...

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        """Delete messages that were published or skipped that long ago; return how many.

        Not those that a live job has published: its next run would publish them again.
        """
        ...

    async def stats(self) -> OutboxStats:
        """Count what is in the outbox."""
        ...
