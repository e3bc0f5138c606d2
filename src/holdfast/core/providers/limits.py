"""Limits on the calls to a provider over all workers: concurrent calls, and calls in a period.

Both limits are shared through one small value, and cost no write per call. Of a *rate*, a worker reserves the
next few start times, and makes its calls then: a worker that dies loses only the times it had reserved. Of a
*concurrency*, a worker holds a share for a while and makes that many concurrent calls; a share that is not
renewed goes back to the others. A provider's calls can have a key, a customer's name for example: each key then
has limits of its own within those of the provider, and keys are served in rotation.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple

from holdfast.core.durations import duration

_UNITS = {
    "s": "1s",
    "sec": "1s",
    "second": "1s",
    "m": "1m",
    "min": "1m",
    "minute": "1m",
    "h": "1h",
    "hour": "1h",
    "d": "1d",
    "day": "1d",
}
_SPELLING = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9a-z .]+?)\s*")

AHEAD = 1.0
"""Seconds for which a worker reserves start times: lost if it dies, and the longest wait of a job in its slot."""

LEASE = 10.0
"""Seconds for which a worker holds a share of the concurrency without renewal."""

LIMIT_RELEASE_EVERY = 0.25
"""Seconds from one release of held jobs to the next: by then released jobs have requested their share."""

SLACK = 0.1
"""Seconds that a key may lag behind its rate without losing calls: it is not served to the millisecond."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of calls in a period, evenly spread.

    >>> Rate.of("60/min"), Rate.of("5/10s").interval
    (Rate(calls=60, per=datetime.timedelta(seconds=60)), 2.0)
    """

    calls: int
    per: timedelta

    @classmethod
    def of(cls, text: str) -> "Rate":
        """Parse a rate such as `60/min`. Raises `ValueError` for anything else."""
        match = _SPELLING.fullmatch(text.lower())
        per = None if match is None else _parse_period(match[2])
        if match is None or int(match[1]) < 1 or per is None:
            raise ValueError(
                f"Not a rate: {text!r}. Write calls and time, such as '50/s', '60/min' or '5/10s'"
            )
        return cls(int(match[1]), per)

    @property
    def interval(self) -> float:
        """Seconds from one call to the next."""
        return self.per.total_seconds() / self.calls


def _parse_period(text: str) -> timedelta | None:
    """Parse the period after the slash; `None` if it is not one, or zero."""
    try:
        period = duration(_UNITS.get(text.removesuffix("s") or text, text))
    except ValueError:
        return None
    return period if period > timedelta(0) else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How many concurrent calls, and how many in a period; `None` sets no limit."""

    concurrency: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a limit that lets no call through."""
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency} lets no call through; the least is 1")

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.concurrency is not None or self.rate is not None


class Share(NamedTuple):
    """A worker's share of a concurrency: how many calls it may make, how many it requested, and until when."""

    calls: int
    requested: int
    expires: float

    def is_alive(self, now: float) -> bool:
        """Whether it has not expired; one that lasts longer than `LEASE` is from before the clock was set back."""
        return now < self.expires <= now + LEASE


