"""The relay: it publishes the messages of the outbox, and writes what became of them.

Relays share the partitions of the outbox, and each publishes the messages of those that it has leased. A message that
was published, and whose relay died before it was marked, is published again under the same id.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.failures.escalation import Escalation
from holdfast.core.messages.outbox import (
    BATCH,
    PROBE,
    QUIET,
    RELEASED,
    DueMessage,
    MessageChange,
    MessageTransition,
    PartitionLease,
    route_alarm,
)
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.relays.batch_publisher import BatchPublisher, MessageOutcome
from holdfast.engine.messages.relays.broker_availability import BrokerAvailability
from holdfast.engine.messages.relays.partition_leases import LEASE, PartitionLeases
from holdfast.engine.messages.relays.relay_reporter import RelayReporter
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.engine.store_availability import StoreAvailability
from holdfast.ports import HintKind
from holdfast.ports.messages.outbox import DueMessages, Probe

POLL = 1.0
"""Longest rest in seconds; a hint that messages were stored shortens it."""

MOST_READ = 2_000
"""Messages that are read while a broker is unavailable, to find those of other brokers."""

RELEASE_TIMEOUT = 5.0
"""Seconds that a relay which stops waits for the store to take its partitions back."""


class Relay(OptionalService):
    """Publishes messages in batches, oldest first, and those of one aggregate in their order.

    Every worker of an application with brokers runs one. It holds no lock or transaction while a broker is asked: what it
    writes is fenced by the tokens of its leases.
    """

    name = "relay"

    def __init__(
        self,
        relay: str,
        runtime: Runtime,
        clients: BrokerClients,
        *,
        lease: timedelta = LEASE,
        poll: float = POLL,
    ) -> None:
        super().__init__(runtime)
        self._poll = poll
        self._outbox = runtime.store.outbox
        self._brokers = frozenset(runtime.registry.brokers)
        self._leases = PartitionLeases(relay, self._outbox, lease=lease)
        self._availability = BrokerAvailability(
            relay, clock=runtime.clock, random=runtime.random, logger=runtime.logger
        )
        self._publisher = BatchPublisher(runtime, clients, self._availability)
        self._reporter = RelayReporter(relay, runtime)
        self._probe_at = float("-inf")
        self._publishing: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()
        """Set when it has leased partitions, or could have."""

    async def run_once(self) -> float:
        """Publish one batch, and write what became of it; return the seconds until the next run."""
        leases = await self._leases.current()
        self.ready.set()
        trial = self._availability.seconds_to_trial(self._brokers)
        if trial:
            return min(trial, self._leases.seconds_to_renewal)
        due = await self._read_due(leases)
        outcomes: list[MessageOutcome] = []
        held = {lease.number: lease for lease in leases}

        def leased(message: DueMessage) -> bool:
            return not self._finishing and self._leases.hold(held[message.partition])

        await self._run_in_flight(self._publisher.chains(due, leased=leased, outcomes=outcomes))
        await self._settle(leases, outcomes)
        unblocked = await self._probe_routes(leases) if due.blocked else []
        for route in due.unblocked:
            await self._outbox.release_route(route, limit=RELEASED)
        if outcomes or unblocked or due.unblocked:
            return 0  # there may be more, or what was held is released
        pause = self._poll * (0.5 + self._runtime.random.random() / 2)
        soonest = [pause, *([] if due.next_due is None else [due.next_due.total_seconds()])]
        return min(*soonest, self._leases.seconds_to_renewal)

    async def _read_due(self, leases: Sequence[PartitionLease]) -> DueMessages:
        """Read a batch; while a broker is unavailable, look for messages of the others behind its own."""
        if not self._availability.outage:
            return await self._outbox.due(leases, limit=BATCH)
        due = await self._outbox.due(leases, limit=MOST_READ)
        return due._replace(messages=self._publisher.publishable(due.messages))

    async def drain(self) -> None:
        """Publish nothing more, and wait until what is in flight is written, and the partitions are released."""
        self.finish()
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def in_flight(self) -> int:
        """How many aggregates it is publishing messages of."""
        return sum(not task.done() for task in self._publishing)

    def abandon(self) -> None:
        """Cancel what is in flight, after `finish`; it is published again. What is confirmed is still written."""
        for task in self._publishing:
            task.cancel()

    async def _run(self, availability: StoreAvailability) -> None:
        unsubscribe = self._store.listen(lambda _: self.wake(), (HintKind.MESSAGE,))
        try:
            await super()._run(availability)
        finally:
            unsubscribe()
            # A store that is away at this moment takes nothing back; the leases expire.
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(RELEASE_TIMEOUT):
                    await self._leases.release()

    async def _run_in_flight(self, publishing: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Run all to their end, or until they are abandoned, and extend the leases meanwhile."""
        tasks = {asyncio.create_task(each, name="holdfast relay publishing") for each in publishing}
        pending = self._publishing = tasks
        try:
            while pending:
                _, pending = await asyncio.wait(pending, timeout=self._leases.seconds_to_renewal)
                if pending:
                    await self._renew_in_flight()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _renew_in_flight(self) -> None:
        """Extend the leases; while the store is unavailable, those in flight go on until the leases expire."""
        try:
            await self._leases.renew()
        except StoreUnavailable:
            await asyncio.sleep(self._store_pause)

    async def _settle(self, leases: Sequence[PartitionLease], outcomes: Sequence[MessageOutcome]) -> None:
        """Write what became of messages; of a partition that another relay has leased since, nothing is written."""
        if not outcomes:
            return
        transitions = [outcome.transition for outcome in outcomes]
        # Sent again after a lost answer, a transition changes nothing twice.
        settled = await self._runtime.store_retry.call(
            lambda _: self._outbox.settle(leases, transitions), within=LEASE
        )
        lost: set[int] = set()
        if not settled.written.issuperset(transition.id for transition in transitions):
            await self._leases.renew()  # another relay may have the partition; the store knows
            lost = self._leases.lost(leases)
        self._reporter.report(outcomes, lost=lost)
        for route in settled.blocked:
            error = next(
                change.error
                for change in transitions
                if change.held_by == route and change.change is MessageChange.BLOCKED
            )
            self._logger.warning("route blocked", route=route, message=error)
            if route not in settled.alarmed:
                await self._store.tickets.clear_alarm(route_alarm(route))  # of an earlier incident
                await self._alert(route, error or "")

    async def _alert(self, route: str, error: str) -> None:
        title = f"messages to {route} are refused, and wait in the outbox: {error}"
        facts = {"title": title, "level": Escalation.ALERT, "route": route}
        await self._store.tickets.raise_alarm(route_alarm(route), facts)

    async def _probe_routes(self, leases: Sequence[PartitionLease]) -> list[str]:
        """Try blocked routes with one message each; return those that are unblocked."""
        now = asyncio.get_running_loop().time()
        if now < self._probe_at or self._finishing:
            return []
        self._probe_at = now + self._poll
        unblocked: list[str] = []
        probes = await self._outbox.probes(leases, again=PROBE)
        await self._run_in_flight([self._probe(probe, leases, unblocked) for probe in probes])
        return unblocked

    async def _probe(self, probe: Probe, leases: Sequence[PartitionLease], unblocked: list[str]) -> None:
        """Unblock a route if it takes its message, or refuses it for its own fault, or if the message goes elsewhere."""
        route, message = probe.route, probe.message
        if message is not None and str(self._publisher.route(message)) == route:
            outcome = await self._publisher.publish(message)
            if outcome is None:
                return
            if outcome.transition.change is MessageChange.BLOCKED:
                await self._probe_refused(route, outcome.transition)
                return
            await self._settle(leases, [outcome])
        held = await self._outbox.unblock_route(route, quiet=QUIET if probe.at_capacity else None)
        if held is not None:
            unblocked.append(route)
            self._logger.info("route unblocked", route=route, messages=held)

    async def _probe_refused(self, route: str, refusal: MessageTransition) -> None:
        error, delay = refusal.error or "", refusal.delay or PROBE
        await self._outbox.postpone_probe(route, delay=delay, error=error, full=refusal.full)
        # The relay that blocked it may have died before it raised the alarm.
        await self._alert(route, error)
