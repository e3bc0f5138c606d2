"""The launcher: it starts the attempts at claimed jobs, or releases the jobs that may not start now.

Nearly every job starts at once. A job with stages or signals starts when its stored state has been read. One that is
suspected of crashing its workers waits in quarantine first.
"""

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from datetime import timedelta

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import release
from holdfast.engine.claiming.quarantine import Quarantine
from holdfast.engine.claiming.slots import Slots
from holdfast.engine.claiming.state_reader import StateReader
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.execution_state import Ended
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_availability import StoreAvailability
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.engine.worker.stop_request import StopRequest

EXPIRED = "its lease may have run out before it began"
SHUT_DOWN = "worker shut down"


class Launcher:
    """Starts attempts, each in a task of its own, and hands their ends to the settler."""

    def __init__(
        self,
        runtime: Runtime,
        attempt_runtime: AttemptRuntime,
        *,
        slots: Slots,
        quarantine: Quarantine,
        state_reader: StateReader,
        lease_keeper: LeaseKeeper,
        availability: StoreAvailability,
        stop: StopRequest,
        slot_freed: Callable[[], None],
        unwritten: Callable[[Claim], None],
    ) -> None:
        self._runtime = runtime
        self._registry = runtime.registry
        self._clock = runtime.clock
        self._attempt_runtime = attempt_runtime
        self._loop = attempt_runtime.loop
        self._settler = attempt_runtime.settler
        self._slots = slots
        self._quarantine = quarantine
        self._state_reader = state_reader
        self._lease_keeper = lease_keeper
        self._availability = availability
        self._stop = stop
        self._slot_freed = slot_freed
        self._unwritten = unwritten
        self._contexts: dict[tuple[str, str], Context] = {}
        """The contexts in which attempts start, by the name and queue of their jobs."""

    async def start(self, claims: list[Claim], asked_at: float) -> None:
        """Start the attempts at claimed jobs; *asked_at* is a moment before the claim."""
        if self._stop.made:  # stop() was called while the claim was in flight
            self._release_claims(claims, SHUT_DOWN)
            return
        if self._lease_keeper.may_have_expired(asked_at):
            self._release_claims(claims, EXPIRED)
            return
        unread: list[Attempt] = []
        quarantined = 0
        for claim in claims:
            attempt = Attempt(claim, self._registry.get(claim.name), self._attempt_runtime)
            self._slots.hold(attempt)
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
            await self.start_quarantined()

    def _release_claims(self, claims: list[Claim], why: str) -> None:
        """Release jobs whose function was not called, once the store answers."""
        for claim in claims:
            self._settler.post(AttemptOutcome.of(claim, release(claim, why)))

    async def start_quarantined(self) -> int:
        """Start the quarantined jobs that may run now; release those that have waited too long; return how many started.

        Their state is read after the store has recorded that they run: reading it, too, may crash the process.
        """
        if not self._quarantine.waiting:
            self._availability.answered("quarantine")
            return 0
        asked_at = self._clock.monotonic()
        try:
            attempts = await self._quarantine.begin()
        except StoreUnavailable as error:
            self._availability.failed("quarantine", error)
            return 0
        self._availability.answered("quarantine")
        if attempts:
            await self._load_and_launch(attempts, since=asked_at)
        for attempt, delay in self._quarantine.take_surplus():
            self._release_attempt(attempt, "waits until other quarantined jobs have ended", delay=delay)
        return len(attempts)

    def release_quarantined(self) -> None:
        """Release the quarantined jobs that have not started: the worker shuts down."""
        for attempt in self._quarantine.take_waiting():
            self._release_attempt(attempt, SHUT_DOWN)

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
                self._release_attempt(attempt, SHUT_DOWN)
            raise
        expired = self._lease_keeper.may_have_expired(max(since, self._lease_keeper.extended_at))
        for attempt in attempts:
            state = found.get(attempt.claim.id)
            if attempt.is_over:  # interrupted meanwhile: it returns its transition, and calls no function
                self._launch(attempt)
            elif self._stop.made:
                self._release_attempt(attempt, SHUT_DOWN)
            elif state is None:
                delay = self._state_reader.delay(attempt.claim.id)
                self._release_attempt(attempt, "its stored state could not be read", delay=delay)
            elif expired:
                self._release_attempt(attempt, EXPIRED)
            else:
                attempt.load(state.stages, state.signals)
                self._launch(attempt)

    def _release_attempt(self, attempt: Attempt, why: str, *, delay: timedelta | None = None) -> None:
        """Release a job that this worker has claimed and whose function was not called."""
        self._slots.drop(attempt)
        change = release(attempt.claim, why, delay=delay)
        self._settler.post(AttemptOutcome.of(attempt.claim, change))

    def _launch(self, attempt: Attempt) -> None:
        self._slots.started()
        claim = attempt.claim
        context = self._contexts.get((claim.name, claim.queue)) or self._new_context(claim)
        # The attempt holds its task while it runs, and the slots hold the attempt.
        attempt.runs_in(self._loop.create_task(self._run(attempt), context=context.copy()))

    def _new_context(self, claim: Claim) -> Context:
        """Make the context in which attempts at jobs of one name and queue start: what they share is bound in it."""
        context = copy_context()
        if self._runtime.bind_job is not None:
            context.run(self._runtime.bind_job, claim)
        if self._registry.get(claim.name) is not None:  # there is no bound on unknown names
            self._contexts[claim.name, claim.queue] = context
        return context

    async def _run(self, attempt: Attempt) -> None:
        change, claim, began = None, attempt.claim, self._clock.monotonic()
        try:
            change = await attempt.run()
        finally:
            self._slots.ended(attempt)
            if change is not None:
                seconds = self._clock.monotonic() - began
                rest = claim.attempt, seconds, attempt.trace, claim.name, claim.queue
                if isinstance(change, Ended):
                    self._settler.report(AttemptOutcome(change.end, *rest), change.settled)
                else:
                    self._settler.post(AttemptOutcome(change, *rest))
            else:
                self._unwritten(claim)
            self._slot_freed()
