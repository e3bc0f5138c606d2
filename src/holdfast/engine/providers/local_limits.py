"""Local limits: what one worker has of a provider's limits, and the calls that wait for more."""

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from holdfast.core.providers.limits import AHEAD, Grant, LimitRequest, Quota
from holdfast.core.providers.provider import ProviderSpec
from holdfast.engine.providers.limiter import Limiter
from holdfast.engine.providers.shared_state import SharedState


class LimitDemand(NamedTuple):
    """What this worker asks of the limits in one exchange."""

    calls: LimitRequest
    keys: set[str]
    """Keys whose quota it uses, asks for, or may hold a share of."""
    firsts: int
    """Calls since the last exchange that were no retries: they earn retries."""
    retrying: "list[asyncio.Future[bool]]"


class LimitAnswer(NamedTuple):
    """What an exchange granted of the limits."""

    retries: int
    grants: list[Grant]
    keys: Mapping[str, Quota]
    now: float


class LocalLimits:
    """Admits calls by the limits of a provider, its keys and its retry budget."""

    def __init__(self, spec: ProviderSpec, worker: str, *, exchange_now: Callable[[], None]) -> None:
        self._spec = spec
        self._worker = worker
        self._exchange_now = exchange_now
        self._limiter = Limiter(spec.limits, spec.key_limits, request_grants=exchange_now)
        self._held_keys: set[str] = set()
        """Keys whose jobs are held for a limit, as far as this worker knows: new jobs of these keys come after them."""
        self._lent_keys: set[str] = set()
        """Keys of whose concurrency this worker may hold a share."""
        self._retrying: list[asyncio.Future[bool]] = []
        self._firsts = 0

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for a limit."""
        return self._limiter.has_waiters

    @property
    def needs_exchange(self) -> bool:
        """Whether a call waits for a limit or for the retry budget."""
        return self._limiter.has_waiters or bool(self._retrying)

    @property
    def holds_share(self) -> bool:
        """Whether calls are in flight under a share that has to be renewed."""
        return self._spec.limits_concurrency and self._limiter.in_flight > 0

    @property
    def has_lent_keys(self) -> bool:
        """Whether this worker may hold a share of the concurrency of a key."""
        return bool(self._lent_keys)

    @property
    def has_held_keys(self) -> bool:
        """Whether jobs are held for a limit, as far as this worker knows."""
        return bool(self._held_keys)

    @property
    def waited(self) -> list[float]:
        """The seconds that calls have waited; the reader empties it."""
        return self._limiter.waited

    def set_held(self, keys: Set[str]) -> None:
        """Note the keys whose jobs are held for a limit."""
        self._held_keys = set(keys)

    def released(self, keys: Set[str]) -> None:
        """Note that all held jobs of these keys are released: new jobs need not wait behind them."""
        self._held_keys -= keys

    async def may_retry(self) -> bool:
        """Whether the retry budget allows one more retry."""
        if self._spec.retry_budget is None:
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._retrying.append(waiter)
        self._exchange_now()
        return await waiter

    async def enter(self, key: str, *, released: bool, retry: bool) -> bool:
        """Wait until the limits allow this call; false if that would take too long.

        A new job does not wait while others are held for the same limit: they would never be released.
        """
        entered = await self._limiter.enter(key, may_wait=released or key not in self._held_keys)
        self._firsts += entered and not retry
        if not entered:
            self._held_keys.add(key)
        return entered

    def leave(self, key: str) -> None:
        """Return the slot of a call that has ended."""
        self._limiter.leave(key)

    def take_demand(self) -> LimitDemand:
        """Return what to ask for in the exchange that begins now."""
        firsts, self._firsts = self._firsts, 0
        calls = self._limiter.request()
        keys: set[str] = set()
        if self._spec.key_limits.any:
            keys = {*calls.using, *calls.waiting, *self._lent_keys}
        if self._spec.key_limits.concurrency is not None:
            self._lent_keys = keys  # also if it will not be known whether this was written
        return LimitDemand(calls, keys, firsts, list(self._retrying))

    def set_share(self, read: SharedState) -> None:
        """Take over this worker's share of the concurrent calls."""
        if self._spec.limits.concurrency is None:
            return
        quota = read.state.quota
        share = quota.shares.get(self._worker)
        seconds = 0.0 if share is None else share.expires - read.now
        self._limiter.set_share(quota.slots(self._spec.limits, self._worker, read.now), seconds)

    def apply(self, demand: LimitDemand, answer: LimitAnswer, quota: Quota) -> None:
        """Start the calls that were granted; *quota* is what is allocated of the provider's limits."""
        self._lent_keys = {key for key, lent in answer.keys.items() if self._worker in lent.shares}
        for number, waiter in enumerate(waiter for waiter in demand.retrying if not waiter.done()):
            waiter.set_result(number < answer.retries)
        del self._retrying[: len(demand.retrying)]  # those that came meanwhile stay
        self._limiter.apply_grants(answer.grants, answer.now)
        if self._spec.limits.rate is not None and quota.next_at > answer.now + AHEAD:
            self._limiter.refuse_all()
