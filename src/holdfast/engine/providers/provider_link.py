"""A worker's link to one provider: which calls may be made, and which outcomes are to be reported.

A link exchanges with the store what all workers share. One exchange does everything: it reports how calls
ended, asks for start times and for a share of the concurrent calls, and reads the breaker's state. While one is
in flight the next collects reports; so calls cost no write of their own, and a link is at most one report behind.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
from holdfast.core.providers.limits import LEASE
from holdfast.core.providers.permission import (
    TRIAL_LEASE,
    CallPermission,
    call_permission,
    extend_trials,
    take_trial,
)
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.core.providers.ramp import all_released
from holdfast.engine.providers.exchanger import Exchanger
from holdfast.engine.providers.local_limits import LimitAnswer, LimitDemand, LocalLimits
from holdfast.engine.providers.outcome_buffer import OutcomeBuffer
from holdfast.engine.providers.provider_cache import REPORT_EVERY, CallToken, ProviderCache
from holdfast.engine.providers.shared_state import HistoryEntry, SharedState, Step, swap
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Logger, Metrics, Random, Store

T = TypeVar("T")

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
    random: Random
    logger: Logger
    metrics: Metrics
    changed: Callable[[], None]
    """Called when a breaker has opened or closed, or a limit has room: held jobs may be released."""


class ProviderLink:
    """A worker's link to a provider: the state it knows, the outcomes it reports, and what it has of the limits."""

    def __init__(self, spec: ProviderSpec, runtime: LinkRuntime) -> None:
        self.spec = spec
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        """The clock that measures calls."""
        self._cache = ProviderCache(spec)
        self._outcomes = OutcomeBuffer(spec.name, spec.breaker.window, runtime.metrics)
        self._exchanger = Exchanger(
            self._exchange,
            name=f"holdfast provider {spec.name!r}",
            interrupted=self._retry_exchange,
            failed=self._log_failure,
        )
        self.limits = LocalLimits(spec, runtime.worker, exchange_now=self._exchanger.exchange_now)
        """What this worker has of the provider's limits."""
        self._refresh_after = REFRESH_AFTER
        self._trials: set[str] = set()
        self._trials_taken = 0

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.spec.name

    @property
    def state(self) -> ProviderState:
        """The state that all workers share, as far as this process knows it."""
        return self._cache.state

    @property
    def now(self) -> float:
        """The store's time, as far as this process knows it."""
        return self._cache.now

    @property
    def takes_calls(self) -> bool:
        """Whether the breaker lets new calls through, be it as trials, as far as this process knows."""
        return self._cache.takes_calls

    async def breaker_state(self) -> BreakerState:
        """Return the breaker's state as of at most one report before this call, with all failures met until then."""
        cache, outcomes = self._cache, self._outcomes
        asked_at, met, tries = self._loop.time(), outcomes.failures_met, 0
        while outcomes.failures_reported < met or not cache.is_fresh(asked_at):
            known_at = cache.known_at
            await self._exchanger.exchange_or_join()
            if cache.known_at == known_at:  # the store is down
                tries += 1
                await asyncio.sleep(self._runtime.store_retry.pause(tries))
        return cache.state.breaker

    def try_acquire(self) -> CallToken | None:
        """Return a token without waiting, if the breaker is known to be closed and there are no limits."""
        token, outcomes = self._cache.free_token, self._outcomes
        if (
            token is not None
            and outcomes.failures_reported >= outcomes.failures_met
            and self._cache.is_fresh(self._loop.time())
        ):
            return token
        return None

    async def acquire(self, *, released: bool, checked_at: float) -> CallToken | None:
        """Return a token for a call, if the breaker lets it through; *released* jobs were held for it.

        A caller that checked the breaker at *checked_at*, and has not waited since, does not check it again.
        """
        if self._loop.time() - checked_at < NEGLIGIBLE_WAIT:
            breaker = self.state.breaker
        else:
            breaker = await self.breaker_state()
        match call_permission(breaker, self.spec.breaker, self.now, released=released):
            case CallPermission.FREE:
                return CallToken(breaker.generation)
            case CallPermission.TRIAL:
                return await self._acquire_trial()
            case _:
                return None

    async def _acquire_trial(self) -> CallToken | None:
        self._trials_taken += 1
        slot = f"{self._runtime.worker} {self._trials_taken}"

        def step(
            state: ProviderState, now: float
        ) -> tuple[ProviderState, CallToken | None, Sequence[HistoryEntry]]:
            breaker = take_trial(state.breaker, self.spec.breaker, now, slot=slot)
            if breaker is None:
                return state, None, ()
            return replace(state, breaker=breaker), CallToken(breaker.generation, slot), ()

        # Repeated after a lost answer, it takes the same slot.
        token = await self._runtime.store_retry.call(lambda _: self.change(step))
        if token is not None:
            self._trials.add(slot)
            self._runtime.metrics.count("provider_trials", provider=self.name)
            self._exchanger.schedule(TRIAL_LEASE / 3)
        return token

    def report(self, token: CallToken, outcome: CallOutcome, seconds: float) -> None:
        """Report the end of a call with the next exchange."""
        outcomes = self._outcomes
        outcomes.count(outcome, seconds)
        healthy = outcome is CallOutcome.SUCCESS and not self.spec.breaker.is_slow(seconds)
        if healthy and outcomes.is_saturated and self._exchanger.is_scheduled:
            return  # nearly every call
        outcomes.add(self._report_of(token, outcome, seconds), healthy=healthy)
        self._trials.discard(token.trial or "")
        self._exchanger.schedule(self._refresh_after if healthy else 0.0)

    async def report_decisive(
        self, token: CallToken, outcome: CallOutcome, seconds: float, *, wait: float | None = None
    ) -> bool:
        """Report at once a call that may open or close the breaker alone; false if the breaker changed before it."""
        self._outcomes.count(outcome, seconds)
        report = self._report_of(token, outcome, seconds)._replace(wait=wait)
        self._trials.discard(token.trial or "")

        def step(state: ProviderState, now: float) -> tuple[ProviderState, bool, Sequence[HistoryEntry]]:
            breaker, changes = apply_reports(state.breaker, self.spec.breaker, [report], now)
            return (
                replace(state, breaker=breaker),
                report.generation == state.breaker.generation,
                _history_of(changes),
            )

        # Repeated after a lost answer it may count twice, or find the breaker that it has opened itself: both only prolong the wait.
        return await self._runtime.store_retry.call(lambda _: self.change(step))

    def _report_of(self, token: CallToken, outcome: CallOutcome, seconds: float) -> CallReport:
        slow = self.spec.breaker.is_slow(seconds)
        return CallReport(outcome, token.generation, slow=slow, trial=token.trial)

    async def enter(self, key: str, *, released: bool, retry: bool) -> bool:
        """Wait until the limits allow this call; false if that would take too long."""
        return not self.spec.limited or await self.limits.enter(key, released=released, retry=retry)

    def leave(self, key: str) -> None:
        """Return the slot of a call that has ended."""
        if not self.spec.limited:
            return
        self.limits.leave(key)
        if self.spec.limits_concurrency:
            self._exchanger.schedule(0.0 if self.limits.has_waiters else REPORT_EVERY)

    async def change(
        self, step: "Step[T]", *, keys: Callable[[ProviderState], Iterable[str]] = lambda _: ()
    ) -> T:
        """Apply *step* to the stored state and that of some *keys*, and write the result. Raises `StoreUnavailable`."""
        done = await swap(self._runtime.store, self.name, step, random=self._runtime.random, keys=keys)
        self.update(done.read)
        self._refresh_after = REFRESH_AFTER if not done.lost else REPORT_EVERY
        for entry in done.history:
            self._log_event(entry)
        return done.answer

    def update(self, read: SharedState) -> None:
        """Take over a state that was read, unless a newer one is known."""
        if self._cache.update(read):
            self.limits.set_share(read)

    async def end_release(self) -> None:
        """Record that the release of held jobs is over."""
        await self.change(lambda state, _: (replace(state, breaker=all_released(state.breaker)), None, ()))

    async def close(self) -> None:
        """Report what is left, and return the share."""
        try:
            await self._exchanger.finish()
            has_share = self._runtime.worker in self.state.quota.shares
            if self._outcomes.has_reports or self.limits.has_lent_keys or has_share:
                await self._exchanger.exchange_or_join()
        finally:
            self._exchanger.close()
            self._outcomes.flush(self.limits.waited)

    def _log_event(self, entry: HistoryEntry) -> None:
        """Log and count a transition of the breaker; only the worker that wrote it does."""
        logger, metrics = self._runtime.logger, self._runtime.metrics
        log = logger.info
        if entry.kind == "opened" and not entry.meta.get("again"):
            log = logger.error if entry.meta["cause"] == OpenCause.BLOCKED else logger.warning
            metrics.count("provider_openings", provider=self.name)
        elif entry.kind == "closed":
            metrics.count("provider_shut_seconds", round(entry.meta["seconds"]), provider=self.name)
        log(f"provider {entry.kind}", provider=self.name, **entry.meta)
        self._runtime.changed()

    def _log_failure(self, error: BaseException) -> None:
        self._runtime.logger.error("provider link failed", provider=self.name, message=type(error).__name__)

    def _retry_exchange(self) -> None:
        """Schedule another exchange for calls that wait for it."""
        if self.limits.needs_exchange or self._has_leases():
            self._exchanger.schedule(self._runtime.store_retry.pause(1))

    async def _exchange(self) -> None:
        reports, met = self._outcomes.take(), self._outcomes.failures_met
        demand = self.limits.take_demand()
        self._outcomes.flush(self.limits.waited)
        try:
            answer = await self.change(
                lambda state, now: self._decide(state, now, reports, demand), keys=lambda _: demand.keys
            )
        except StoreUnavailable as error:
            # Whether it was written is not known, and no outcome may count twice: they are dropped.
            self._runtime.logger.warning("provider report lost", provider=self.name, message=str(error))
            self._retry_exchange()
            return
        finally:
            self._outcomes.reported(met)
        self.limits.apply(demand, answer, self.state.quota)
        if self.limits.has_waiters:
            self._exchanger.schedule(REPORT_EVERY)
            return
        if self.limits.has_held_keys:
            self._runtime.changed()  # there is room for held jobs
        if self._has_leases():
            self._exchanger.schedule(LEASE / 3)

    def _decide(
        self, state: ProviderState, now: float, reports: Sequence[CallReport], demand: LimitDemand
    ) -> tuple[ProviderState, LimitAnswer, Sequence[HistoryEntry]]:
        """Apply *reports* to the breaker, and grant of the limits what this worker may have."""
        breaker, changes = apply_reports(state.breaker, self.spec.breaker, reports, now)
        breaker = extend_trials(breaker, self._trials, now)
        if not changes and needs_no_write(state.breaker, breaker, self.spec.breaker, now):
            breaker = state.breaker
        state, retries = replace(state, breaker=breaker).grant_retries(
            self.spec, firsts=demand.firsts, requested=len(demand.retrying), now=now
        )
        state, grants = state.grant(self.spec, self._runtime.worker, demand.calls, now)
        return state, LimitAnswer(retries, grants, state.keys, now), _history_of(changes)

    def _has_leases(self) -> bool:
        """Whether this worker holds a trial or a share that has to be renewed."""
        return bool(self._trials) or self.limits.holds_share


def _history_of(changes: Sequence[BreakerChange]) -> list[HistoryEntry]:
    return [HistoryEntry(change.kind, event_details(change)) for change in changes]
