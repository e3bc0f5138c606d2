"""The partitions of the outbox that a relay has leased, as far as it knows."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.messages.outbox import PartitionLease
from holdfast.ports.messages.outbox import OutboxStore

LEASE = timedelta(seconds=15)
"""How long a silent relay keeps its partitions."""


class PartitionLeases:
    """Leases a fair share of the partitions for one relay, and extends the leases each third of their duration."""

    def __init__(self, relay: str, outbox: OutboxStore, *, lease: timedelta = LEASE) -> None:
        self._relay = relay
        self._outbox = outbox
        self._lease = lease
        self._held: dict[int, int] = {}
        self._renew_at = float("-inf")
        self._expires_at = float("-inf")

    async def current(self) -> list[PartitionLease]:
        """Return what is leased, after extending it if it is time to. Raises `StoreUnavailable`."""
        if asyncio.get_running_loop().time() >= self._renew_at:
            await self.renew()
        return [PartitionLease(number, token) for number, token in self._held.items()]

    async def renew(self) -> None:
        """Extend the leases, and take or give up partitions. Raises `StoreUnavailable`."""
        began = (
            asyncio.get_running_loop().time()
        )  # from before the store's answer: it counts from its own clock
        held = await self._outbox.lease_partitions(self._relay, lease=self._lease)
        self._held = dict(held)
        length = self._lease.total_seconds()
        self._renew_at, self._expires_at = began + length / 3, began + length

    @property
    def seconds_to_renewal(self) -> float:
        """How long until the leases are to be extended."""
        return max(self._renew_at - asyncio.get_running_loop().time(), 0.0)

    def hold(self, lease: PartitionLease) -> bool:
        """Whether *lease* is still held, as far as can be known without the store."""
        current = self._held.get(lease.number)
        return current == lease.token and asyncio.get_running_loop().time() < self._expires_at

    def lost(self, leases: Sequence[PartitionLease]) -> set[int]:
        """Return the partitions of *leases* that are not held any more."""
        return {lease.number for lease in leases if not self.hold(lease)}

    async def release(self) -> None:
        """Give up all partitions, so that other relays need not wait for the leases to expire."""
        self._held, self._renew_at = {}, float("-inf")
        await self._outbox.release_partitions(self._relay)
