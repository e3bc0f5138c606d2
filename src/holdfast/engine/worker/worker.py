"""The worker: it claims as many jobs as it has free slots, runs them, and shuts down cleanly.

`Claimer` claims jobs, `Launcher` starts attempts, and each attempt ends in a transition, which `Settler` writes in
batches. Services run beside them. `LeaseKeeper` extends leases, and `CancelWatcher` reads requests to cancel;
`LeaseGuard` extends leases from a thread while the event loop is blocked. `Maintenance` wakes parked jobs and reclaims
those of dead workers. `Releaser` releases jobs that are held for a provider. `Scheduler` submits recurring jobs. Four
services work on dead letters: they replay, notify and archive.
"""

import asyncio
from datetime import timedelta

from holdfast.engine.claiming.claim_signal import ClaimSignal
from holdfast.engine.claiming.claimer import Claimer
from holdfast.engine.claiming.launcher import Launcher
from holdfast.engine.claiming.lost_claims import LostClaims
from holdfast.engine.claiming.quarantine import Quarantine
from holdfast.engine.claiming.slots import Slots
from holdfast.engine.claiming.state_reader import StateReader
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.engine.dead_letters.replayer import Replayer
from holdfast.engine.dead_letters.ticket_notifier import TicketNotifier
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.leases.cancel_watcher import CancelWatcher
from holdfast.engine.leases.lease_guard import guard_leases
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.admission import Admission
from holdfast.engine.providers.provider_link import LinkRuntime
from holdfast.engine.providers.releaser import Releaser
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service
from holdfast.engine.store_availability import StoreAvailability
from holdfast.engine.worker.garbage_collector import GARBAGE_COLLECTOR
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.scheduler import Scheduler
from holdfast.engine.worker.settler import Settler
from holdfast.engine.worker.stop_request import StopRequest
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.ports import Hint, HintKind

LONGEST_RETRY = timedelta(seconds=10)
"""Longest time for which a worker retries the reads and writes that start a claimed job."""


