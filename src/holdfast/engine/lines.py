"""One provider as this process sees it: what may be called, and what there is to report.

A line exchanges with the store what all workers share. One exchange brings everything: it reports how calls
ended, asks for moments and for a share of the calls at a time, and learns how the gate stands. While one is on
its way the next gathers; so calls cost no write of their own, and what a line knows is at most a report old.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from holdfast.core.breakers import (
    TRIAL_LEASE,
    Cause,
    Change,
    Gate,
    Outcome,
    Report,
    Way,
    all_released,
    heard,
    is_as_calm,
    keep_trials,
    news_of,
    take_trial,
    way,
)
from holdfast.core.errors import StoreUnavailable
from holdfast.core.limits import AHEAD, LEASE, Grant, Quota
from holdfast.core.providers import ProviderSpec, ProviderState
from holdfast.engine.exchanging import Read, Step, Told, swap
from holdfast.engine.patience import Patience
from holdfast.engine.turns import Turns
from holdfast.ports import Dice, Journal, Metrics, Store

T = TypeVar("T")

REPORT_EVERY = 0.05
"""Seconds for which outcomes gather at most, and for which what was learned is taken for true."""

A_MOMENT = REPORT_EVERY / 5
"""Seconds that do not count as a wait."""

LOOK_AGAIN = REPORT_EVERY * 0.7
"""Seconds after which a line that is used looks again, so that hardly any call has to wait for news."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the lines of a worker use."""

    store: Store
    worker: str
    patience: Patience
    dice: Dice
    journal: Journal
    metrics: Metrics
    changed: Callable[[], None]
    """Called when a gate has opened or shut, or a limit has room: jobs may be let out."""


class Ticket(NamedTuple):
    """Leave to make one call: by which generation of the gate, and as which trial."""

    generation: int
    trial: str | None = None


class _Answer(NamedTuple):
    """What an exchange brought of the limits."""

    retries: int
    grants: list[Grant]
    keys: Mapping[str, Quota]
    now: float


