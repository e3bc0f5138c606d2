"""The worker: it claims as many jobs as it has room for, runs them, and lets go cleanly.

Loops run side by side: this one claims and starts attempts; the `Keeper` extends leases and
hears cancellations, and the `LeaseGuard` extends them from a thread while the loop is blocked; the `Sweeper` wakes parked jobs and reclaims those of dead workers; the `Releaser`
lets out those that are held for a provider; the `Ticker` submits what recurs. Clerks look after dead letters: they
replay them, tell of them, and archive them. Attempts
end on their own and leave their transition with the `Settler`, which writes them in batches.
"""

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs import Claim
from holdfast.core.transitions import release
from holdfast.engine.archivist import Archivist
from holdfast.engine.attempt import Attempt, Interruption, Tools
from holdfast.engine.automatic import AutoReplayer
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.failure_texts import FailureTexts
from holdfast.engine.keeper import Keeper
from holdfast.engine.lease_guard import LeaseGuard
from holdfast.engine.lines import Exchange
from holdfast.engine.lost_claims import LostClaims
from holdfast.engine.options import WorkerOptions
from holdfast.engine.parts import Parts
from holdfast.engine.patience import Patience
from holdfast.engine.permits import Permits
from holdfast.engine.releasing import Releaser
from holdfast.engine.replaying import Replayer
from holdfast.engine.rounds import rounds
from holdfast.engine.settling import Outcome, Settler
from holdfast.engine.state_reader import StateReader
from holdfast.engine.strangers import Strangers
from holdfast.engine.suspects import Suspects
from holdfast.engine.sweeper import Sweeper
from holdfast.engine.telling import Teller
from holdfast.engine.ticker import Ticker
from holdfast.engine.wakeups import WakeUps
from holdfast.ports import Hint, HintKind

SHARES = 2
"""Parts in which the slots are filled: one runs while the next is claimed."""

AWAY = timedelta(seconds=10)
"""How long a worker insists that the store tells it what it needs to start a claimed job, if leases are long."""

EXPIRED = "its lease may have run out before it began"


