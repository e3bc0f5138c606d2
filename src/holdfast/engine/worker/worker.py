"""The worker: it claims as many jobs as it has free slots, runs them, and shuts down cleanly.

Services run side by side. This one claims jobs and starts attempts. `LeaseKeeper` extends leases and reads requests to
cancel; `LeaseGuard` extends leases from a thread while the event loop is blocked. `Maintenance` wakes parked jobs and
reclaims those of dead workers. `Releaser` releases jobs that are held for a provider. `Scheduler` submits recurring
jobs. Four services work on dead letters: they replay, notify and archive. Each attempt ends in a transition, which
`Settler` writes in batches.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from datetime import timedelta
from functools import partial

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import release
from holdfast.engine.dead_letters.archiver import Archiver
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.engine.dead_letters.replayer import Replayer
from holdfast.engine.dead_letters.ticket_notifier import TicketNotifier
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.admission import Admission
from holdfast.engine.providers.link import LinkRuntime
from holdfast.engine.providers.releaser import Releaser
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import run_service
from holdfast.engine.store_availability import StoreAvailability
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.worker.garbage_collector import GARBAGE_COLLECTOR
from holdfast.engine.worker.lease_guard import LeaseGuard
from holdfast.engine.worker.lease_keeper import LeaseKeeper
from holdfast.engine.worker.lost_claims import LostClaims
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.quarantine import Quarantine
from holdfast.engine.worker.scheduler import Scheduler
from holdfast.engine.worker.settler import AttemptOutcome, Settler
from holdfast.engine.worker.state_reader import StateReader
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.engine.worker.wake_ups import WakeUps
from holdfast.ports import Hint, HintKind

SHARES = 2
"""Batches in which the slots are filled: one runs while the next is claimed."""

LONGEST_RETRY = timedelta(seconds=10)
"""Longest time for which a worker retries the reads and writes that start a claimed job."""

EXPIRED = "its lease may have run out before it began"


class Worker:
    """Claims, runs and settles jobs until `stop` is called."""

    def __init__(self, name: str, runtime: Runtime, options: WorkerOptions) -> None:
        self.name = name
        self.options = options
        self.ready = asyncio.Event()
        self._store = runtime.store
        self._registry = runtime.registry
        self._clock = runtime.clock
        self._dice = runtime.dice
        self._logger = runtime.logger
        self._describe = runtime.describe
        self._bind_job = runtime.bind_job
        self._contexts: dict[tuple[str, str], Context] = {}
        """The contexts in which attempts start, by the name and queue of their jobs."""
        self._availability = StoreAvailability(name, runtime.clock, runtime.logger)
        self._store_retry = StoreRetry(runtime.clock, runtime.dice)
        self._held: dict[str, Attempt] = {}
        self._running = 0
        self._wake = asyncio.Event()
        self._wake_ups = WakeUps(name, options.queues, self._wake.set, dice=runtime.dice)
        self._more = True
        """Whether the last round of claims may have left ready jobs."""
        self._hints_arrive = False
        """Whether a hint has ever arrived. While none has, the end of each attempt wakes the claim loop."""
        self._stopping = False
        self.stopped = False
        """Whether the shutdown is complete and logged."""
        self._stop_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._main: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        # Short beside a lease: there is time to read jobs together, and then each alone, before the lease expires.
        self._retry_timeout = min(LONGEST_RETRY, options.lease / 4)
        self._state_reader = StateReader(
            name,
            runtime.store,
            self._store_retry,
            within=self._retry_timeout,
            clock=runtime.clock,
            logger=runtime.logger,
            describe=runtime.describe,
        )
        self._quarantine = Quarantine(
            runtime.store, runtime.registry, self._store_retry, clock=runtime.clock, slots=options.slots
        )
        self._watchdog = runtime.watchdog
        self._maintenance = Maintenance(
            runtime.store,
            options,
            self._wake,
            clock=runtime.clock,
            dice=runtime.dice,
            logger=runtime.logger,
            metrics=runtime.metrics,
        )
        link_runtime = LinkRuntime(
            store=runtime.store,
            worker=name,
            store_retry=self._store_retry,
            dice=runtime.dice,
            logger=runtime.logger,
            metrics=runtime.metrics,
            changed=self._wake_releaser,
        )
        self.admission = Admission(runtime.registry, link_runtime)
        """Admits calls to providers; holds the state of each as this worker knows it."""
        self._releaser = Releaser(
            runtime.store,
            self.admission,
            runtime.registry,
            options,
            self._wake,
            dice=runtime.dice,
            logger=runtime.logger,
            free_slots=self._free_slots,
        )
        services = {
            "replayer": Replayer(runtime, self._wake).run_once,
            "automatic replayer": AutoReplayer(runtime).run_once,
            "notifier": TicketNotifier(runtime).run_once,
            "archiver": Archiver(runtime).run_once,
        }
        self._services = {
            service: partial(
                run_service, run_once, name=service, runtime=runtime, availability=self._availability
            )
            for service, run_once in services.items()
        }
        self._scheduler = Scheduler(
            runtime.store, runtime.registry, ids=runtime.ids, logger=runtime.logger, metrics=runtime.metrics
        )
        self._settler = Settler(
            runtime.store,
            name,
            self._store_retry,
            written=self._wake_for_more,
            parked=self._wake_for_requeued,
            describe=runtime.describe,
            logger=runtime.logger,
            metrics=runtime.metrics,
            development=runtime.development,
        )
        self._lease_keeper = LeaseKeeper(
            name,
            runtime.store,
            self._held,
            self._settler.pending,
            options,
            clock=runtime.clock,
            logger=runtime.logger,
        )
        self._lost_claims = LostClaims(
            name,
            runtime.store,
            self._settler,
            lease=options.lease,
            poll=options.poll,
            clock=runtime.clock,
            logger=runtime.logger,
        )
        self._attempt_runtime = AttemptRuntime(
            settler=self._settler,
            unrunnable=Unrunnable(name, runtime.clock, runtime.logger),
            failures=FailureTexts(runtime.classifier, runtime.executor),
            dice=runtime.dice,
            executor=runtime.executor,
            logger=runtime.logger,
            store=runtime.store,
            store_retry=self._store_retry,
            loop=self._loop,
            closing=self._closing,
            admission=self.admission,
            tracer=runtime.tracer,
            fingerprint=runtime.fingerprint,
            code_version=runtime.letters.code_version,
            allowed=runtime.redactor.context,
            at_deadline=self._lease_keeper.wake,
            bind_job=runtime.bind_job,
        )

    def _wake_releaser(self) -> None:
        self._releaser.wake()

    def _closing(self) -> bool:
        """Whether a cancellation that arrives now comes from the shutdown and not from a handler."""
        return self._stopping or (self._main is not None and self._main.cancelling() > 0)

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return self._running

    @property
    def stopping(self) -> bool:
        """Whether it has stopped claiming."""
        return self._stopping

    @property
    def unsettled(self) -> int:
        """How many attempts have ended without their end being written yet."""
        return self._settler.unsettled

    def stop(self) -> None:
        """Stop claiming and finish running attempts; a second call ends the grace time at once."""
        if self._stopping:
            self._stop_now.set()
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop`, then finish running attempts within the grace time; release the jobs of those left."""
        with GARBAGE_COLLECTOR.relaxed():
            await self._run_all()

    async def _run_all(self) -> None:
        self._main = asyncio.current_task()
        unsubscribe = self._store.listen(self._on_hint, (HintKind.READY, HintKind.TAKEN, HintKind.CANCEL))
        helpers = [
            asyncio.create_task(self._lease_keeper.run(self._availability), name=f"{self.name} lease keeper"),
            asyncio.create_task(
                self._lease_keeper.watch_cancellations(self._availability), name=f"{self.name} cancellations"
            ),
            asyncio.create_task(self._maintenance.run(self._availability), name=f"{self.name} maintenance"),
            asyncio.create_task(self._releaser.run(self._availability), name=f"{self.name} releaser"),
            asyncio.create_task(self._scheduler.run(self._availability), name=f"{self.name} scheduler"),
            *(
                asyncio.create_task(run(), name=f"{self.name} {service}")
                for service, run in self._services.items()
            ),
        ]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        self._logger.info("worker started", worker=self.name, slots=self.options.slots)
        unguard = self._guard_leases()
        try:
            while not self._stopping:
                if await self.run_once() == 0 or not self._more:
                    await self._rest()
        finally:
            self._stopping = True
            try:
                await self._shut_down()
            finally:  # a second cancellation ends the wait, and still leaves no helper task behind
                unsubscribe()
                self._wake_ups.close()
                for helper in helpers:
                    helper.cancel()
            try:
                await asyncio.wait(helpers)
            finally:
                await unguard()
            self.stopped = True
            self._logger.info("worker stopped", worker=self.name)
        if self._broken is not None:
            raise self._broken

    def _guard_leases(self) -> Callable[[], Awaitable[None]]:
        """Have leases extended while the event loop is blocked, until the returned function is called."""
        if self._watchdog is None:
            return _nothing
        guard = LeaseGuard(
            self.name,
            self._lease_keeper,
            self._store.lease_extender(),
            self._held,
            lease=self.options.lease,
            clock=self._clock,
            logger=self._logger,
        )
        started = AsyncExitStack()  # the log is closed last: it records how the guard ended

        async def unguard() -> None:
            guard.stop_beating()
            await started.aclose()

        try:
            started.push_async_callback(self._watchdog.start(guard.write_log, close=guard.write_log))
            started.push_async_callback(self._watchdog.start(guard.check, close=guard.close))
        except RuntimeError as error:  # no thread is available: the loop still extends its leases
            self._logger.warning("lease guard not started", worker=self.name, message=str(error))
            return unguard
        guard.beat()
        return unguard

    def _helper_ended(self, helper: "asyncio.Task[None]") -> None:
        """Stop if a helper failed: without its lease keeper a worker would lose every lease."""
        broken = self._why_it_ended(helper)
        if broken is not None:
            self._broken = broken
            self._logger.error("worker failed", worker=self.name, message=self._describe(broken))
            self.stop()

    def _why_it_ended(self, helper: "asyncio.Task[None]") -> BaseException | None:
        if not helper.cancelled():
            return helper.exception()
        if self._closing():
            return None
        return RuntimeError(f"the task {helper.get_name()!r} was cancelled from outside the worker")

    async def run_once(self) -> int:
        """Claim as many jobs as there are free slots and start them; return how many."""
        self._wake.clear()
        self._more = True
        if self._lost_claims.due():
            await self._give_back_lost_claims()
        elif not self._lost_claims.expected():
            # The store is not asked for them any more, so this call no longer counts as failing.
            self._availability.answered("lost claims")
        started, more = await self._start_quarantined(), False
        paused = self._maintenance.paused
        if paused is None:
            return 0  # the first maintenance run reads which queues are paused, and wakes this loop
        queues = self._order(paused)
        if not queues:
            self._availability.answered("worker")  # all queues are paused: the store is not called
        for queue in queues:
            room = self._room()
            if room <= 0 or self._stopping:
                more = True
                break
            notified = self._wake_ups.looking(queue)
            asked_at = self._clock.monotonic()
            claims = await self._claim(queue, room)
            more = more or len(claims) >= room
            if self._wake_ups.claimed(queue, jobs=len(claims), room=room, notified=notified):
                self._store.notify_taken(self.name, queue)
            await self._start(claims, asked_at)
            started += len(claims)
        self._more = more
        self.ready.set()
        return started

    def _order(self, paused: frozenset[str]) -> list[str]:
        """The queues to claim from, as they are served: as given, or by weight and chance."""
        queues = self.options.queues
        open_queues = [queue for queue in queues if queue not in paused]
        if not isinstance(queues, Mapping) or len(open_queues) < 2:
            return open_queues
        # The higher the weight, the likelier a low number; in the long run a queue is first as often as it weighs.
        drawn = {queue: -math.log(1 - self._dice.roll()) / queues[queue] for queue in open_queues}
        return sorted(open_queues, key=drawn.__getitem__)

    def _room(self) -> int:
        """How many jobs to claim now; at most twice as many attempts as slots may be unwritten."""
        return min(self._free_slots(), max(1, self.options.slots // SHARES))

    def _free_slots(self) -> int:
        slots, running = self.options.slots, self._running + self._quarantine.waiting
        return min(slots - running, 2 * slots - running - self._settler.unsettled)

    async def _claim(self, queue: str, room: int) -> list[Claim]:
        try:
            claims = await self._store.claim(
                self.name, queue, limit=room, lease=self.options.lease, knows=self._registry.names
            )
            self._availability.answered("worker")
            return claims
        except asyncio.CancelledError:
            self._lost_claims.expect()
            raise
        except StoreUnavailable as error:
            self._lost_claims.expect()
            self._availability.failed("worker", error)
            await asyncio.sleep(self._store_retry.pause(4))
            return []

    async def _give_back_lost_claims(self) -> None:
        held = {(attempt.claim.id, attempt.claim.token) for attempt in self._held.values()}
        try:
            await self._lost_claims.give_back(held)
            self._availability.answered("lost claims")
        except StoreUnavailable as error:
            self._availability.failed("lost claims", error)

    async def _start(self, claims: list[Claim], asked_at: float) -> None:
        if self._stopping:  # stop() was called while the claim was in flight
            self._give_back(claims, "worker shut down")
            return
        if self._may_have_expired(asked_at):
            self._give_back(claims, EXPIRED)
            return
        unread: list[Attempt] = []
        quarantined = 0
        for claim in claims:
            attempt = self._hold(claim)
            if not (claim.losses or claim.excused or claim.stages or claim.signals):
                self._launch(attempt)  # nearly every job
            elif self._quarantine.takes(claim):
                self._quarantine.add(attempt)
                quarantined += 1
            elif (claim.stages or claim.signals) and self._registry.runs(claim):
                unread.append(attempt)
            else:
                self._launch(attempt)
        if unread:
            await self._load_and_launch(unread, since=asked_at)
        if quarantined:  # at once: if this claim has left no ready job, the next round is a poll away
            await self._start_quarantined()

    async def _load_and_launch(self, attempts: Sequence[Attempt], *, since: float) -> None:
        """Run claimed attempts with the stored state of their jobs; release those that cannot run.

        *since* is a moment at which their leases were valid.
        """
        try:
            found = await self._state_reader.read(
                [attempt.claim for attempt in attempts if not attempt.is_over]
            )
        except BaseException:
            for attempt in attempts:
                self._put_back(attempt, "worker shut down")
            raise
        expired = self._may_have_expired(max(since, self._lease_keeper.extended_at))
        for attempt in attempts:
            state = found.get(attempt.claim.id)
            if attempt.is_over:
                self._launch(
                    attempt
                )  # interrupted meanwhile: it returns its transition, and calls no function
            elif self._stopping:
                self._put_back(attempt, "worker shut down")
            elif state is None:
                delay = self._state_reader.delay(attempt.claim.id)
                self._put_back(attempt, "its stored state could not be read", delay=delay)
            elif expired:
                self._put_back(attempt, EXPIRED)
            else:
                attempt.load(state.stages, state.signals)
                self._launch(attempt)

    def _may_have_expired(self, since: float) -> bool:
        """Whether leases that were valid at *since* may expire before the lease keeper extends them.

        The process may have been suspended, or the store slow. The lease keeper extends all each third of the lease.
        """
        return self._clock.monotonic() - since > self.options.lease.total_seconds() * 2 / 3

    def _give_back(self, claims: list[Claim], why: str) -> None:
        """Release jobs whose function was not called, once the store answers."""
        for claim in claims:
            self._settler.post(AttemptOutcome.of(claim, release(claim, why)))

    def _hold(self, claim: Claim) -> Attempt:
        """Register a claimed job: its lease is extended from now on."""
        attempt = Attempt(claim, self._registry.get(claim.name), self._attempt_runtime)
        older = self._held.get(claim.id)
        if older is not None:
            older.interrupt(
                Interruption.REPLACED
            )  # its lease expired meanwhile, or it runs on after its deadline
        self._held[claim.id] = attempt
        return attempt

    async def _start_quarantined(self) -> int:
        """Start the quarantined jobs that may run now; release those that have waited too long.

        Their state is read after the store has recorded that they run: reading it, too, may crash the process.
        """
        if not self._quarantine.waiting:
            self._availability.answered("quarantine")
            return 0
        asked_at = self._clock.monotonic()
        try:
            attempts = await self._quarantine.begin(within=self._retry_timeout)
        except StoreUnavailable as error:
            self._availability.failed("quarantine", error)
            return 0
        self._availability.answered("quarantine")
        if attempts:
            await self._load_and_launch(attempts, since=asked_at)
        for attempt, delay in self._quarantine.take_surplus():
            self._put_back(attempt, "waits until other quarantined jobs have ended", delay=delay)
        return len(attempts)

    def _put_back(self, attempt: Attempt, why: str, *, delay: timedelta | None = None) -> None:
        """Release a job that this worker has claimed and whose function was not called."""
        self._quarantine.ended(attempt)
        if self._held.get(attempt.claim.id) is attempt:
            del self._held[attempt.claim.id]
        change = release(attempt.claim, why, delay=delay)
        self._settler.post(AttemptOutcome.of(attempt.claim, change))

    def _launch(self, attempt: Attempt) -> None:
        self._running += 1
        claim = attempt.claim
        context = self._contexts.get((claim.name, claim.queue)) or self._new_context(claim)
        # The attempt holds its task while it runs, and the worker holds the attempt.
        attempt.runs_in(self._loop.create_task(self._run(attempt), context=context.copy()))

    def _new_context(self, claim: Claim) -> Context:
        """Make the context in which attempts at jobs of one name and queue start: what they share is bound in it."""
        context = copy_context()
        if self._bind_job is not None:
            context.run(self._bind_job, claim)
        if (
            self._registry.get(claim.name) is not None
        ):  # unknown names are not cached: there is no bound on them
            self._contexts[claim.name, claim.queue] = context
        return context

    async def _run(self, attempt: Attempt) -> None:
        change, claim, began = None, attempt.claim, self._clock.monotonic()
        try:
            change = await attempt.run()
        finally:
            self._running -= 1
            if claim.losses or claim.excused:
                self._quarantine.ended(attempt)
            if self._held.get(claim.id) is attempt:
                del self._held[claim.id]
            if change is not None:
                seconds = self._clock.monotonic() - began
                self._settler.post(
                    AttemptOutcome(change, claim.attempt, seconds, attempt.trace, claim.name, claim.queue)
                )
            if self._more:
                self._wake.set()  # a slot is free for jobs that the last claim left
            else:
                self._wake_for_more()
            if self._releaser.lacks_slots:
                self._releaser.wake()

    def _wake_for_more(self) -> None:
        """Wake the claim loop after an attempt has ended, if ready jobs may be left or hints do not arrive."""
        if self._more or self._quarantine.waiting or not self._hints_arrive:
            self._wake.set()

    def _wake_for_requeued(self) -> None:
        """Look for jobs that were requeued: ready now, or due soon."""
        self._maintenance.wake()
        self._wake.set()

    async def _rest(self) -> None:
        """Wait until woken or until the next poll, whichever comes first."""
        pause = self.options.poll.total_seconds() * (1 + self._dice.roll())
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()

    def _on_hint(self, hint: Hint) -> None:
        self._hints_arrive = True
        match hint.kind:
            case HintKind.READY:
                self._wake_ups.notified(hint.subject, load=self._running / self.options.slots)
            case HintKind.TAKEN:
                self._wake_ups.taken(hint)
            case HintKind.CANCEL:
                self._lease_keeper.cancel(hint.subject)

    async def _shut_down(self) -> None:
        """Let attempts end within the grace time, then release their jobs; drain the settler last."""
        for attempt in self._quarantine.dismiss():
            self._put_back(attempt, "worker shut down")
        if self._lost_claims.expected():
            await self._give_back_lost_claims()
        await self._finish(self.options.grace, unless=self._stop_now)
        for attempt in list(self._held.values()):
            attempt.interrupt(Interruption.SHUTDOWN)
        # A second stop() does not shorten this: an interrupted attempt still has to return its transition.
        await self._finish(timedelta(seconds=5), unless=asyncio.Event())
        try:
            async with asyncio.timeout(10):
                await self._settler.drain()
                await self.admission.close()
        except TimeoutError:
            self._logger.error(
                "transitions unwritten at shutdown", worker=self.name, jobs=self._settler.unsettled
            )
            self._settler.give_up()

    async def _finish(self, limit: timedelta, *, unless: asyncio.Event) -> None:
        tasks = [attempt.task for attempt in self._held.values() if attempt.task is not None]
        if not tasks:
            return
        stop_now = asyncio.create_task(unless.wait())
        done = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait(
            [stop_now, done], timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        for waiting in (stop_now, done):
            waiting.cancel()


async def _nothing() -> None:
    """Stand in for the stop of a guard that was not started."""
