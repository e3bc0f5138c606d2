"""The job runner: it runs claimed jobs, keeps their leases and writes their ends.

`Worker` claims jobs for it from queues, `FleetRunner` those that were dispatched to a Celery or arq worker. `Launcher`
starts attempts, each of which ends in a transition that `Settler` writes in batches. `LeaseKeeper` extends leases,
`CancelWatcher` reads requests to cancel, and `LeaseGuard` extends leases from a thread while the event loop is blocked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from holdfast.core.jobs.job import Claim
from holdfast.engine.claiming.launcher import Launcher
from holdfast.engine.claiming.lost_claims import LostClaims
from holdfast.engine.claiming.quarantine import Quarantine
from holdfast.engine.claiming.slots import Slots
from holdfast.engine.claiming.state_reader import StateReader
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.leases.cancel_watcher import CancelWatcher
from holdfast.engine.leases.lease_guard import guard_leases
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.admission import Admission
from holdfast.engine.providers.provider_link import LinkRuntime
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service
from holdfast.engine.store_availability import StoreAvailability
from holdfast.engine.worker.settler import OnSettled, Settler
from holdfast.engine.worker.stop_request import StopRequest
from holdfast.engine.worker.unrunnable import Unrunnable

LONGEST_RETRY = timedelta(seconds=10)
"""Longest time for which the reads and writes that start a claimed job are retried."""

AFTER_INTERRUPTION = timedelta(seconds=5)
"""How long interrupted attempts may take to return their transitions."""

WRITE_LIMIT = 10.0
"""Seconds for what is left to write at shutdown."""


class JobRunner:
    """Starts attempts at claimed jobs, and ends them at shutdown; its owner claims the jobs and runs its services.

    *written* is called after each write of transitions, *requeued* when a job was requeued that may be due soon,
    *slot_freed* when an attempt has ended, *provider_changed* when calls to a provider are allowed again or refused,
    *settled*, if it is given, with each end that was settled, and *unwritten* with a job whose attempt wrote nothing.
    """

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        options: WorkerOptions,
        *,
        stop: StopRequest,
        closing: Callable[[], bool],
        written: Callable[[], None],
        requeued: Callable[[], None],
        slot_freed: Callable[[], None],
        provider_changed: Callable[[], None],
        settled: OnSettled | None = None,
        unwritten: Callable[[Claim], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._options = options
        self.availability = StoreAvailability(name, runtime.clock, runtime.logger)
        # Short beside a lease: there is time to read jobs together, and then each alone, before the lease expires.
        within = min(LONGEST_RETRY, options.lease / 4)
        self.quarantine = Quarantine(runtime, slots=options.slots, within=within)
        self.settler = Settler(name, runtime, written=written, requeued=requeued, settled=settled)
        self.slots = Slots(options.slots, self.quarantine, self.settler)
        self._lease_keeper = LeaseKeeper(name, runtime, options, self.slots.held, self.settler.pending)
        self.cancel_watcher = CancelWatcher(name, runtime, options, self.slots.held)
        self.admission = Admission(runtime.registry, self._link_runtime(provider_changed))
        """Admits calls to providers; holds the state of each as this worker knows it."""
        self.lost_claims = LostClaims(name, runtime, options, slots=self.slots, settler=self.settler)
        self.launcher = Launcher(
            runtime,
            self._attempt_runtime(closing),
            slots=self.slots,
            quarantine=self.quarantine,
            state_reader=StateReader(name, runtime, within=within),
            lease_keeper=self._lease_keeper,
            availability=self.availability,
            stop=stop,
            slot_freed=slot_freed,
            unwritten=unwritten,
        )

    @property
    def services(self) -> list[Service]:
        """The services without which leases expire and cancellations are not noticed."""
        return [self._lease_keeper, self.cancel_watcher]

    def _link_runtime(self, provider_changed: Callable[[], None]) -> LinkRuntime:
        return LinkRuntime(
            store=self._runtime.store,
            worker=self._name,
            store_retry=self._runtime.store_retry,
            random=self._runtime.random,
            logger=self._runtime.logger,
            metrics=self._runtime.metrics,
            changed=provider_changed,
        )

    def _attempt_runtime(self, closing: Callable[[], bool]) -> AttemptRuntime:
        runtime = self._runtime
        return AttemptRuntime(
            settler=self.settler,
            unrunnable=Unrunnable(self._name, runtime.clock, runtime.logger),
            failures=FailureTexts(runtime.classifier, runtime.executor),
            random=runtime.random,
            executor=runtime.executor,
            logger=runtime.logger,
            store=runtime.store,
            store_retry=runtime.store_retry,
            loop=asyncio.get_running_loop(),
            closing=closing,
            admission=self.admission,
            tracer=runtime.tracer,
            fingerprint=runtime.fingerprint,
            code_version=runtime.letters.code_version,
            allowed=runtime.redactor.context,
            at_deadline=self._lease_keeper.wake,
            bind_job=runtime.bind_job,
        )

    def guard_leases(self) -> Callable[[], Awaitable[None]]:
        """Start the lease guard; the returned function stops it."""
        return guard_leases(
            self._name,
            self._runtime,
            lease=self._options.lease,
            lease_keeper=self._lease_keeper,
            held=self.slots.held,
        )

    async def shut_down(
        self,
        others: Sequence["asyncio.Task[None]"] = (),
        *,
        at_once: asyncio.Event,
        interrupting: Callable[[], None],
    ) -> None:
        """Let attempts and *others* end within the grace time, then release their jobs; write what is left last.

        *interrupting* is called when the grace time is over. Setting *at_once* ends it early.
        """
        self.launcher.release_quarantined()
        await self._finish(self._options.grace, others, unless=at_once)
        interrupting()
        for attempt in list(self.slots.held.values()):
            attempt.interrupt(Interruption.SHUTDOWN)
        # A second stop() does not shorten this: an interrupted attempt still has to return its transition.
        await self._finish(AFTER_INTERRUPTION, others, unless=asyncio.Event())
        try:
            async with asyncio.timeout(WRITE_LIMIT):
                await self.settler.drain()
                await self.admission.close()
        except TimeoutError:
            self._runtime.logger.error(
                "transitions unwritten at shutdown", worker=self._name, jobs=self.settler.unsettled
            )
            self.settler.give_up()

    async def _finish(
        self, limit: timedelta, others: Sequence["asyncio.Task[None]"], *, unless: asyncio.Event
    ) -> None:
        """Wait until the attempts and *others* have ended, for at most *limit*, or until *unless* is set."""
        attempts = [attempt.task for attempt in self.slots.held.values() if attempt.task is not None]
        tasks = [task for task in (*attempts, *others) if not task.done()]
        if not tasks:
            return
        stop_now = asyncio.create_task(unless.wait())
        done = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait(
            [stop_now, done], timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        for waiting in (stop_now, done):
            waiting.cancel()
