"""The fleet runner: it runs dispatched jobs inside a process of a Celery or arq worker.

The worker around it decides when a job starts: it receives a dispatch, and calls `run` with the job's id. Everything
else is as in a worker of Holdfast's own. What needs no code of the jobs, such as maintenance, is left to the process
that dispatches.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from holdfast.aio.batcher import Batcher
from holdfast.core.errors import JobNotFound, StoreUnavailable
from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, release
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.engine.providers.releaser import Releaser
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service
from holdfast.engine.worker.attempt_outcome import AttemptOutcome, Lease
from holdfast.engine.worker.job_runner import JobRunner
from holdfast.engine.worker.stop_request import StopRequest
from holdfast.ports import Hint, HintKind
from holdfast.ports.store import Settled

CLAIMS = 100
"""Jobs that are claimed in one statement at most."""

RESTART_AFTER = 0.5
"""Seconds until a service that failed unexpectedly is started again."""


class RunOutcome(StrEnum):
    """What a dispatch led to."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REQUEUED = "requeued"
    """It is retried later, is parked or held, or was released: it will be dispatched again."""
    SKIPPED = "skipped"
    """It was not ready: the dispatch came late, or a second time."""
    LOST = "lost"
    """Another worker has it by now; nothing was written."""


class Ran(NamedTuple):
    """What a dispatch led to, with the job's result as JSON, or its failure."""

    outcome: RunOutcome
    result: str | None = None
    failure: Failure | None = None


