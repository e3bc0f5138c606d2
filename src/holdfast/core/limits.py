"""How many calls a provider gets: so many at a time, and so many in a length of time, over all workers.

Both limits are shared through one small value, and cost no write per call. Of a *rate*, a worker reserves the
next few moments at which a call may begin, and makes its calls then: whoever dies loses only the moments it had
reserved. Of a *concurrency*, a worker holds a share for a while and makes so many calls at a time; a share that
is not renewed goes back to the others. A provider's calls can be told apart by a key, a customer's name for
example: each key then has limits of its own within those of the provider, and keys take turns.
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
_SPELLED = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9a-z .]+?)\s*")

AHEAD = 1.0
"""Seconds for which a worker reserves moments: as much is lost when it dies, and as long may a job wait in its slot."""

LEASE = 10.0
"""Seconds for which a share of the calls is lent."""

OUT_EVERY = 0.25
"""Seconds from one letting out of held jobs to the next: those who are out have asked for their share by then."""

SLACK = 0.1
"""Seconds that a key may be behind its rate and make up for: its turns do not come to the millisecond."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls in a length of time, evenly spread.

    >>> Rate.of("60/min"), Rate.of("5/10s").interval
    (Rate(calls=60, per=datetime.timedelta(seconds=60)), 2.0)
    """

    calls: int
    per: timedelta

    @classmethod
    def of(cls, text: str) -> "Rate":
        """Read a rate as people write it. Raises `ValueError` for anything else."""
        match = _SPELLED.fullmatch(text.lower())
        per = None if match is None else _length(match[2])
        if match is None or int(match[1]) < 1 or per is None:
            raise ValueError(
                f"Not a rate: {text!r}. Write calls and time, such as '50/s', '60/min' or '5/10s'"
            )
        return cls(int(match[1]), per)

    @property
    def interval(self) -> float:
        """Seconds from one call to the next."""
        return self.per.total_seconds() / self.calls


def _length(text: str) -> timedelta | None:
    """Read the time after the stroke; `None` if it is none, or nothing."""
    try:
        length = duration(_UNITS.get(text.removesuffix("s") or text, text))
    except ValueError:
        return None
    return length if length > timedelta(0) else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How many calls at a time, and in a length of time; `None` sets no limit."""

    concurrency: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        """Refuse a limit that lets nobody through."""
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency} lets no call through; the least is 1")

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.concurrency is not None or self.rate is not None


class Share(NamedTuple):
    """What a worker has of a limit: how many calls it may make at a time, how many it would like, and until when."""

    calls: int
    wanted: int
    expires: float

    def is_alive(self, now: float) -> bool:
        """Whether it has not run out; one that was lent for longer than anything is, by a clock that went back, has."""
        return now < self.expires <= now + LEASE