class Worker:
    """Claims, runs and settles jobs until `stop` is called."""

    def __init__(self, name: str, runtime: Runtime, options: WorkerOptions) -> None:
        self.name = name
        self.options = options
        self.stopped = False
        """Whether the shutdown is complete and logged."""
        self._runtime = runtime
        self._stop = StopRequest()
        self._main: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._availability = StoreAvailability(name, runtime.clock, runtime.logger)
        # Short beside a lease: there is time to read jobs together, and then each alone, before the lease expires.
        within = min(LONGEST_RETRY, options.lease / 4)
        quarantine = Quarantine(runtime, slots=options.slots, within=within)
        self._signal = signal = ClaimSignal(quarantine)
        self._maintenance = Maintenance(runtime, options, signal.wake)
        self._settler = Settler(name, runtime, written=signal.wake_for_slot, requeued=self._wake_for_requeued)
        self._slots = Slots(options.slots, quarantine, self._settler)
        self._lease_keeper = LeaseKeeper(name, runtime, options, self._slots.held, self._settler.pending)
        self._cancel_watcher = CancelWatcher(name, runtime, options, self._slots.held)
        self.admission = Admission(runtime.registry, self._link_runtime())
        """Admits calls to providers; holds the state of each as this worker knows it."""
        self._releaser = Releaser(
            runtime, options, self.admission, wake_worker=signal.wake, free_slots=self._slots.free
        )
        self._launcher = self._new_launcher(quarantine, StateReader(name, runtime, within=within))
        self._claimer = self._new_claimer()
        self.ready = self._claimer.ready
        """Set when it has claimed jobs, or could have."""

    def _link_runtime(self) -> LinkRuntime:
        return LinkRuntime(
            store=self._runtime.store,
            worker=self.name,
            store_retry=self._runtime.store_retry,
            random=self._runtime.random,
            logger=self._runtime.logger,
            metrics=self._runtime.metrics,
            changed=self._wake_releaser,
        )

    def _new_launcher(self, quarantine: Quarantine, state_reader: StateReader) -> Launcher:
        return Launcher(
            self._runtime,
            self._attempt_runtime(),
            slots=self._slots,
            quarantine=quarantine,
            state_reader=state_reader,
            lease_keeper=self._lease_keeper,
            availability=self._availability,
            stop=self._stop,
            slot_freed=self._slot_freed,
        )

    def _new_claimer(self) -> Claimer:
        return Claimer(
            self.name,
            self._runtime,
            self.options,
            slots=self._slots,
            launcher=self._launcher,
            lost_claims=LostClaims(
                self.name, self._runtime, self.options, slots=self._slots, settler=self._settler
            ),
            maintenance=self._maintenance,
            signal=self._signal,
            availability=self._availability,
            stop=self._stop,
        )

    def _attempt_runtime(self) -> AttemptRuntime:
        runtime = self._runtime
        return AttemptRuntime(
            settler=self._settler,
            unrunnable=Unrunnable(self.name, runtime.clock, runtime.logger),
            failures=FailureTexts(runtime.classifier, runtime.executor),
            random=runtime.random,
            executor=runtime.executor,
            logger=runtime.logger,
            store=runtime.store,
            store_retry=runtime.store_retry,
            loop=asyncio.get_running_loop(),
            closing=self._closing,
            admission=self.admission,
            tracer=runtime.tracer,
            fingerprint=runtime.fingerprint,
            code_version=runtime.letters.code_version,
            allowed=runtime.redactor.context,
            at_deadline=self._lease_keeper.wake,
            bind_job=runtime.bind_job,
        )

    def _services(self) -> list[Service]:
        """Return what runs beside the claimer, in the order in which it starts."""
        return [
            self._lease_keeper,
            self._cancel_watcher,
            self._maintenance,
            self._releaser,
            Scheduler(self._runtime),
            Replayer(self._runtime, self._signal.wake),
            AutoReplayer(self._runtime),
            TicketNotifier(self._runtime),
            Archiver(self._runtime),
        ]

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return self._slots.running

    @property
    def stopping(self) -> bool:
        """Whether it has stopped claiming."""
        return self._stop.made

    @property
    def unsettled(self) -> int:
        """How many attempts have ended without their end being written yet."""
        return self._settler.unsettled

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
        tasks = [service.start(self.name, self._availability) for service in services]
        for task in tasks:
            task.add_done_callback(self._service_ended)
        runtime.logger.info("worker started", worker=self.name, slots=self.options.slots)
        stop_guard = guard_leases(
            self.name,
            runtime,
            lease=self.options.lease,
            lease_keeper=self._lease_keeper,
            held=self._slots.held,
        )
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

    def _wake_for_requeued(self) -> None:
        """Look for jobs that were requeued: ready now, or due soon."""
        self._maintenance.wake()
        self._signal.wake()

    def _on_hint(self, hint: Hint) -> None:
        self._signal.hint_arrived()
        if hint.kind is HintKind.CANCEL:
            self._cancel_watcher.cancel(hint.subject)
        else:
            self._claimer.on_hint(hint)

    async def _shut_down(self) -> None:
        """Let attempts end within the grace time, then release their jobs; drain the settler last."""
        self._launcher.release_quarantined()
        await self._claimer.release_lost_claims()
        await self._finish(self.options.grace, unless=self._stop.at_once)
        for attempt in list(self._slots.held.values()):
            attempt.interrupt(Interruption.SHUTDOWN)
        # A second stop() does not shorten this: an interrupted attempt still has to return its transition.
        await self._finish(timedelta(seconds=5), unless=asyncio.Event())
        try:
            async with asyncio.timeout(10):
                await self._settler.drain()
                await self.admission.close()
        except TimeoutError:
            self._runtime.logger.error(
                "transitions unwritten at shutdown", worker=self.name, jobs=self._settler.unsettled
            )
            self._settler.give_up()

    async def _finish(self, limit: timedelta, *, unless: asyncio.Event) -> None:
        """Wait until the attempts have ended, for at most *limit*, or until *unless* is set."""
        tasks = [attempt.task for attempt in self._slots.held.values() if attempt.task is not None]
        if not tasks:
            return
        stop_now = asyncio.create_task(unless.wait())
        done = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait(
            [stop_now, done], timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        for waiting in (stop_now, done):
            waiting.cancel()
