"""The dispatcher: it asks a fleet to run the ready jobs of a queue.

At most twice as many dispatches as the fleet has slots are outstanding: enough that no slot waits for the next one, and
few enough that a job of a higher priority, or a pause of the queue, takes effect soon.
"""

from datetime import timedelta

from holdfast.core.errors import BrokerUnavailable
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import OptionalService
from holdfast.ports.fleets import Dispatch, DispatchSender, Transport

OUTSTANDING_PER_SLOT = 2

SHORTEST_PAUSE = 0.02
"""Seconds until the next look while the fleet has all that it may have; twice as many each time nothing has changed."""

LONGEST_BROKER_PAUSE = 30.0


class Dispatcher(OptionalService):
    """Dispatches the jobs of one queue. Each worker runs one; the store keeps them from dispatching a job twice."""

    def __init__(self, queue: str, transport: Transport, runtime: Runtime, *, poll: timedelta) -> None:
        super().__init__(runtime, store_pause=poll.total_seconds())
        self.name = f"dispatcher of {queue}"
        self._queue = queue
        self._transport = transport
        self._limit = OUTSTANDING_PER_SLOT * transport.slots
        self._poll = poll.total_seconds()
        self._sender: DispatchSender | None = None
        self._pause = SHORTEST_PAUSE
        self._broker_pause = 0.0
        """Seconds between two tries while the broker is unavailable; zero while it is available."""

    async def run_once(self) -> float:
        """Dispatch as many jobs as there is room for; return the seconds until the next run."""
        batch = await self._store.dispatches.take(
            self._queue, limit=self._limit, resend=self._transport.resend
        )
        if batch.dispatches and not await self._send(batch.dispatches):
            return self._broker_pause
        if batch.outstanding < self._limit:
            self._pause = SHORTEST_PAUSE
            return self._jittered(self._poll)
        self._pause = SHORTEST_PAUSE if batch.dispatches else min(2 * self._pause, self._poll)
        return self._pause

    async def _send(self, dispatches: list[Dispatch]) -> bool:
        """Send *dispatches*, and withdraw those that were not confirmed; return whether the broker is available."""
        if self._sender is None:
            self._sender = self._transport.open()
        try:
            sent = frozenset(await self._sender.send(self._queue, dispatches))
        except BrokerUnavailable as error:
            await self._store.dispatches.withdraw([dispatch.job_id for dispatch in dispatches])
            self._broker_failed(error)
            return False
        self._broker_answered()
        unsent = [dispatch.job_id for dispatch in dispatches if dispatch.job_id not in sent]
        if unsent:
            await self._store.dispatches.withdraw(unsent)
        self._runtime.metrics.count("dispatches_sent", len(sent))
        again = sum(dispatch.number > 1 for dispatch in dispatches if dispatch.job_id in sent)
        if again:
            self._runtime.metrics.count("dispatches_resent", again)
            self._logger.info("jobs dispatched again", queue=self._queue, jobs=again)
        return True

    def _broker_failed(self, error: BrokerUnavailable) -> None:
        if not self._broker_pause:
            self._logger.warning(
                "fleet broker unavailable",
                queue=self._queue,
                transport=self._transport.kind,
                message=self._runtime.describe(error),
            )
        self._broker_pause = min(max(2 * self._broker_pause, self._poll), LONGEST_BROKER_PAUSE)

    def _broker_answered(self) -> None:
        if self._broker_pause:
            self._logger.info("fleet broker available", queue=self._queue, transport=self._transport.kind)
        self._broker_pause = 0.0

    async def close(self) -> None:
        """Disconnect from the broker."""
        if self._sender is not None:
            await self._sender.close()
            self._sender = None


def dispatchers(runtime: Runtime, poll: timedelta) -> dict[str, Dispatcher]:
    """Make a dispatcher for each queue that a fleet serves."""
    return {
        queue: Dispatcher(queue, transport, runtime, poll=poll)
        for queue, transport in runtime.registry.transports.items()
    }
