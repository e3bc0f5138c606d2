"""One provider as this process sees it: what may be called, and what there is to report.

A link exchanges with the store what all workers share. One exchange does everything: it reports how calls
ended, asks for start times and for a share of the concurrent calls, and reads the breaker's state. While one is
in flight the next collects reports; so calls cost no write of their own, and a link is at most one report behind.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.core.providers.breaker_state import BreakerState, OpenCause
from holdfast.core.providers.call_reports import (
    BreakerChange,
    CallOutcome,
    CallReport,
    apply_reports,
    event_details,
    needs_no_write,
)
from holdfast.core.providers.limits import AHEAD, LEASE, Grant, Quota
from holdfast.core.providers.permission import (
    TRIAL_LEASE,
    CallPermission,
    call_permission,
    extend_trials,
    take_trial,
)
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.core.providers.recovery import all_released
from holdfast.engine.providers.limiter import Limiter
from holdfast.engine.providers.shared_state import Announcement, SharedState, Step, swap
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Dice, Logger, Metrics, Store

T = TypeVar("T")

REPORT_EVERY = 0.05
"""Seconds for which outcomes are collected at most, and for which the state that was read counts as fresh."""

NEGLIGIBLE_WAIT = REPORT_EVERY / 5
"""Seconds that do not count as a wait."""

REFRESH_AFTER = REPORT_EVERY * 0.7
"""Seconds after which a link in use reads again, so that hardly any call has to wait for a fresh state."""


@dataclass(frozen=True, slots=True)
class LinkRuntime:
    """The dependencies of a worker's links."""

    store: Store
    worker: str
    store_retry: StoreRetry
    dice: Dice
    logger: Logger
    metrics: Metrics
    changed: Callable[[], None]
    """Called when a breaker has opened or closed, or a limit has room: held jobs may be released."""


class CallToken(NamedTuple):
    """Permission for one call: the generation of the breaker that gave it, and the trial's slot."""

    generation: int
    trial: str | None = None


class _Answer(NamedTuple):
    """What an exchange granted of the limits."""

    retries: int
    grants: list[Grant]
    keys: Mapping[str, Quota]
    now: float


