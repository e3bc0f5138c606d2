"""The worker: it claims as many jobs as it has free slots, runs them, and shuts down cleanly.

`Claimer` claims jobs, and `JobRunner` runs them. Services run beside them. `Maintenance` wakes parked jobs and reclaims
those of dead workers. `Releaser` releases jobs that are held for a provider. `Scheduler` submits recurring jobs. Four
services work on dead letters: they replay, notify and archive. `Announcer` renders messages about ends of jobs. If
brokers are declared, `Relay` publishes messages, and a `Consumer` for each declared queue receives them. A `Dispatcher`
for each queue that a fleet serves dispatches its jobs.
"""

import asyncio

from holdfast.engine.claiming.claim_signal import ClaimSignal
from holdfast.engine.claiming.claimer import Claimer
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.engine.dead_letters.replayer import Replayer
from holdfast.engine.dead_letters.ticket_notifier import TicketNotifier
from holdfast.engine.fleets.dispatcher import dispatchers
from holdfast.engine.messages.announcer import Announcer
from holdfast.engine.messages.broker_clients import BrokerClients
from holdfast.engine.messages.receiving.consumer import consumers
from holdfast.engine.messages.relays.relay import Relay
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.releaser import Releaser
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service
from holdfast.engine.worker.garbage_collector import GARBAGE_COLLECTOR
from holdfast.engine.worker.job_runner import JobRunner
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.scheduler import Scheduler
from holdfast.engine.worker.stop_request import StopRequest
from holdfast.ports import Hint, HintKind