class FleetRunner:
    """Runs jobs by their ids, each when its dispatch arrives, between `start` and `shut_down`.

    *is_dead* says whether the process of a worker's name has ended on this machine: the jobs of such a one need not wait
    until their leases expire.
    """

    def __init__(
        self, name: str, runtime: Runtime, options: WorkerOptions, *, is_dead: Callable[[str], bool]
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._store = runtime.store
        self._options = options
        self._is_dead = is_dead
        self._stop = StopRequest()
        self._ends: dict[Lease, asyncio.Future[Ran]] = {}
        self._over_time: set[str] = set()
        """Jobs that reached the time limit before their attempt had started."""
        self._unstarted: set[Lease] = set()
        """The leases of jobs that are claimed, and whose attempts have not been started."""
        self._claiming = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._claims: Batcher[str, Claim | None] = Batcher(
            self._claim, limit=CLAIMS, name="holdfast dispatched claims"
        )
        self._housekeeping = _Housekeeping(runtime, self._keep_house, poll=options.poll.total_seconds())
        self._runner = JobRunner(
            name,
            runtime,
            options,
            stop=self._stop,
            closing=lambda: self._stop.made,
            written=lambda: None,
            requeued=lambda: None,
            slot_freed=self._housekeeping.wake,
            provider_changed=lambda: None,
            settled=self._settled,
            unwritten=self._unwritten,
        )
        self._services: list[Service] = [*self._runner.services, self._housekeeping]
        if runtime.registry.providers:
            self._services.append(self._new_releaser())
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        """Whether its services have been stopped."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._stop_guard: Callable[[], Awaitable[None]] | None = None

    def _new_releaser(self) -> Releaser:
        """Make the service that keeps the state of providers up to date, and takes its part in releasing held jobs."""
        return Releaser(
            self._runtime,
            self._options.poll,
            self._runner.admission,
            queues=tuple(self._runtime.registry.transports),
            wake_worker=lambda: None,
            free_slots=self._runner.slots.free,
        )

    @property
    def slots(self) -> int:
        """How many jobs it runs at a time."""
        return self._options.slots

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return self._runner.slots.running

    async def start(self) -> None:
        """Start the services that keep leases and notice cancellations."""
        self._unsubscribe = self._store.listen(self._on_hint, (HintKind.CANCEL,))
        for service in self._services:
            self._start_service(service)
        self._stop_guard = self._runner.guard_leases()
        self._runtime.logger.info("fleet runner started", worker=self.name, slots=self._options.slots)

    def _start_service(self, service: Service) -> None:
        """Start a service, and again if it fails: without its lease keeper a process would lose every lease.

        A worker of Holdfast's own ends then, and is started again; a process of a fleet has other tasks, too.
        """

        if self._closed:
            return
        task = service.start(self.name, self._runner.availability)
        self._tasks.add(task)
        task.add_done_callback(partial(self._service_ended, service))

    def _service_ended(self, service: Service, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._closed:
            return
        error = None if task.cancelled() else task.exception()
        message = "it was cancelled" if error is None else self._runtime.describe(error)
        self._runtime.logger.error(
            "fleet service restarted", worker=self.name, service=service.name, message=message
        )
        asyncio.get_running_loop().call_later(RESTART_AFTER, self._start_service, service)

    async def run(self, job_id: str) -> Ran:
        """Run the job if it is ready, and return what that led to once it is written. Raises `StoreUnavailable`."""
        if self._stop.made:
            return Ran(RunOutcome.SKIPPED)
        asked_at = self._runtime.clock.monotonic()
        claim = await self._claimed(job_id)
        if claim is None:
            self._over_time.discard(job_id)
            self._runtime.metrics.count("dispatches_skipped")
            return Ran(RunOutcome.SKIPPED)
        end = asyncio.get_running_loop().create_future()
        self._ends[claim.id, claim.token] = end
        try:
            await self._start(claim, asked_at)
            if job_id in self._over_time:
                self.reached_time_limit(job_id)
            return await asyncio.shield(end)
        finally:
            self._over_time.discard(job_id)
            if end.done():
                self._ends.pop((claim.id, claim.token), None)

    async def _claimed(self, job_id: str) -> Claim | None:
        """Claim the job; if the caller is cancelled meanwhile, release what was claimed for it."""
        claiming = asyncio.ensure_future(self._claim_one(job_id))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(self._release_unwanted)
            raise

    async def _claim_one(self, job_id: str) -> Claim | None:
        return await self._claims.ask(job_id) or await self._claim_from_dead(job_id)

    def _release_unwanted(self, claiming: "asyncio.Task[Claim | None]") -> None:
        claim = None if claiming.cancelled() or claiming.exception() else claiming.result()
        if claim is not None:
            self._release(claim)

    def _release(self, claim: Claim) -> None:
        """Release a job whose attempt was not started."""
        self._runner.settler.post(AttemptOutcome.of(claim, release(claim, "its caller was cancelled")))
        self._unstarted.discard((claim.id, claim.token))

    async def _start(self, claim: Claim, asked_at: float) -> None:
        """Start the attempt at a claimed job; one at a time, since quarantined jobs are begun in turn."""
        try:
            await self._starting.acquire()
        except asyncio.CancelledError:
            self._release(claim)
            raise
        try:
            await self._runner.launcher.start([claim], asked_at)  # it holds the job, or releases it, at once
        finally:
            self._starting.release()
            self._unstarted.discard((claim.id, claim.token))

    def reached_time_limit(self, job_id: str) -> None:
        """Stop the attempt at a job: it has reached the time limit of the worker around it, and fails by that."""
        attempt = self._runner.slots.held.get(job_id)
        if attempt is None:
            self._over_time.add(job_id)
        else:
            attempt.interrupt(Interruption.TIME_LIMIT)

    async def shut_down(self, *, at_once: bool = False) -> None:
        """Let running attempts end within the grace time, or stop them *at_once*; release the jobs of those left.

        A second call ends the grace time of the first, if it has *at_once*.
        """
        if at_once:
            self._stop.at_once.set()
        if self._stop.made:
            return
        self._stop.make()
        try:
            await self._claims.drain()
            await self._release_lost_claims()
            await self._runner.shut_down(at_once=self._stop.at_once, interrupting=lambda: None)
        finally:
            self._closed = True
            self._unsubscribe()
            for service in self._services:
                service.stop()
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self._stop_guard is not None:
                await self._stop_guard()
            for end in self._ends.values():
                if not end.done():
                    end.set_result(Ran(RunOutcome.LOST))
            self._runtime.logger.info("fleet runner stopped", worker=self.name)

    async def _claim(self, job_ids: list[str]) -> list[Claim | None]:
        """Claim these jobs in one statement; `None` stands for one that was not ready."""
        knows = self._runtime.registry.names
        async with self._claiming:
            try:
                claims = await self._store.dispatches.claim(
                    self.name, job_ids, lease=self._options.lease, knows=knows
                )
            except (StoreUnavailable, asyncio.CancelledError):
                self._runner.lost_claims.expect()
                raise
            self._unstarted.update((claim.id, claim.token) for claim in claims)
        found = {claim.id: claim for claim in claims}
        return [found.pop(job_id, None) for job_id in job_ids]  # of two dispatches of a job, one runs it

    async def _claim_from_dead(self, job_id: str) -> Claim | None:
        """Claim the job of a worker that has died on this machine, without waiting until its lease expires."""
        try:
            job = await self._store.get(job_id)
        except JobNotFound:
            return None
        worker = job.leased_by
        if job.status is not Status.PROCESSING or worker is None or not self._is_dead(worker):
            return None
        if not await self._store.dispatches.expire_lease(job_id, worker):
            return None
        await self._store.reclaim(limit=CLAIMS)
        self._runtime.logger.warning(
            "job reclaimed from dead process", job_id=job_id, name=job.name, queue=job.queue, worker=worker
        )
        return await self._claims.ask(job_id)

    async def _keep_house(self) -> None:
        """Release lost claims that are due, and start quarantined jobs that may run now."""
        if self._runner.lost_claims.due():
            await self._release_lost_claims()
        async with self._starting:
            await self._runner.launcher.start_quarantined()

    async def _release_lost_claims(self) -> None:
        """Release jobs that are leased to this runner without its knowledge, if there may be any."""
        lost_claims, availability = self._runner.lost_claims, self._runner.availability
        if not lost_claims.expected():
            return
        try:
            async with self._claiming:
                await lost_claims.release(self._unstarted)
            availability.answered("lost claims")
        except StoreUnavailable as error:
            availability.failed("lost claims", error)

    def _settled(self, outcome: AttemptOutcome, settled: Settled) -> None:
        self._end(outcome.lease, _ran(outcome, settled))

    def _unwritten(self, claim: Claim) -> None:
        self._end((claim.id, claim.token), Ran(RunOutcome.LOST))

    def _end(self, lease: Lease, ran: Ran) -> None:
        end = self._ends.pop(lease, None)
        if end is not None and not end.done():
            end.set_result(ran)

    def _on_hint(self, hint: Hint) -> None:
        self._runner.cancel_watcher.cancel(hint.subject)


class _Housekeeping(Service):
    """Calls *keep_house* at every poll, and whenever an attempt has ended."""

    name = "housekeeping"

    def __init__(self, runtime: Runtime, keep_house: Callable[[], Awaitable[None]], *, poll: float) -> None:
        super().__init__(runtime, store_pause=poll, first_after=poll)
        self._keep_house = keep_house
        self._poll = poll

    async def run_once(self) -> float:
        """Do what is due; return the seconds until the next run."""
        await self._keep_house()
        return self._poll


def _ran(outcome: AttemptOutcome, settled: Settled) -> Ran:
    """Return what the end of an attempt means for its dispatch, as the store has settled it."""
    change = outcome.change
    if settled is Settled.FENCED:
        return Ran(RunOutcome.LOST)
    if settled is not Settled.WRITTEN:
        return Ran(RunOutcome.TIMED_OUT)
    if not isinstance(change, Finish):
        return Ran(RunOutcome.REQUEUED)
    if change.if_overdue:
        return Ran(RunOutcome.TIMED_OUT, failure=change.failure)
    return Ran(RunOutcome(change.status.value), change.result, change.failure)
