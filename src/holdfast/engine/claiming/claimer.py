"""The claimer: it claims as many jobs as there are free slots, when a job may be ready."""

import asyncio
import math
from collections.abc import Mapping

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.job import Claim
from holdfast.engine.claiming.claim_signal import ClaimSignal
from holdfast.engine.claiming.launcher import Launcher
from holdfast.engine.claiming.lost_claims import LostClaims
from holdfast.engine.claiming.slots import Slots
from holdfast.engine.claiming.wake_ups import WakeUps
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_availability import StoreAvailability
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.stop_request import StopRequest
from holdfast.ports import Hint, HintKind


class Claimer:
    """Claims jobs for the launcher until the worker is to stop."""

    def __init__(
        self,
        worker: str,
        runtime: Runtime,
        options: WorkerOptions,
        *,
        slots: Slots,
        launcher: Launcher,
        lost_claims: LostClaims,
        maintenance: Maintenance,
        signal: ClaimSignal,
        availability: StoreAvailability,
        stop: StopRequest,
    ) -> None:
        self._worker = worker
        self._runtime = runtime
        self._store = runtime.store
        self._options = options
        self._slots = slots
        self._launcher = launcher
        self._lost_claims = lost_claims
        self._maintenance = maintenance
        self._signal = signal
        self._availability = availability
        self._stop = stop
        self._wake_ups = WakeUps(worker, options.queues, signal.wake, random=runtime.random)
        self.ready = asyncio.Event()
        """Set when jobs were claimed, or could have been."""

    async def run(self) -> None:
        """Claim until the worker is to stop."""
        while not self._stop.made:
            if await self.run_once() == 0 or not self._signal.more:
                await self._rest()

    async def run_once(self) -> int:
        """Claim as many jobs as there are free slots and start them; return how many."""
        self._signal.begin_round()
        if self._lost_claims.due():
            await self.release_lost_claims()
        elif not self._lost_claims.expected():
            # The store is not asked for them any more, so this call no longer counts as failing.
            self._availability.answered("lost claims")
        started, more = await self._launcher.start_quarantined(), False
        paused = self._maintenance.paused
        if paused is None:
            return 0  # the first maintenance run reads which queues are paused, and wakes this loop
        queues = self._order(paused)
        if not queues:
            self._availability.answered("worker")  # all queues are paused: the store is not called
        for queue in queues:
            room = self._slots.room()
            if room <= 0 or self._stop.made:
                more = True
                break
            notified = self._wake_ups.looking(queue)
            asked_at = self._runtime.clock.monotonic()
            claims = await self._claim(queue, room)
            more = more or len(claims) >= room
            if self._wake_ups.claimed(queue, jobs=len(claims), room=room, notified=notified):
                self._store.notify_taken(self._worker, queue)
            await self._launcher.start(claims, asked_at)
            started += len(claims)
        self._signal.end_round(more=more)
        self.ready.set()
        return started

    async def release_lost_claims(self) -> None:
        """Release jobs that are leased to this worker without its knowledge, if there may be any."""
        if not self._lost_claims.expected():
            return
        try:
            await self._lost_claims.release()
            self._availability.answered("lost claims")
        except StoreUnavailable as error:
            self._availability.failed("lost claims", error)

    def on_hint(self, hint: Hint) -> None:
        """React to a hint that jobs are ready, or that another worker has claimed them."""
        if hint.kind is HintKind.READY:
            self._wake_ups.notified(hint.subject, load=self._slots.running / self._slots.size)
        else:
            self._wake_ups.taken(hint)

    def close(self) -> None:
        """Cancel the timers of claims that were to come."""
        self._wake_ups.close()

    def _order(self, paused: frozenset[str]) -> list[str]:
        """Return the queues to claim from, as they are served: as given, or by weight and chance.

        The jobs of a queue with a transport are dispatched to its fleet.
        """
        queues, dispatched = self._options.queues, self._runtime.registry.transports
        open_queues = [queue for queue in queues if queue not in paused and queue not in dispatched]
        if not isinstance(queues, Mapping) or len(open_queues) < 2:
            return open_queues
        # The higher the weight, the likelier a low number; in the long run a queue is first as often as it weighs.
        drawn = {queue: -math.log(1 - self._runtime.random.random()) / queues[queue] for queue in open_queues}
        return sorted(open_queues, key=drawn.__getitem__)

    async def _claim(self, queue: str, room: int) -> list[Claim]:
        try:
            claims = await self._store.claim(
                self._worker,
                queue,
                limit=room,
                lease=self._options.lease,
                knows=self._runtime.registry.names,
            )
            self._availability.answered("worker")
            return claims
        except asyncio.CancelledError:
            self._lost_claims.expect()
            raise
        except StoreUnavailable as error:
            self._lost_claims.expect()
            self._availability.failed("worker", error)
            await asyncio.sleep(self._runtime.store_retry.pause(4))
            return []

    async def _rest(self) -> None:
        """Wait until woken or until the next poll, whichever comes first."""
        await self._signal.wait(self._options.poll.total_seconds() * (1 + self._runtime.random.random()))