class Worker:
    """Claims, runs and settles jobs until `stop` is called."""

    kind = "worker"

    def __init__(self, name: str, runtime: Runtime, options: WorkerOptions) -> None:
        self.name = name
        self.options = options
        self.stopped = False
        """Whether the shutdown is complete and logged."""
        self._runtime = runtime
        self._stop = StopRequest()
        self._main: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._runner = JobRunner(
            name,
            runtime,
            options,
            stop=self._stop,
            closing=self._closing,
            written=self._wake_after_write,
            requeued=self._wake_for_requeued,
            slot_freed=self._slot_freed,
            provider_changed=self._wake_releaser,
        )
        self.admission = self._runner.admission
        """Admits calls to providers; holds the state of each as this worker knows it."""
        self._signal = signal = ClaimSignal(self._runner.quarantine)
        self._maintenance = Maintenance(runtime, options, signal.wake)
        self._announcer = Announcer(runtime)
        self._announces = any(spec.announce for spec in runtime.registry)
        self._releaser = Releaser(
            runtime,
            options.poll,
            self.admission,
            queues=(*options.queues, *runtime.registry.transports),
            wake_worker=signal.wake,
            free_slots=self._runner.slots.free,
        )
        self._clients = BrokerClients(runtime)
        self._relays = [Relay(name, runtime, self._clients)] if self._clients.declared else []
        self._consumers = consumers(runtime, self._clients)
        self._dispatchers = dispatchers(runtime, options.poll)
        self._claimer = self._new_claimer()
        self.ready = self._claimer.ready
        """Set when it has claimed jobs, or could have."""

    def _new_claimer(self) -> Claimer:
        runner = self._runner
        return Claimer(
            self.name,
            self._runtime,
            self.options,
            slots=runner.slots,
            launcher=runner.launcher,
            lost_claims=runner.lost_claims,
            maintenance=self._maintenance,
            signal=self._signal,
            availability=runner.availability,
            stop=self._stop,
        )

    def _services(self) -> list[Service]:
        """Return what runs beside the claimer, in the order in which it starts."""
        return [
            *self._runner.services,
            self._maintenance,
            self._releaser,
            Scheduler(self._runtime),
            Replayer(self._runtime, self._signal.wake),
            AutoReplayer(self._runtime),
            TicketNotifier(self._runtime),
            self._announcer,
            Archiver(self._runtime),
            *self._relays,
            *self._consumers,
            *self._dispatchers.values(),
        ]

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return self._runner.slots.running

    @property
    def stopping(self) -> bool:
        """Whether it has stopped claiming."""
        return self._stop.made

    @property
    def unsettled(self) -> int:
        """How many attempts have ended without their end being written yet."""
        return self._runner.settler.unsettled

    def stop(self) -> None:
        """Stop claiming and finish running attempts; a second call ends the grace time at once."""
        if self._stop.made:
            self._stop.at_once.set()
        self._stop.make()
        self._signal.wake()

    async def run(self) -> None:
        """Work until `stop`, then finish running attempts within the grace time; release the jobs of those left."""
        with GARBAGE_COLLECTOR.relaxed():
            await self._run_all()

    async def _run_all(self) -> None:
        runtime, services = self._runtime, self._services()
        self._main = asyncio.current_task()
        unsubscribe = runtime.store.listen(self._on_hint, (HintKind.READY, HintKind.TAKEN, HintKind.CANCEL))
        tasks = [service.start(self.name, self._runner.availability) for service in services]
        for task in tasks:
            task.add_done_callback(self._service_ended)
        runtime.logger.info("worker started", worker=self.name, slots=self.options.slots)
        stop_guard = self._runner.guard_leases()
        try:
            await self._claimer.run()
        finally:
            self._stop.make()
            try:
                await self._shut_down()
            finally:  # a second cancellation ends the wait, and still leaves no service behind
                unsubscribe()
                self._claimer.close()
                for service in services:
                    service.stop()
            try:
                await asyncio.wait(tasks)
                await self._clients.close()
                for dispatcher in self._dispatchers.values():
                    await dispatcher.close()
            finally:
                await stop_guard()
            self.stopped = True
            runtime.logger.info("worker stopped", worker=self.name)
        if self._broken is not None:
            raise self._broken

    def _service_ended(self, task: "asyncio.Task[None]") -> None:
        """Stop if a service failed: without its lease keeper a worker would lose every lease."""
        if not task.cancelled():
            broken = task.exception()
        elif self._closing():
            broken = None
        else:
            broken = RuntimeError(f"the task {task.get_name()!r} was cancelled from outside the worker")
        if broken is not None:
            self._broken = broken
            message = self._runtime.describe(broken)
            self._runtime.logger.error("worker failed", worker=self.name, message=message)
            self.stop()

    def _closing(self) -> bool:
        """Whether a cancellation that arrives now comes from the shutdown and not from a handler."""
        return self._stop.made or (self._main is not None and self._main.cancelling() > 0)

    def _slot_freed(self) -> None:
        """Claim or release jobs for a slot that has become free."""
        self._signal.wake_for_slot()
        if self._releaser.lacks_slots:
            self._releaser.wake()

    def _wake_releaser(self) -> None:
        """Release held jobs: a provider takes calls again. Admission, which the releaser needs, comes before it."""
        self._releaser.wake()

    def _wake_after_write(self) -> None:
        """Claim for a slot that has become free, and announce what was written, if jobs announce anything here."""
        self._signal.wake_for_slot()
        if self._announces:
            self._announcer.wake()

    def _wake_for_requeued(self) -> None:
        """Look for jobs that were requeued: ready now, or due soon."""
        self._maintenance.wake()
        self._signal.wake()

    def _on_hint(self, hint: Hint) -> None:
        self._signal.hint_arrived()
        if hint.kind is HintKind.CANCEL:
            self._runner.cancel_watcher.cancel(hint.subject)
            return
        self._claimer.on_hint(hint)
        if self._dispatchers and hint.kind is HintKind.READY:
            self._wake_dispatchers(hint.subject)

    def _wake_dispatchers(self, queue: str) -> None:
        """Dispatch jobs that have become ready; an empty name stands for any queue."""
        for name, dispatcher in self._dispatchers.items():
            if queue in ("", name):
                dispatcher.wake()

    async def _shut_down(self) -> None:
        """Let attempts end within the grace time, then release their jobs; write what is left last."""
        drains = [
            asyncio.create_task(relay.drain(), name=f"{self.name} relay drain") for relay in self._relays
        ]
        for consumer in self._consumers:
            consumer.stop()  # what it has not stored is delivered to another worker
        await self._claimer.release_lost_claims()
        await self._runner.shut_down(drains, at_once=self._stop.at_once, interrupting=self._abandon_relays)

    def _abandon_relays(self) -> None:
        for relay in self._relays:
            relay.abandon()