@dataclass(frozen=True, slots=True)
class Quota:
    """What is allocated of the limits of a provider or of one key."""

    next_at: float = 0.0
    """When the next call may begin, by the rate."""
    release_at: float = 0.0
    """When the next jobs that are held for these limits may be released."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """The share of each worker."""

    def idle(self, now: float) -> bool:
        """Whether nothing is allocated any more, so that it need not be stored."""
        return max(self.next_at, self.release_at) <= now - SLACK and not self._alive(now)

    @property
    def expires(self) -> float:
        """When it becomes idle, unless something is allocated before."""
        return (
            max(self.next_at, self.release_at, *(share.expires for share in self.shares.values()), 0.0)
            + SLACK
        )

    def start_time(self, rate: Rate | None, now: float) -> float:
        """Return when the next call may begin, by *rate*.

        A time further ahead than this rate ever reserves was reserved under a slower rate, before it was changed.
        """
        if rate is None or self.next_at > now + 2 * AHEAD + rate.interval:
            return now
        return max(self.next_at, now)

    def _alive(self, now: float) -> dict[str, Share]:
        return {worker: share for worker, share in self.shares.items() if share.is_alive(now)}

    def slots(self, limits: Limits, worker: str, now: float) -> int:
        """Return how many calls *worker* may have in flight: its share, and no more than its fair part.

        A worker with more in flight, because others have come, begins no new call until enough of them have ended.
        """
        alive = self._alive(now)
        if limits.concurrency is None or worker not in alive:
            return 0
        requests = {name: share.requested for name, share in alive.items()}
        return min(alive[worker].calls, _fair_shares(requests, limits.concurrency)[worker])

    def demand(self, now: float) -> int:
        """Return how many concurrent calls all workers together request."""
        return sum(share.requested for share in self._alive(now).values())

    def shared(self, limits: Limits, worker: str, now: float, *, using: int, requested: int) -> "Quota":
        """Recompute the share of *worker*; an unchanged one is renewed only when half of its lease is over."""
        if limits.concurrency is None:
            return self
        shares = reallocate_share(
            self.shares, limits.concurrency, worker, using=using, requested=requested, now=now
        )
        mine, before = shares.get(worker), self.shares.get(worker)
        if mine is not None and before is not None and mine[:2] == before[:2]:
            shares[worker] = before if before.expires - now > LEASE / 2 else mine
        return self if shares == self.shares else replace(self, shares=shares)


def reallocate_share(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, requested: int, now: float
) -> dict[str, Share]:
    """Recompute the share of *worker*; it keeps at least what it is *using*, and no other worker loses its share.

    When all together request more than the limit, each gets the same, and what one does not request goes to the
    others. A worker that has more returns it as its calls end; until then the others wait.
    """
    kept = {name: share for name, share in shares.items() if share.is_alive(now) and name != worker}
    requests = {name: share.requested for name, share in kept.items()} | {worker: max(using, requested)}
    free = limit - sum(share.calls for share in kept.values())
    calls = max(using, min(_fair_shares(requests, limit)[worker], free))
    if calls or requested:
        kept[worker] = Share(calls, requests[worker], now + LEASE)
    return kept


def _fair_shares(requests: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide *limit*: small requests are met in full, the others get the same each.

    >>> _fair_shares({"a": 1, "b": 9, "c": 9}, 8)
    {'a': 1, 'b': 3, 'c': 4}
    """
    left, fair = limit, {}
    for number, name in enumerate(sorted(requests, key=lambda name: (requests[name], name))):
        fair[name] = min(requests[name], left // (len(requests) - number))
        left -= fair[name]
    return fair


class LimitRequest(NamedTuple):
    """A worker's request: how many calls of each key are in flight, and how many wait, the next key first."""

    using: Mapping[str, int]
    waiting: Mapping[str, int]
    recent: int = 0
    """The most calls in flight since the last request: their slots are kept for those that follow."""


class Grant(NamedTuple):
    """A call that may begin at *at*."""

    key: str
    at: float


@dataclass(slots=True)
class LimitAllocator:
    """Allocates limits to one worker, on copies that become the new state if no other worker has changed it."""

    worker: str
    now: float
    limits: Limits
    key_limits: Limits
    quota: Quota
    keys: dict[str, Quota]
    using: dict[str, int] = field(default_factory=dict)
    busy: int = 0

    def allocate(self, request: LimitRequest) -> list[Grant]:
        """Grant what the limits allow, key by key in rotation."""
        self._share(request)
        self.using, self.busy = dict(request.using), sum(request.using.values())
        left = {key: count for key, count in request.waiting.items() if count}
        grants: list[Grant] = []
        while left:
            served = [grant for key in list(left) if (grant := self._grant(key)) is not None]
            for grant in served:
                left[grant.key] -= 1
                if not left[grant.key]:
                    del left[grant.key]
            grants += served
            if not served:
                break
        return grants

    def _share(self, request: LimitRequest) -> None:
        if self.key_limits.concurrency is not None:
            # The worker's shares of keys that it does not request any more are returned.
            mine = (key for key, quota in self.keys.items() if self.worker in quota.shares)
            for key in sorted({*request.using, *request.waiting, *mine}):
                busy = request.using.get(key, 0)
                self.keys[key] = self.keys.get(key, Quota()).shared(
                    self.key_limits,
                    self.worker,
                    self.now,
                    using=busy,
                    requested=busy + request.waiting.get(key, 0),
                )
        using = sum(request.using.values())
        requested = using + sum(self._could_begin(key, request) for key in request.waiting)
        share = self.quota.shares.get(self.worker)
        if share is not None and share.is_alive(self.now):
            # The worker goes on to use these slots while this is in flight.
            using = max(using, min(request.recent, share.calls))
        self.quota = self.quota.shared(
            self.limits, self.worker, self.now, using=using, requested=max(using, requested)
        )

    def _could_begin(self, key: str, request: LimitRequest) -> int:
        """Return how many calls their key's limits allow: the others must not take slots from other keys."""
        if self.key_limits.concurrency is None:
            return request.waiting[key]
        slots = self.keys[key].slots(self.key_limits, self.worker, self.now)
        return max(0, min(request.waiting[key], slots - request.using.get(key, 0)))

    def _grant(self, key: str) -> Grant | None:
        """Grant a call of *key*, if there is a slot for it, and a start time soon."""
        own, busy = self.keys.get(key, Quota()), self.using.get(key, 0)
        if not self._has_slot(self.limits, self.quota, self.busy):
            return None
        if not self._has_slot(self.key_limits, own, busy):
            return None
        at = self._start_time(own)
        if at is None:
            return None
        if self.limits.rate is not None:
            self.quota = replace(self.quota, next_at=at + self.limits.rate.interval)
        if self.key_limits.rate is not None:
            behind = max(min(own.next_at, at), at - SLACK)
            self.keys[key] = replace(own, next_at=behind + self.key_limits.rate.interval)
        self.using[key] = busy + 1
        self.busy += 1
        return Grant(key, at)

    def _has_slot(self, limits: Limits, quota: Quota, using: int) -> bool:
        return limits.concurrency is None or quota.slots(limits, self.worker, self.now) > using

    def _start_time(self, own: Quota) -> float | None:
        """Return when a call may begin; `None` for a key whose time has not come, so that another key gets it."""
        at = self.quota.start_time(self.limits.rate, self.now)
        if at > self.now + AHEAD or own.start_time(self.key_limits.rate, self.now) > at:
            return None
        return at


def releasable(limits: Limits, quota: Quota, now: float, *, limit: int) -> tuple[Quota, int]:
    """Return how many jobs held for *limits* may be released, at most *limit*, and the quota after that.

    For a rate as many as there are start times soon; for a concurrency twice the limit, less what is requested already.
    """
    if now < quota.release_at <= now + LIMIT_RELEASE_EVERY:  # a later time means that the clock was set back
        return quota, 0
    count = limit
    if limits.concurrency is not None:
        count = min(count, max(0, 2 * limits.concurrency - quota.demand(now)))
    if limits.rate is not None:
        soon = now + AHEAD - quota.start_time(limits.rate, now)
        count = min(count, max(0, math.floor(soon / limits.rate.interval) + 1))
    return (replace(quota, release_at=now + LIMIT_RELEASE_EVERY), count) if count else (quota, 0)
