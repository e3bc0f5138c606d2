"""The limiter: calls of this process that wait under a provider's limits."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable

from holdfast.core.providers.limits import SLACK, Grant, LimitRequest, Limits

WAIT = 1.0
"""Seconds that a job waits in its slot for a limit, before it is held and gives up the slot."""


class _Waiter:
    """A call that waits; its future says whether it may begin."""

    __slots__ = ("granted", "key", "may_begin")

    def __init__(self, key: str, may_begin: "asyncio.Future[bool]") -> None:
        self.key = key
        self.may_begin = may_begin
        self.granted = False

    def answer(self, allowed: bool) -> None:  # noqa: FBT001 - a timer passes it by its place
        if not self.may_begin.done():
            self.may_begin.set_result(allowed)

    def give_up(self) -> None:
        if not self.granted:
            self.answer(False)  # noqa: FBT003


class Limiter:
    """Queues calls by key, and counts the calls in flight of each key. Keys are served in rotation."""

    def __init__(self, limits: Limits, key_limits: Limits, *, request_grants: Callable[[], None]) -> None:
        # A share is a number of concurrent calls. Where it is the only limit, calls need no grant of their own.
        self._by_share = limits.concurrency is not None and limits.rate is None and not key_limits.any
        self._unlimited = not (limits.any or key_limits.any)
        self._slots = 0
        self._slots_until = 0.0
        self._request_grants = request_grants
        self._loop = asyncio.get_running_loop()
        self._in_flight: Counter[str] = Counter()
        self._count = 0
        self._peak = 0
        """The most calls in flight since the last request: as many slots will be needed again."""
        self._waiting: dict[str, deque[_Waiter]] = {}
        self.waited: list[float] = []

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits."""
        return bool(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many calls are in flight."""
        return self._count

    def set_share(self, slots: int, seconds: float) -> None:
        """Allow that many concurrent calls without grants, for *seconds*."""
        self._slots, self._slots_until = slots, self._loop.time() + seconds
        while self._waiting and self._has_slot():
            self._grant(next(iter(self._waiting)), 0.0)

    async def enter(self, key: str, *, may_wait: bool) -> bool:
        """Wait until this call may begin; false if that takes too long, or it must wait and *may_wait* is false."""
        if self._unlimited or (not self._waiting and self._has_slot()):
            self._begin(key)
            return True
        if not may_wait:
            return False
        waiter = _Waiter(key, self._loop.create_future())
        self._waiting.setdefault(key, deque()).append(waiter)
        self._request_grants()
        timeout = self._loop.call_later(WAIT, waiter.give_up)
        began = self._loop.time()
        try:
            return await waiter.may_begin
        except asyncio.CancelledError:
            if waiter.granted:
                self.leave(key)
            raise
        finally:
            timeout.cancel()
            self._forget(waiter)
            self.waited.append(self._loop.time() - began)

    def leave(self, key: str) -> None:
        """Return the slot of a call that has ended."""
        self._count -= 1
        self._in_flight[key] -= 1
        if not self._in_flight[key]:
            del self._in_flight[key]
        if self._waiting and self._has_slot():
            self._grant(next(iter(self._waiting)), 0.0)

    def request(self) -> LimitRequest:
        """Return the calls in flight and those that wait."""
        peak, self._peak = self._peak, self._count
        self._slots = min(self._slots, peak)  # no more, until the new share is known
        waiting = {key: len(waiters) for key, waiters in self._waiting.items()}
        return LimitRequest(Counter(self._in_flight), waiting, peak)

    def apply_grants(self, grants: Iterable[Grant], now: float) -> None:
        """Start granted calls at their times; calls under a share alone have begun with `set_share`."""
        for key, at in () if self._by_share else grants:
            self._grant(key, at - now)

    def refuse_all(self) -> None:
        """Refuse every call that waits: no start time is near."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.give_up()

    def _has_slot(self) -> bool:
        """Whether one more call may begin without a grant."""
        return self._by_share and self._count < self._slots and self._loop.time() < self._slots_until

    def _begin(self, key: str) -> None:
        self._in_flight[key] += 1
        self._count += 1
        self._peak = max(self._peak, self._count)

    def _grant(self, key: str, delay: float) -> None:
        """Start the next call of *key* after *delay*; the key moves behind the others."""
        waiters = self._waiting.pop(key, None)
        waiter = None if waiters is None else _first(waiters)
        if waiters:
            self._waiting[key] = waiters
        if waiter is None:
            return
        waiter.granted = True
        self._begin(key)
        due = self._loop.time() + max(delay, 0.0)
        self._loop.call_at(due, self._start, waiter, due)

    def _start(self, waiter: _Waiter, due: float) -> None:
        """Start a call at its time. A missed start time is lost, and another is requested.

        Otherwise calls that were spaced by the rate would start all at once.
        """
        if self._loop.time() <= due + SLACK or waiter.may_begin.done():
            waiter.answer(True)  # noqa: FBT003
            return
        waiter.granted = False
        self._waiting.setdefault(waiter.key, deque()).appendleft(waiter)
        self.leave(waiter.key)
        self._request_grants()

    def _forget(self, waiter: _Waiter) -> None:
        waiters = None if waiter.granted else self._waiting.get(waiter.key)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[waiter.key]


def _first(waiters: "deque[_Waiter]") -> _Waiter | None:
    """Take the next call that still waits.

    A call that was refused or cancelled, and is still queued, would take a slot that is never returned.
    """
    while waiters:
        waiter = waiters.popleft()
        if not waiter.may_begin.done():
            return waiter
    return None