@dataclass(frozen=True, slots=True)
class Quota:
    """What is given out of limits, those of a provider or of one key."""

    next_at: float = 0.0
    """When the next call may begin, by the rate."""
    out_at: float = 0.0
    """When the next jobs that are held for these limits may be let out."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """Which worker may make how many calls at a time."""

    def idle(self, now: float) -> bool:
        """Whether nothing is given out of it any more, so that it need not be remembered."""
        return max(self.next_at, self.out_at) <= now - SLACK and not self._alive(now)

    @property
    def expires(self) -> float:
        """From when on it is idle, unless something is given out of it before."""
        return max(self.next_at, self.out_at, *(share.expires for share in self.shares.values()), 0.0) + SLACK

    def moment(self, rate: Rate | None, now: float) -> float:
        """Tell when the next call may begin, by *rate*.

        A moment much further off than this rate ever reserves was reserved by a slower one, before it was changed.
        """
        if rate is None or self.next_at > now + 2 * AHEAD + rate.interval:
            return now
        return max(self.next_at, now)

    def _alive(self, now: float) -> dict[str, Share]:
        return {worker: share for worker, share in self.shares.items() if share.is_alive(now)}

    def places(self, limits: Limits, worker: str, now: float) -> int:
        """Tell how many calls *worker* may have under way: what it has been lent, and no more than its fair part.

        Whoever has more than that, because others have come, begins nothing new until enough of its calls have ended.
        """
        alive = self._alive(now)
        if limits.concurrency is None or worker not in alive:
            return 0
        wishes = {name: share.wanted for name, share in alive.items()}
        return min(alive[worker].calls, _fair(wishes, limits.concurrency)[worker])

    def demand(self, now: float) -> int:
        """Tell how many calls all workers together are making, or would like to."""
        return sum(share.wanted for share in self._alive(now).values())

    def shared(self, limits: Limits, worker: str, now: float, *, using: int, wanted: int) -> "Quota":
        """Give *worker* its share anew; one that stays as it is, is renewed in good time only."""
        if limits.concurrency is None:
            return self
        shares = share_out(self.shares, limits.concurrency, worker, using=using, wanted=wanted, now=now)
        mine, before = shares.get(worker), self.shares.get(worker)
        if mine is not None and before is not None and mine[:2] == before[:2]:
            shares[worker] = before if before.expires - now > LEASE / 2 else mine
        return self if shares == self.shares else replace(self, shares=shares)


def share_out(
    shares: Mapping[str, Share], limit: int, worker: str, *, using: int, wanted: int, now: float
) -> dict[str, Share]:
    """Give *worker* its share anew; it keeps at least what it is *using*, and nobody loses what they have.

    When all together want more than there is, each may have the same, and what one does not want is the others'.
    A worker that has more than that gives it up as its calls end; until then whoever has less waits.
    """
    kept = {name: share for name, share in shares.items() if share.is_alive(now) and name != worker}
    wishes = {name: share.wanted for name, share in kept.items()} | {worker: max(using, wanted)}
    free = limit - sum(share.calls for share in kept.values())
    calls = max(using, min(_fair(wishes, limit)[worker], free))
    if calls or wanted:
        kept[worker] = Share(calls, wishes[worker], now + LEASE)
    return kept


def _fair(wishes: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide *limit*: the modest get what they wish, the others the same each.

    >>> _fair({"a": 1, "b": 9, "c": 9}, 8)
    {'a': 1, 'b': 3, 'c': 4}
    """
    left, fair = limit, {}
    for number, name in enumerate(sorted(wishes, key=lambda name: (wishes[name], name))):
        fair[name] = min(wishes[name], left // (len(wishes) - number))
        left -= fair[name]
    return fair


class Wish(NamedTuple):
    """What a worker would like: how many calls of each key it makes now, and how many wait, the next in turn first."""

    using: Mapping[str, int]
    waiting: Mapping[str, int]
    lately: int = 0
    """How many calls it made at a time a moment ago: their places are kept for those that follow."""


class Grant(NamedTuple):
    """A call that may begin at *at*."""

    key: str
    at: float


@dataclass(slots=True)
class Desk:
    """Where one worker is given what it may have: it takes from copies, which become the new truth if nobody was quicker."""

    worker: str
    now: float
    limits: Limits
    key_limits: Limits
    quota: Quota
    keys: dict[str, Quota]
    using: dict[str, int] = field(default_factory=dict)
    busy: int = 0

    def give(self, wish: Wish) -> list[Grant]:
        """Give out what there is, key by key in turns."""
        self._share(wish)
        self.using, self.busy = dict(wish.using), sum(wish.using.values())
        left = {key: count for key, count in wish.waiting.items() if count}
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

    def _share(self, wish: Wish) -> None:
        if self.key_limits.concurrency is not None:
            # What the worker has of keys that it does not wish for any more goes back.
            mine = (key for key, quota in self.keys.items() if self.worker in quota.shares)
            for key in sorted({*wish.using, *wish.waiting, *mine}):
                busy = wish.using.get(key, 0)
                self.keys[key] = self.keys.get(key, Quota()).shared(
                    self.key_limits, self.worker, self.now, using=busy, wanted=busy + wish.waiting.get(key, 0)
                )
        using = sum(wish.using.values())
        wanted = using + sum(self._could_begin(key, wish) for key in wish.waiting)
        share = self.quota.shares.get(self.worker)
        if share is not None and share.is_alive(self.now):
            # It goes on to use these places while this is on its way.
            using = max(using, min(wish.lately, share.calls))
        self.quota = self.quota.shared(
            self.limits, self.worker, self.now, using=using, wanted=max(using, wanted)
        )

    def _could_begin(self, key: str, wish: Wish) -> int:
        """Tell how many may begin as far as their key goes: the others shall not take places from the rest."""
        if self.key_limits.concurrency is None:
            return wish.waiting[key]
        places = self.keys[key].places(self.key_limits, self.worker, self.now)
        return max(0, min(wish.waiting[key], places - wish.using.get(key, 0)))

    def _grant(self, key: str) -> Grant | None:
        """Let a call of *key* begin, if there is a place for it, and a moment soon."""
        own, busy = self.keys.get(key, Quota()), self.using.get(key, 0)
        if not self._has_place(self.limits, self.quota, self.busy):
            return None
        if not self._has_place(self.key_limits, own, busy):
            return None
        at = self._moment(own)
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

    def _has_place(self, limits: Limits, quota: Quota, using: int) -> bool:
        return limits.concurrency is None or quota.places(limits, self.worker, self.now) > using

    def _moment(self, own: Quota) -> float | None:
        """Find when a call may begin. A key whose time has not come is passed over: others have the moment."""
        at = self.quota.moment(self.limits.rate, self.now)
        if at > self.now + AHEAD or own.moment(self.key_limits.rate, self.now) > at:
            return None
        return at


def worth_letting_out(limits: Limits, quota: Quota, now: float, *, most: int) -> tuple[Quota, int]:
    """Tell how many jobs that are held for *limits* may try again, at most *most*; the quota notes that they are out.

    For a rate as many as there are moments soon; for a concurrency twice as many as fit, less those who are there.
    """
    if now < quota.out_at <= now + OUT_EVERY:  # further off it was only by a clock that went back
        return quota, 0
    count = most
    if limits.concurrency is not None:
        count = min(count, max(0, 2 * limits.concurrency - quota.demand(now)))
    if limits.rate is not None:
        soon = now + AHEAD - quota.moment(limits.rate, now)
        count = min(count, max(0, math.floor(soon / limits.rate.interval) + 1))
    return (replace(quota, out_at=now + OUT_EVERY), count) if count else (quota, 0)