class Line:
    """What one worker knows of a provider, and what it has of its limits."""

    def __init__(self, spec: ProviderSpec, exchange: Exchange) -> None:
        self.spec = spec
        self.state = ProviderState()
        self.held_keys: set[str] = set()
        """Whose jobs are held for a limit, as far as this worker knows: newcomers with these keys stand behind them."""
        self._store = exchange.store
        self._worker = exchange.worker
        self._patience = exchange.patience
        self._dice = exchange.dice
        self._journal = exchange.journal
        self._metrics = exchange.metrics
        self._changed = exchange.changed
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        """Tells the time by which calls are measured."""
        self._free: Ticket | None = None
        self._pace = LOOK_AGAIN
        self._version = -1
        self._ahead = 0.0
        self._known_at: float | None = None
        self._reports: list[Report] = []
        self._calm = 0
        self._met = 0
        self._told = 0
        """Failures that this worker has met, and those of them that are told: the next call waits until all are."""
        self._closed = False
        self._trials: set[str] = set()
        self._taken = 0
        self._lent_keys: set[str] = set()
        """Of whose calls this worker may have a share."""
        self._turns = Turns(spec.limits, spec.key_limits, ask=self._at_once)
        self._retrying: list[asyncio.Future[bool]] = []
        self._firsts = 0
        self._ended: Counter[str] = Counter()
        self._seconds: list[float] = []
        self._exchange: asyncio.Task[None] | None = None
        self._back = asyncio.Event()
        """Set when the exchange that is on its way is back."""
        self._timer: asyncio.Handle | None = None
        self._due = 0.0

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.spec.name

    @property
    def now(self) -> float:
        """The store's time, as far as this process knows it."""
        return self._loop.time() + self._ahead

    @property
    def takes_calls(self) -> bool:
        """Whether new calls go through the gate, be it as trials, as far as this process knows."""
        return way(self.state.gate, self.spec.breaker, self.now) is not Way.NONE

    async def gate(self) -> Gate:
        """The gate as it was at most one report before this was asked, and after all failures met until then."""
        asked_at, met, tries = self._loop.time(), self._met, 0
        while not self._knows(asked_at, met):
            known_at = self._known_at
            await self._exchanged()
            if self._known_at == known_at:  # the store is away
                tries += 1
                await asyncio.sleep(self._patience.pause(tries))
        return self.state.gate

    def _knows(self, asked_at: float, met: int) -> bool:
        """Whether what is known is new enough for somebody who asked then, when so many failures had been met."""
        return self._told >= met and self._known_at is not None and self._known_at >= asked_at - REPORT_EVERY

    def free_ticket(self) -> Ticket | None:
        """Give leave at once, if nobody has to be asked: the gate is known to stand open, and there are no limits."""
        return self._free if self._free is not None and self._knows(self._loop.time(), self._met) else None

    async def ticket(self, *, released: bool, checked_at: float) -> Ticket | None:
        """Give leave for a call, if the gate lets it through; *released* jobs were held for it.

        Who looked at the gate at *checked_at*, and did not have to wait since then, need not look again.
        """
        gate = self.state.gate if self._loop.time() - checked_at < A_MOMENT else await self.gate()
        match way(gate, self.spec.breaker, self.now, released=released):
            case Way.FREE:
                return Ticket(gate.generation)
            case Way.TRIAL:
                return await self._trial()
            case _:
                return None

    async def _trial(self) -> Ticket | None:
        self._taken += 1
        slot = f"{self._worker} {self._taken}"

        def take(state: ProviderState, now: float) -> tuple[ProviderState, Ticket | None, Sequence[Told]]:
            gate = take_trial(state.gate, self.spec.breaker, now, slot=slot)
            if gate is None:
                return state, None, ()
            return replace(state, gate=gate), Ticket(gate.generation, slot), ()

        # Said again after a lost answer, it is the same slot.
        ticket = await self._patience.insist(lambda _: self.change(take))
        if ticket is not None:
            self._trials.add(slot)
            self._metrics.count("provider_trials", provider=self.name)
            self._soon(TRIAL_LEASE / 3)
        return ticket

    def report(self, ticket: Ticket, outcome: Outcome, seconds: float) -> None:
        """Have the end of a call told, soon."""
        self._ended[outcome.value] += 1
        self._seconds.append(seconds)
        calm = outcome is Outcome.SUCCESS and not self.spec.breaker.is_slow(seconds)
        if calm and self._calm > self.spec.breaker.window and self._timer is not None:
            return  # nearly every call
        report = self._report_of(ticket, outcome, seconds)
        self._trials.discard(ticket.trial or "")
        self._calm = self._calm + 1 if calm else 0
        # Of a long run of good calls, the window holds no more than this.
        if self._calm <= self.spec.breaker.window:
            self._reports.append(report)
        self._met += outcome is Outcome.FAILURE
        self._soon(self._pace if calm else 0.0)

    async def judge(
        self, ticket: Ticket, outcome: Outcome, seconds: float, *, wait: float | None = None
    ) -> bool:
        """Tell at once how a call ended that may decide by itself; false if it was decided before without it."""
        self._ended[outcome.value] += 1
        self._seconds.append(seconds)
        report = self._report_of(ticket, outcome, seconds)._replace(wait=wait)
        self._trials.discard(ticket.trial or "")

        def hear(state: ProviderState, now: float) -> tuple[ProviderState, bool, Sequence[Told]]:
            gate, changes = heard(state.gate, self.spec.breaker, [report], now)
            return replace(state, gate=gate), report.generation == state.gate.generation, _told(changes)

        # Said again after a lost answer it may count twice, or find the gate shut by itself: both err towards patience.
        return await self._patience.insist(lambda _: self.change(hear))

    def _report_of(self, ticket: Ticket, outcome: Outcome, seconds: float) -> Report:
        return Report(outcome, ticket.generation, slow=self.spec.breaker.is_slow(seconds), trial=ticket.trial)

    async def may_retry(self) -> bool:
        """Whether one more call may be a retry, by the budget for those."""
        if self.spec.retry_budget is None:
            return True
        turn: asyncio.Future[bool] = self._loop.create_future()
        self._retrying.append(turn)
        self._at_once()
        return await turn

    async def enter(self, key: str, *, released: bool, retry: bool) -> bool:
        """Wait for this call's turn under the limits; false if that would take too long.

        Whoever comes new does not wait while others are held for the same limit: they would never get out.
        """
        if not self.spec.limited:
            return True
        entered = await self._turns.enter(key, may_wait=released or key not in self.held_keys)
        self._firsts += entered and not retry
        if not entered:
            self.held_keys.add(key)
        return entered

    def leave(self, key: str) -> None:
        """Give back the place of a call that has ended."""
        if not self.spec.limited:
            return
        self._turns.leave(key)
        if self.spec.counts_places:
            self._soon(0.0 if self._turns.anybody else REPORT_EVERY)

    async def change(
        self, step: "Step[T]", *, keys: Callable[[ProviderState], Iterable[str]] = lambda _: ()
    ) -> T:
        """Decide by the state as it is now, and by that of some *keys*, and write what follows. Raises `StoreUnavailable`."""
        done = await swap(self._store, self.name, step, dice=self._dice, keys=keys)
        self.learn(done.read)
        self._pace = LOOK_AGAIN if not done.lost else REPORT_EVERY
        for entry in done.told:
            self._tell(entry)
        return done.answer

    def learn(self, read: Read) -> None:
        """Take over what was read of this provider, unless something newer is known.

        A lower version that was asked for later is new, too: a database that was put back to an earlier state.
        """
        if read.version < self._version and read.asked_at < (self._known_at or 0.0):
            return
        answered_at = self._loop.time()
        self.state, self._version = read.state, read.version
        # What took long on its way is as old as that, less one report: a busy loop would else know nothing, ever.
        self._known_at = max(read.asked_at, answered_at - REPORT_EVERY)
        self._ahead = read.now - (read.asked_at + answered_at) / 2
        gate, quota = read.state.gate, read.state.quota
        open_to_all = not self.spec.limited and gate.is_clear
        self._free = Ticket(gate.generation) if open_to_all else None
        if self.spec.limits.concurrency is not None:
            self._turns.lend(quota.places(self.spec.limits, self._worker, read.now), self._lent_for(read))

    def _lent_for(self, read: Read) -> float:
        share = read.state.quota.shares.get(self._worker)
        return 0.0 if share is None else share.expires - read.now

    async def nobody_is_held(self) -> None:
        """Note that the release of held jobs is over."""
        await self.change(lambda state, _: (replace(state, gate=all_released(state.gate)), None, ()))

    async def close(self) -> None:
        """Report what is left, and give the share back."""
        try:
            while self._exchange is not None:
                await asyncio.wait([self._exchange])
            if self._reports or self._lent_keys or self._worker in self.state.quota.shares:
                await self._exchanged()
        finally:
            self._stop()

    def _stop(self) -> None:
        """Let nothing go on: neither what is due, nor what takes too long."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
        self._flush()

    def _flush(self) -> None:
        """Hand over the figures of the calls that ended."""
        for outcome, count in self._ended.items():
            self._metrics.count("provider_calls", count, provider=self.name, outcome=outcome)
        for name, values in (("provider_seconds", self._seconds), ("permit_seconds", self._turns.waited)):
            if values:
                self._metrics.observe(name, list(values), provider=self.name)
                values.clear()
        self._ended.clear()

    def _tell(self, entry: Told) -> None:
        """Log and count what happened to the gate; whoever wrote it does, and nobody else."""
        tell = self._journal.info
        if entry.kind == "opened" and not entry.meta.get("again"):
            blocked = entry.meta["cause"] == Cause.BLOCKED
            tell = self._journal.error if blocked else self._journal.warning
            self._metrics.count("provider_openings", provider=self.name)
        elif entry.kind == "closed":
            self._metrics.count("provider_shut_seconds", round(entry.meta["seconds"]), provider=self.name)
        tell(f"provider {entry.kind}", provider=self.name, **entry.meta)
        self._changed()

    def _at_once(self) -> None:
        self._soon(0.0)

    def _soon(self, delay: float) -> None:
        """Have an exchange in *delay* seconds at the latest."""
        due = self._loop.time() + delay
        if self._timer is not None:
            if self._due <= due:  # uvloop's timers do not tell when they are due
                return
            self._timer.cancel()
        self._due, self._timer = due, self._loop.call_at(due, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # what it was for goes now
            self._timer = None
        if self._exchange is None:
            self._back = asyncio.Event()
            self._exchange = self._loop.create_task(self._swap(), name=f"holdfast provider {self.name!r}")
            self._exchange.add_done_callback(self._over)
        else:
            self._exchange.add_done_callback(lambda _: self._at_once())  # what gathered meanwhile goes next

    def _over(self, exchange: "asyncio.Task[None]") -> None:
        self._exchange = None
        self._back.set()
        if exchange.cancelled():
            self._try_again()  # by somebody who cancels what is not theirs, or at the very end
        elif exchange.exception() is not None:
            self._journal.error(
                "provider line broken", provider=self.name, message=type(exchange.exception()).__name__
            )

    def _try_again(self) -> None:
        """Have another exchange for those who wait for it, unless this is the end."""
        if not self._closed and (self._turns.anybody or self._retrying or self._has_leases()):
            self._soon(self._patience.pause(1))

    async def _exchanged(self) -> None:
        """Have one exchange, or wait for the one that is on its way."""
        if self._exchange is None:
            self._start()
        await self._back.wait()

    async def _swap(self) -> None:
        reports, self._reports, self._calm = self._reports, [], 0
        retrying = list(self._retrying)
        firsts, self._firsts = self._firsts, 0
        met = self._met
        wish = self._turns.wish()
        keys = {*wish.using, *wish.waiting, *self._lent_keys} if self.spec.key_limits.any else set[str]()
        self._flush()

        def step(state: ProviderState, now: float) -> tuple[ProviderState, _Answer, Sequence[Told]]:
            gate, changes = heard(state.gate, self.spec.breaker, reports, now)
            gate = keep_trials(gate, self._trials, now)
            if not changes and is_as_calm(state.gate, gate, self.spec.breaker, now):
                gate = state.gate
            state, retries = replace(state, gate=gate).give_retries(
                self.spec, firsts=firsts, wanted=len(retrying), now=now
            )
            state, grants = state.give(self.spec, self._worker, wish, now)
            return state, _Answer(retries, grants, state.keys, now), _told(changes)

        if self.spec.key_limits.concurrency is not None:
            self._lent_keys = keys  # also if it will not be known whether this was written
        try:
            answer = await self.change(step, keys=lambda _: keys)
        except StoreUnavailable as error:
            # Whether it was written is not known, and no outcome may count twice: they are dropped.
            self._journal.warning("provider report lost", provider=self.name, message=str(error))
            self._try_again()
            return
        finally:
            self._told = met
        self._lent_keys = {key for key, quota in answer.keys.items() if self._worker in quota.shares}
        self._serve(answer, retrying)

    def _serve(self, answer: _Answer, retrying: Sequence["asyncio.Future[bool]"]) -> None:
        """Let those go on whose turn it is."""
        for number, turn in enumerate(turn for turn in retrying if not turn.done()):
            turn.set_result(number < answer.retries)
        del self._retrying[: len(retrying)]  # those who came meanwhile stand behind them
        self._turns.serve(answer.grants, answer.now)
        if self.spec.limits.rate is not None and self.state.quota.next_at > answer.now + AHEAD:
            self._turns.refuse_all()
        if self._turns.anybody:
            self._soon(REPORT_EVERY)
            return
        if self.held_keys:
            self._changed()  # there is room for somebody who waits outside
        if self._has_leases():
            self._soon(LEASE / 3)

    def _has_leases(self) -> bool:
        """Whether something was lent to this worker that has to be renewed."""
        return bool(self._trials) or (self.spec.counts_places and self._turns.using > 0)


def _told(changes: Sequence[Change]) -> list[Told]:
    return [Told(change.kind, news_of(change)) for change in changes]