class Worker:
    """Claims, runs and settles jobs until it is told to stop."""

    def __init__(self, name: str, parts: Parts, options: WorkerOptions) -> None:
        self.name = name
        self.options = options
        self.ready = asyncio.Event()
        self._store = parts.store
        self._registry = parts.registry
        self._clock = parts.clock
        self._dice = parts.dice
        self._journal = parts.journal
        self._describe = parts.describe
        self._availability = StoreAvailability(name, parts.clock, parts.journal)
        self._patience = Patience(parts.clock, parts.dice)
        self._held: dict[str, Attempt] = {}
        self._running = 0
        self._news = asyncio.Event()
        self._wake_ups = WakeUps(name, options.queues, self._news.set, dice=parts.dice)
        self._more = True
        """Whether there may be ready jobs that the last round of claims has left."""
        self._hears = False
        """Whether hints have ever arrived. Without any, the end of each attempt is an occasion to look."""
        self._stopping = False
        self.stopped = False
        """Whether it has let go of everything, and said so."""
        self._hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._main: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        # Short beside a lease: there is time to read jobs together, and then each alone, before it is over.
        self._insists_for = min(AWAY, options.lease / 4)
        self._state_reader = StateReader(
            name,
            parts.store,
            self._patience,
            within=self._insists_for,
            clock=parts.clock,
            journal=parts.journal,
            describe=parts.describe,
        )
        self._suspects = Suspects(
            parts.store, parts.registry, self._patience, clock=parts.clock, slots=options.slots
        )
        self._watchdog = parts.watchdog
        self._sweeper = Sweeper(
            parts.store,
            options,
            self._news,
            clock=parts.clock,
            dice=parts.dice,
            journal=parts.journal,
            metrics=parts.metrics,
        )
        exchange = Exchange(
            store=parts.store,
            worker=name,
            patience=self._patience,
            dice=parts.dice,
            journal=parts.journal,
            metrics=parts.metrics,
            changed=self._hear_of_provider,
        )
        self.permits = Permits(parts.registry, exchange)
        """What this worker knows of providers."""
        self._releaser = Releaser(
            parts.store,
            self.permits,
            parts.registry,
            options,
            self._news,
            dice=parts.dice,
            journal=parts.journal,
            free_slots=self._free_slots,
        )
        clerks = {
            "replayer": Replayer(parts, self._news).run_once,
            "automatic replayer": AutoReplayer(parts).run_once,
            "teller": Teller(parts).run_once,
            "archivist": Archivist(parts).run_once,
        }
        self._clerks = {
            what: partial(rounds, once, what=what, parts=parts, availability=self._availability)
            for what, once in clerks.items()
        }
        self._ticker = Ticker(
            parts.store, parts.registry, ids=parts.ids, journal=parts.journal, metrics=parts.metrics
        )
        self._settler = Settler(
            parts.store,
            name,
            self._patience,
            written=self._look_for_more,
            parked=self._look_again,
            describe=parts.describe,
            journal=parts.journal,
            metrics=parts.metrics,
            development=parts.development,
        )
        self._keeper = Keeper(
            name,
            parts.store,
            self._held,
            self._settler.pending,
            options,
            clock=parts.clock,
            journal=parts.journal,
        )
        self._lost_claims = LostClaims(
            name,
            parts.store,
            self._settler,
            lease=options.lease,
            poll=options.poll,
            clock=parts.clock,
            journal=parts.journal,
        )
        self._tools = Tools(
            settler=self._settler,
            strangers=Strangers(name, parts.clock, parts.journal),
            failures=FailureTexts(parts.classifier, parts.executor),
            dice=parts.dice,
            executor=parts.executor,
            journal=parts.journal,
            store=parts.store,
            patience=self._patience,
            loop=self._loop,
            closing=self._closing,
            permits=self.permits,
            tracer=parts.tracer,
            fingerprint=parts.fingerprint,
            code_version=parts.letters.code_version,
            allowed=parts.redactor.context,
            at_deadline=self._keeper.look_soon,
            bind_job=parts.bind_job,
        )

    def _hear_of_provider(self) -> None:
        self._releaser.hurry()

    def _closing(self) -> bool:
        """Whether a cancellation that comes now is the end of the process, not a handler's doing."""
        return self._stopping or (self._main is not None and self._main.cancelling() > 0)

    @property
    def running(self) -> int:
        """How many attempts are under way."""
        return self._running

    @property
    def stopping(self) -> bool:
        """Whether it claims nothing more."""
        return self._stopping

    @property
    def unsettled(self) -> int:
        """How many attempts have ended without their end being written yet."""
        return self._settler.unsettled

    def stop(self) -> None:
        """Claim nothing more and finish what is in hand; asked twice, let go of it at once."""
        if self._stopping:
            self._hurry.set()
        self._stopping = True
        self._news.set()

    async def run(self) -> None:
        """Work until told to stop, then finish what is in hand within the grace time, or give it back."""
        self._main = asyncio.current_task()
        deafen = self._store.listen(self._hear)
        helpers = [
            asyncio.create_task(self._keeper.run(self._availability), name=f"{self.name} keeper"),
            asyncio.create_task(
                self._keeper.watch_cancellations(self._availability), name=f"{self.name} cancellations"
            ),
            asyncio.create_task(self._sweeper.run(self._availability), name=f"{self.name} sweeper"),
            asyncio.create_task(self._releaser.run(self._availability), name=f"{self.name} releaser"),
            asyncio.create_task(self._ticker.run(self._availability), name=f"{self.name} ticker"),
            *(asyncio.create_task(run(), name=f"{self.name} {what}") for what, run in self._clerks.items()),
        ]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        self._journal.info("worker started", worker=self.name, slots=self.options.slots)
        # What is alive now stays so: left to the collector, every pass would walk over all of it again,
        # and attempts come and go by the thousand.
        gc.freeze()
        unguard = self._guard_leases()
        try:
            while not self._stopping:
                if await self.run_once() == 0 or not self._more:
                    await self._rest()
        finally:
            self._stopping = True
            try:
                await self._let_go()
            finally:  # whoever cancels twice does not wait, but leaves no helper behind either
                deafen()
                self._wake_ups.close()
                for helper in helpers:
                    helper.cancel()
            try:
                await asyncio.wait(helpers)
            finally:
                await unguard()
            gc.unfreeze()
            self.stopped = True
            self._journal.info("worker stopped", worker=self.name)
        if self._broken is not None:
            raise self._broken

    def _guard_leases(self) -> Callable[[], Awaitable[None]]:
        """Have leases extended while the loop is blocked, until the returned function is called."""
        if self._watchdog is None:
            return _nothing
        guard = LeaseGuard(
            self.name,
            self._keeper,
            self._store.lease_extender(),
            self._held,
            lease=self.options.lease,
            clock=self._clock,
            journal=self._journal,
        )
        started = AsyncExitStack()  # the log is left last: it has to say how the guard ended

        async def unguard() -> None:
            guard.stop_beating()
            await started.aclose()

        try:
            started.push_async_callback(self._watchdog.start(guard.write_log, close=guard.write_log))
            started.push_async_callback(self._watchdog.start(guard.check, close=guard.close))
        except RuntimeError as error:  # there is no thread for it: the loop extends its leases all the same
            self._journal.warning("lease guard not started", worker=self.name, message=str(error))
            return unguard
        guard.beat()
        return unguard

    def _helper_ended(self, helper: "asyncio.Task[None]") -> None:
        """Stop if a helper broke: without its keeper a worker would lose every lease it takes."""
        broken = self._why_it_ended(helper)
        if broken is not None:
            self._broken = broken
            self._journal.error("worker broken", worker=self.name, message=self._describe(broken))
            self.stop()

    def _why_it_ended(self, helper: "asyncio.Task[None]") -> BaseException | None:
        if not helper.cancelled():
            return helper.exception()
        if self._closing():
            return None
        return RuntimeError(f"the task {helper.get_name()!r} was cancelled by somebody else")

    async def run_once(self) -> int:
        """Claim what there is room for and start it; return how many jobs that were."""
        self._news.clear()
        self._more = True
        if self._lost_claims.due():
            await self._give_back_lost_claims()
        elif not self._lost_claims.expected():
            # It is not asked for them any more, so it fails no longer.
            self._availability.answered("lost claims")
        started, more = await self._start_suspects(), False
        paused = self._sweeper.paused
        if paused is None:
            return 0  # the first sweep finds out which queues are paused, and then there is news
        queues = self._order(paused)
        if not queues:
            self._availability.answered("worker")  # all of them are paused: there is nothing to ask for
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
        slots, running = self.options.slots, self._running + self._suspects.waiting
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
            await asyncio.sleep(self._patience.pause(4))
            return []

    async def _give_back_lost_claims(self) -> None:
        held = {(attempt.claim.id, attempt.claim.token) for attempt in self._held.values()}
        try:
            await self._lost_claims.give_back(held)
            self._availability.answered("lost claims")
        except StoreUnavailable as error:
            self._availability.failed("lost claims", error)

    async def _start(self, claims: list[Claim], asked_at: float) -> None:
        if self._stopping:  # it was told so while the claim was on its way
            self._give_back(claims, "worker shut down")
            return
        if self._may_have_expired(asked_at):
            self._give_back(claims, EXPIRED)
            return
        suspects = {claim.id for claim in self._suspects.among(claims)}
        unread: list[Attempt] = []
        for claim in claims:
            attempt = self._hold(claim)
            if claim.id in suspects:
                self._suspects.add(attempt)
            elif (claim.stages or claim.signals) and self._registry.runs(claim):
                unread.append(attempt)
            else:
                self._launch(attempt)
        if unread:
            await self._load_and_launch(unread, since=asked_at)
        if suspects:  # at once: if this claim has left nothing, the next round is a poll away
            await self._start_suspects()

    async def _load_and_launch(self, attempts: Sequence[Attempt], *, since: float) -> None:
        """Run attempts that are held, with what the store holds of their jobs; put back those that cannot run.

        *since* is a moment at which their leases were good.
        """
        try:
            found = await self._state_reader.read(
                [attempt.claim for attempt in attempts if not attempt.is_over]
            )
        except BaseException:
            for attempt in attempts:
                self._put_back(attempt, "worker shut down")
            raise
        expired = self._may_have_expired(max(since, self._keeper.extended_at))
        for attempt in attempts:
            state = found.get(attempt.claim.id)
            if attempt.is_over:
                self._launch(
                    attempt
                )  # it was stopped meanwhile: it says what that leads to, and runs nothing
            elif self._stopping:
                self._put_back(attempt, "worker shut down")
            elif state is None:
                delay = self._state_reader.delay(attempt.claim.id)
                self._put_back(attempt, "what is stored of it could not be read", delay=delay)
            elif expired:
                self._put_back(attempt, EXPIRED)
            else:
                attempt.load(state.stages, state.signals)
                self._launch(attempt)

    def _may_have_expired(self, since: float) -> bool:
        """Whether leases that were good at *since* may be over before the keeper extends them.

        The process may have slept, or the store may have been slow. Each third of the lease the keeper extends all.
        """
        return self._clock.monotonic() - since > self.options.lease.total_seconds() * 2 / 3

    def _give_back(self, claims: list[Claim], why: str) -> None:
        """Release jobs that have not begun, once the store answers."""
        for claim in claims:
            self._settler.post(Outcome.of(claim, release(claim, why)))

    def _hold(self, claim: Claim) -> Attempt:
        """Have the lease of a claimed job extended from now on."""
        attempt = Attempt(claim, self._registry.get(claim.name), None, self._tools)
        older = self._held.get(claim.id)
        if older is not None:
            older.interrupt(
                Interruption.REPLACED
            )  # it slept through its lease, or goes on after its deadline
        self._held[claim.id] = attempt
        return attempt

    async def _start_suspects(self) -> int:
        """Run the suspects whose turn it is, and give those back that have waited too long for it.

        What is stored of them is read when the store knows that they run: that, too, may take the process down.
        """
        asked_at = self._clock.monotonic()
        try:
            attempts = await self._suspects.begin(within=self._insists_for)
        except StoreUnavailable as error:
            self._availability.failed("suspects", error)
            return 0
        self._availability.answered("suspects")
        if attempts:
            await self._load_and_launch(attempts, since=asked_at)
        for attempt, delay in self._suspects.take_surplus():
            self._put_back(attempt, "waits until other suspects have ended", delay=delay)
        return len(attempts)

    def _put_back(self, attempt: Attempt, why: str, *, delay: timedelta | None = None) -> None:
        """Release a job that was held by this worker, and whose function was not called."""
        self._suspects.ended(attempt)
        if self._held.get(attempt.claim.id) is attempt:
            del self._held[attempt.claim.id]
        change = release(attempt.claim, why, delay=delay)
        self._settler.post(Outcome.of(attempt.claim, change))

    def _launch(self, attempt: Attempt) -> None:
        self._running += 1
        # The attempt holds its task while it runs, and the worker holds the attempt.
        attempt.task = self._loop.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        change, number, began = None, attempt.claim.attempt, self._clock.monotonic()
        try:
            change = await attempt.run()
        finally:
            self._running -= 1
            self._suspects.ended(attempt)
            if self._held.get(attempt.claim.id) is attempt:
                del self._held[attempt.claim.id]
            if change is not None:
                seconds = self._clock.monotonic() - began
                claim = attempt.claim
                self._settler.post(
                    Outcome(change, number, seconds, attempt.trace, name=claim.name, queue=claim.queue)
                )
            self._look_for_more()
            self._releaser.slot_freed()

    def _look_for_more(self) -> None:
        """Claim again after an attempt has ended, if it has made room for jobs that were left, or hints do not arrive."""
        if self._more or self._suspects.waiting or not self._hears:
            self._news.set()

    def _look_again(self) -> None:
        """Look for jobs that went back to their queue, ready or soon due."""
        self._sweeper.hurry()
        self._news.set()

    async def _rest(self) -> None:
        """Wait for news or for the next poll, whichever comes first."""
        pause = self.options.poll.total_seconds() * (1 + self._dice.roll())
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._news.wait()

    def _hear(self, hint: Hint) -> None:
        self._hears = True
        match hint.kind:
            case HintKind.READY:
                self._wake_ups.notified(hint.subject, load=self._running / self.options.slots)
            case HintKind.TAKEN:
                self._wake_ups.taken(hint)
            case HintKind.CANCEL:
                self._keeper.cancel(hint.subject)
            case HintKind.FINISHED:
                return

    async def _let_go(self) -> None:
        """Finish within the grace time, else give jobs back with their attempt; the store is left last."""
        for attempt in self._suspects.dismiss():
            self._put_back(attempt, "worker shut down")
        if self._lost_claims.expected():
            await self._give_back_lost_claims()
        await self._finish(self.options.grace, unless=self._hurry)
        for attempt in list(self._held.values()):
            attempt.interrupt(Interruption.SHUTDOWN)
        # Nobody hurries this: an attempt that is being stopped still has to say what becomes of its job.
        await self._finish(timedelta(seconds=5), unless=asyncio.Event())
        try:
            async with asyncio.timeout(10):
                await self._settler.drain()
                await self.permits.close()
        except TimeoutError:
            self._journal.error("unsettled at shutdown", worker=self.name, jobs=self._settler.unsettled)
            self._settler.give_up()

    async def _finish(self, limit: timedelta, *, unless: asyncio.Event) -> None:
        tasks = [attempt.task for attempt in self._held.values() if attempt.task is not None]
        if not tasks:
            return
        hurry = asyncio.create_task(unless.wait())
        done = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait([hurry, done], timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        for waiting in (hurry, done):
            waiting.cancel()


async def _nothing() -> None:
    """There is no guard to end."""