class ProviderLink:
    """What one worker knows of a provider, and what it has of its limits."""

    def __init__(self, spec: ProviderSpec, runtime: LinkRuntime) -> None:
        self.spec = spec
        self.state = ProviderState()
        self.held_keys: set[str] = set()
        """Keys whose jobs are held for a limit, as far as this worker knows: new jobs of these keys come after them."""
        self._store = runtime.store
        self._worker = runtime.worker
        self._store_retry = runtime.store_retry
        self._dice = runtime.dice
        self._logger = runtime.logger
        self._metrics = runtime.metrics
        self._changed = runtime.changed
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        """The clock that measures calls."""
        self._free_token: CallToken | None = None
        self._refresh_after = REFRESH_AFTER
        self._version = -1
        self._ahead = 0.0
        self._known_at: float | None = None
        self._reports: list[CallReport] = []
        self._healthy_run = 0
        self._failures_met = 0
        self._failures_reported = 0
        """Failures that this worker has met, and those of them that are reported: the next call waits until all are."""
        self._closed = False
        self._trials: set[str] = set()
        self._trials_taken = 0
        self._lent_keys: set[str] = set()
        """Keys of whose concurrency this worker may hold a share."""
        self._limiter = Limiter(spec.limits, spec.key_limits, request_grants=self._exchange_now)
        self._retrying: list[asyncio.Future[bool]] = []
        self._firsts = 0
        self._ended: Counter[str] = Counter()
        self._seconds: list[float] = []
        self._exchange: asyncio.Task[None] | None = None
        self._exchange_over = asyncio.Event()
        """Set when the exchange in flight has ended."""
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
        """Whether the breaker lets new calls through, be it as trials, as far as this process knows."""
        return call_permission(self.state.breaker, self.spec.breaker, self.now) is not CallPermission.NONE

    async def breaker_state(self) -> BreakerState:
        """Return the breaker's state as of at most one report before this call, with all failures met until then."""
        asked_at, met, tries = self._loop.time(), self._failures_met, 0
        while not self._is_fresh(asked_at, met):
            known_at = self._known_at
            await self._exchange_or_join()
            if self._known_at == known_at:  # the store is down
                tries += 1
                await asyncio.sleep(self._store_retry.pause(tries))
        return self.state.breaker

    def _is_fresh(self, asked_at: float, met: int) -> bool:
        """Whether the state is fresh for a caller that asked at *asked_at*, after *met* failures."""
        return (
            self._failures_reported >= met
            and self._known_at is not None
            and self._known_at >= asked_at - REPORT_EVERY
        )

    def try_acquire(self) -> CallToken | None:
        """Return a token without waiting, if the breaker is known to be closed and there are no limits."""
        return (
            self._free_token
            if self._free_token is not None and self._is_fresh(self._loop.time(), self._failures_met)
            else None
        )

    async def acquire(self, *, released: bool, checked_at: float) -> CallToken | None:
        """Return a token for a call, if the breaker lets it through; *released* jobs were held for it.

        A caller that checked the breaker at *checked_at*, and has not waited since, does not check it again.
        """
        breaker = (
            self.state.breaker
            if self._loop.time() - checked_at < NEGLIGIBLE_WAIT
            else await self.breaker_state()
        )
        match call_permission(breaker, self.spec.breaker, self.now, released=released):
            case CallPermission.FREE:
                return CallToken(breaker.generation)
            case CallPermission.TRIAL:
                return await self._acquire_trial()
            case _:
                return None

    async def _acquire_trial(self) -> CallToken | None:
        self._trials_taken += 1
        slot = f"{self._worker} {self._trials_taken}"

        def step(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, CallToken | None, Sequence[Announcement]]:
            breaker = take_trial(state.breaker, self.spec.breaker, now, slot=slot)
            if breaker is None:
                return state, None, ()
            return replace(state, breaker=breaker), CallToken(breaker.generation, slot), ()

        # Repeated after a lost answer, it takes the same slot.
        token = await self._store_retry.call(lambda _: self.change(step))
        if token is not None:
            self._trials.add(slot)
            self._metrics.count("provider_trials", provider=self.name)
            self._schedule_exchange(TRIAL_LEASE / 3)
        return token

    def report(self, token: CallToken, outcome: CallOutcome, seconds: float) -> None:
        """Report the end of a call with the next exchange."""
        self._ended[outcome.value] += 1
        self._seconds.append(seconds)
        healthy = outcome is CallOutcome.SUCCESS and not self.spec.breaker.is_slow(seconds)
        if healthy and self._healthy_run > self.spec.breaker.window and self._timer is not None:
            return  # nearly every call
        report = self._report_of(token, outcome, seconds)
        self._trials.discard(token.trial or "")
        self._healthy_run = self._healthy_run + 1 if healthy else 0
        # Of a long run of good calls, the window holds no more than this.
        if self._healthy_run <= self.spec.breaker.window:
            self._reports.append(report)
        self._failures_met += outcome is CallOutcome.FAILURE
        self._schedule_exchange(self._refresh_after if healthy else 0.0)

    async def report_decisive(
        self, token: CallToken, outcome: CallOutcome, seconds: float, *, wait: float | None = None
    ) -> bool:
        """Report at once a call that may open or close the breaker alone; false if the breaker changed before it."""
        self._ended[outcome.value] += 1
        self._seconds.append(seconds)
        report = self._report_of(token, outcome, seconds)._replace(wait=wait)
        self._trials.discard(token.trial or "")

        def step(state: ProviderState, now: float) -> tuple[ProviderState, bool, Sequence[Announcement]]:
            breaker, changes = apply_reports(state.breaker, self.spec.breaker, [report], now)
            return (
                replace(state, breaker=breaker),
                report.generation == state.breaker.generation,
                _announcements(changes),
            )

        # Repeated after a lost answer it may count twice, or find the breaker opened by itself: both only wait longer.
        return await self._store_retry.call(lambda _: self.change(step))

    def _report_of(self, token: CallToken, outcome: CallOutcome, seconds: float) -> CallReport:
        return CallReport(
            outcome, token.generation, slow=self.spec.breaker.is_slow(seconds), trial=token.trial
        )

    async def may_retry(self) -> bool:
        """Whether the retry budget allows one more retry."""
        if self.spec.retry_budget is None:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._retrying.append(waiter)
        self._exchange_now()
        return await waiter

    async def enter(self, key: str, *, released: bool, retry: bool) -> bool:
        """Wait until the limits allow this call; false if that would take too long.

        A new job does not wait while others are held for the same limit: they would never be released.
        """
        if not self.spec.limited:
            return True
        entered = await self._limiter.enter(key, may_wait=released or key not in self.held_keys)
        self._firsts += entered and not retry
        if not entered:
            self.held_keys.add(key)
        return entered

    def leave(self, key: str) -> None:
        """Return the slot of a call that has ended."""
        if not self.spec.limited:
            return
        self._limiter.leave(key)
        if self.spec.limits_concurrency:
            self._schedule_exchange(0.0 if self._limiter.has_waiters else REPORT_EVERY)

    async def change(
        self, step: "Step[T]", *, keys: Callable[[ProviderState], Iterable[str]] = lambda _: ()
    ) -> T:
        """Apply *step* to the stored state and that of some *keys*, and write the result. Raises `StoreUnavailable`."""
        done = await swap(self._store, self.name, step, dice=self._dice, keys=keys)
        self.update(done.read)
        self._refresh_after = REFRESH_AFTER if not done.lost else REPORT_EVERY
        for entry in done.announcements:
            self._log_event(entry)
        return done.answer

    def update(self, read: SharedState) -> None:
        """Take over a state that was read, unless a newer one is known.

        A lower version that was requested later is newer, too: the database was restored from a backup.
        """
        if read.version < self._version and read.asked_at < (self._known_at or 0.0):
            return
        answered_at = self._loop.time()
        self.state, self._version = read.state, read.version
        # A slow read is as old as it took, less one report: otherwise a busy loop would never have a fresh state.
        self._known_at = max(read.asked_at, answered_at - REPORT_EVERY)
        self._ahead = read.now - (read.asked_at + answered_at) / 2
        breaker, quota = read.state.breaker, read.state.quota
        always_allowed = not self.spec.limited and breaker.is_closed
        self._free_token = CallToken(breaker.generation) if always_allowed else None
        if self.spec.limits.concurrency is not None:
            self._limiter.set_share(
                quota.slots(self.spec.limits, self._worker, read.now), self._share_seconds(read)
            )

    def _share_seconds(self, read: SharedState) -> float:
        share = read.state.quota.shares.get(self._worker)
        return 0.0 if share is None else share.expires - read.now

    async def end_release(self) -> None:
        """Record that the release of held jobs is over."""
        await self.change(lambda state, _: (replace(state, breaker=all_released(state.breaker)), None, ()))

    async def close(self) -> None:
        """Report what is left, and return the share."""
        try:
            while self._exchange is not None:
                await asyncio.wait([self._exchange])
            if self._reports or self._lent_keys or self._worker in self.state.quota.shares:
                await self._exchange_or_join()
        finally:
            self._stop()

    def _stop(self) -> None:
        """Cancel the scheduled exchange and the one in flight."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
        self._flush()

    def _flush(self) -> None:
        """Record the metrics of the calls that ended."""
        for outcome, count in self._ended.items():
            self._metrics.count("provider_calls", count, provider=self.name, outcome=outcome)
        for name, values in (("provider_seconds", self._seconds), ("permit_seconds", self._limiter.waited)):
            if values:
                self._metrics.observe(name, list(values), provider=self.name)
                values.clear()
        self._ended.clear()

    def _log_event(self, entry: Announcement) -> None:
        """Log and count a transition of the breaker; only the worker that wrote it does."""
        log = self._logger.info
        if entry.kind == "opened" and not entry.meta.get("again"):
            blocked = entry.meta["cause"] == OpenCause.BLOCKED
            log = self._logger.error if blocked else self._logger.warning
            self._metrics.count("provider_openings", provider=self.name)
        elif entry.kind == "closed":
            self._metrics.count("provider_shut_seconds", round(entry.meta["seconds"]), provider=self.name)
        log(f"provider {entry.kind}", provider=self.name, **entry.meta)
        self._changed()

    def _exchange_now(self) -> None:
        self._schedule_exchange(0.0)

    def _schedule_exchange(self, delay: float) -> None:
        """Exchange in *delay* seconds at the latest."""
        due = self._loop.time() + delay
        if self._timer is not None:
            if self._due <= due:  # uvloop's timers do not say when they are due
                return
            self._timer.cancel()
        self._due, self._timer = due, self._loop.call_at(due, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # this exchange covers it
            self._timer = None
        if self._exchange is None:
            self._exchange_over = asyncio.Event()
            self._exchange = self._loop.create_task(
                self._run_exchange(), name=f"holdfast provider {self.name!r}"
            )
            self._exchange.add_done_callback(self._exchange_ended)
        else:
            self._exchange.add_done_callback(
                lambda _: self._exchange_now()
            )  # what was collected meanwhile goes next

    def _exchange_ended(self, exchange: "asyncio.Task[None]") -> None:
        self._exchange = None
        self._exchange_over.set()
        if exchange.cancelled():
            self._retry_exchange()  # cancelled by other code, or at shutdown
        elif exchange.exception() is not None:
            self._logger.error(
                "provider link failed", provider=self.name, message=type(exchange.exception()).__name__
            )

    def _retry_exchange(self) -> None:
        """Schedule another exchange for calls that wait for it, unless the link is closed."""
        if not self._closed and (self._limiter.has_waiters or self._retrying or self._has_leases()):
            self._schedule_exchange(self._store_retry.pause(1))

    async def _exchange_or_join(self) -> None:
        """Exchange once, or wait for the exchange in flight."""
        if self._exchange is None:
            self._start()
        await self._exchange_over.wait()

    async def _run_exchange(self) -> None:
        reports, self._reports, self._healthy_run = self._reports, [], 0
        retrying = list(self._retrying)
        firsts, self._firsts = self._firsts, 0
        met = self._failures_met
        request = self._limiter.request()
        keys = (
            {*request.using, *request.waiting, *self._lent_keys} if self.spec.key_limits.any else set[str]()
        )
        self._flush()

        def step(state: ProviderState, now: float) -> tuple[ProviderState, _Answer, Sequence[Announcement]]:
            breaker, changes = apply_reports(state.breaker, self.spec.breaker, reports, now)
            breaker = extend_trials(breaker, self._trials, now)
            if not changes and needs_no_write(state.breaker, breaker, self.spec.breaker, now):
                breaker = state.breaker
            state, retries = replace(state, breaker=breaker).grant_retries(
                self.spec, firsts=firsts, requested=len(retrying), now=now
            )
            state, grants = state.grant(self.spec, self._worker, request, now)
            return state, _Answer(retries, grants, state.keys, now), _announcements(changes)

        if self.spec.key_limits.concurrency is not None:
            self._lent_keys = keys  # also if it will not be known whether this was written
        try:
            answer = await self.change(step, keys=lambda _: keys)
        except StoreUnavailable as error:
            # Whether it was written is not known, and no outcome may count twice: they are dropped.
            self._logger.warning("provider report lost", provider=self.name, message=str(error))
            self._retry_exchange()
            return
        finally:
            self._failures_reported = met
        self._lent_keys = {key for key, quota in answer.keys.items() if self._worker in quota.shares}
        self._apply_answer(answer, retrying)

    def _apply_answer(self, answer: _Answer, retrying: Sequence["asyncio.Future[bool]"]) -> None:
        """Start the calls that were granted."""
        for number, waiter in enumerate(waiter for waiter in retrying if not waiter.done()):
            waiter.set_result(number < answer.retries)
        del self._retrying[: len(retrying)]  # those that came meanwhile stay
        self._limiter.apply_grants(answer.grants, answer.now)
        if self.spec.limits.rate is not None and self.state.quota.next_at > answer.now + AHEAD:
            self._limiter.refuse_all()
        if self._limiter.has_waiters:
            self._schedule_exchange(REPORT_EVERY)
            return
        if self.held_keys:
            self._changed()  # there is room for held jobs
        if self._has_leases():
            self._schedule_exchange(LEASE / 3)

    def _has_leases(self) -> bool:
        """Whether this worker holds a trial or a share that has to be renewed."""
        return bool(self._trials) or (self.spec.limits_concurrency and self._limiter.in_flight > 0)


def _announcements(changes: Sequence[BreakerChange]) -> list[Announcement]:
    return [Announcement(change.kind, event_details(change)) for change in changes]
