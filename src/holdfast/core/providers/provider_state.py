"""What all workers of a store share about a provider: the state of its breaker, and what is allocated of its limits."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import (
    BreakerState,
    OpenCause,
    OpenPeriod,
    Ramp,
    RecordedCall,
    Trial,
    lets_through,
)
from holdfast.core.providers.holder import Holder
from holdfast.core.providers.limits import (
    Grant,
    LimitAllocator,
    LimitRequest,
    Limits,
    Quota,
    Rate,
    Share,
    releasable,
)
from holdfast.core.providers.override import Override, OverrideKind
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.ramp import release

_RETRIES = "\n"
"""The key of the quota of retries, beside those of customers; no customer's key contains it."""

MAX_SAVED_RETRIES = 10.0
"""How many unused retries a budget keeps."""

MAX_KEYS_PER_RELEASE = 200
"""For how many keys jobs are released in one step: each costs a row."""

ORPHANED_AFTER = 10.0
"""Seconds without a release after which no worker seems to know the limits that jobs are held for."""

ORPHANED = Limits(rate=Rate(1, timedelta(seconds=1)))
"""The limits under which jobs are released that are held for the limits of a provider which is not declared here."""


@dataclass(frozen=True, slots=True)
class ProviderState:
    """What all workers share about a provider: the state of its breaker, and what is allocated of its limits.

    What is allocated of the limits of a key is stored in a row for each key. Only the keys that were read are here.
    """

    breaker: BreakerState = field(default_factory=BreakerState)
    quota: Quota = field(default_factory=Quota)
    keys: Mapping[str, Quota] = field(default_factory=dict)
    """What is allocated of the limits of the keys that were read."""
    inline: Mapping[str, Quota] = field(default_factory=dict)
    """Quotas in the provider's own row: that of retries, and keys written by workers that have no rows for them."""
    retries: float = MAX_SAVED_RETRIES
    """How many calls may be retries, as of `retries_at`."""
    retries_at: float = 0.0
    turn: int = 0
    """How often jobs held for limits were released: the key that comes first rotates."""

    def dump(self) -> str:
        """Return it as JSON, without the keys that have rows of their own."""
        breaker = {
            _STORED_NAMES.get(name, name): getattr(self.breaker, name) for name in BreakerState.__slots__
        }
        inline = {key: _quota_fields(quota) for key, quota in self.inline.items()}
        return json.dumps(
            {
                "gate": breaker,
                "quota": _quota_fields(self.quota),
                "keys": inline,
                "retries": self.retries,
                "retries_at": self.retries_at,
                "turn": self.turn,
            },
            separators=(",", ":"),
        )

    @classmethod
    def load(cls, text: str) -> "ProviderState":
        """Read what `dump` wrote, also if a newer or an older version of the library wrote it."""
        stored = json.loads(text)
        return cls(
            breaker=_load_breaker(stored.get("gate", {})),
            quota=_load_quota(stored.get("quota", ())),
            inline={key: _load_quota(quota) for key, quota in stored.get("keys", {}).items()},
            retries=stored.get("retries", MAX_SAVED_RETRIES),
            retries_at=stored.get("retries_at", 0.0),
            turn=stored.get("turn", 0),
        )

    def with_keys(self, requested: Iterable[str], stored: Mapping[str, str]) -> "ProviderState":
        """Add what is stored of the *requested* keys, and what workers that know no rows have taken of them."""
        rows = {key: _load_quota(json.loads(stored[key])) if key in stored else Quota() for key in requested}
        keys = {key: _merged(quota, self.inline.get(key)) for key, quota in rows.items()}
        return replace(self, keys={key: quota for key, quota in keys.items() if quota != Quota()})

    def without_keys(self) -> "ProviderState":
        """Return what the provider's own row holds."""
        return replace(self, keys={})

    def changed_keys(self, before: "ProviderState", now: float) -> dict[str, Quota]:
        """Return the keys to write. One that was idle *before*, and is gone now, stays until it is deleted."""
        kept = {key: quota for key, quota in self.keys.items() if before.keys.get(key) != quota}
        dropped = [key for key in before.keys if key not in self.keys and not before.keys[key].idle(now)]
        return kept | dict.fromkeys(dropped, Quota())

    def grant(
        self, spec: ProviderSpec, worker: str, request: LimitRequest, now: float
    ) -> tuple["ProviderState", list[Grant]]:
        """Allocate to *worker* what it may have of the limits; idle keys are dropped."""
        if not (spec.limits.any or spec.key_limits.any):
            return self, []
        allocator = LimitAllocator(worker, now, spec.limits, spec.key_limits, self.quota, dict(self.keys))
        grants = allocator.allocate(request)
        return replace(
            self, quota=allocator.quota, keys=_in_use(allocator.keys, now), inline=_in_use(self.inline, now)
        ), grants

    def grant_retries(
        self, spec: ProviderSpec, *, firsts: int, requested: int, now: float
    ) -> tuple["ProviderState", int]:
        """Grant up to *requested* retries: one a second, and the budgeted part of *firsts*; unused ones accumulate."""
        if spec.retry_budget is None or not (firsts or requested):
            return self, requested
        saved = min(MAX_SAVED_RETRIES, self._saved(now) + spec.retry_budget * firsts)
        if not requested and saved == self.retries:
            return self, 0  # there is no need to save more
        count = min(requested, int(saved))
        return replace(self, retries=saved - count, retries_at=now), count

    def _saved(self, now: float) -> float:
        return min(MAX_SAVED_RETRIES, self.retries + max(0.0, now - self.retries_at))

    def plan_release(
        self,
        name: str,
        spec: ProviderSpec | None,
        holders: Sequence[Holder],
        now: float,
        *,
        limit: int,
        to_backup: bool = False,
    ) -> tuple["ProviderState", dict[Holder, int]]:
        """Return the new state, and how many jobs to release of each holder, all of them of this provider.

        *spec* is `None` if the provider is not declared here. While the breaker is open, jobs held for a limit stay,
        unless they can go *to_backup*. If no job is held for the breaker, they are the trials.
        """
        state, counts = self, dict[Holder, int]()
        for_breaker = [Holder(name)] if Holder(name) in holders else []
        if not (for_breaker or to_backup or lets_through(self.breaker)):
            for_breaker = list(holders)
        if for_breaker:
            settings = Breaker() if spec is None else spec.breaker
            breaker, size = release(self.breaker, settings, now, to_backup=to_backup)
            state, counts = replace(self, breaker=breaker), {for_breaker[0]: size}
        if not (to_backup or lets_through(state.breaker)):
            return state, counts
        for_retries = Holder(name, for_retries=True)
        if for_retries in holders:
            state, counts[for_retries] = state._release_for_retries(now)
        limited = self._next_in_turn(holders)
        if limited:
            state, more = state._release_for_limits(spec, limited, now, limit)
            counts |= more
        return state, counts

    def keys_to_release(self, spec: ProviderSpec | None, holders: Sequence[Holder]) -> list[str]:
        """Return the keys whose limits decide about the next jobs to release."""
        if spec is None or not spec.key_limits.any:
            return []
        return [holder.key or "" for holder in self._next_in_turn(holders)]

    def _next_in_turn(self, holders: Sequence[Holder]) -> list[Holder]:
        """Return the next holders for limits, at most `MAX_KEYS_PER_RELEASE`, in rotation."""
        limited = [holder for holder in holders if holder.key is not None]
        first = self.turn % len(limited) if limited else 0
        return [
            *limited[first : first + MAX_KEYS_PER_RELEASE],
            *limited[: max(0, first + MAX_KEYS_PER_RELEASE - len(limited))],
        ][: len(limited)]

    def _release_for_retries(self, now: float) -> tuple["ProviderState", int]:
        saved = int(self._saved(now))
        quota, count = releasable(Limits(), self.inline.get(_RETRIES, Quota()), now, limit=saved)
        return (replace(self, inline={**self.inline, _RETRIES: quota}) if count else self), count

    def _release_for_limits(
        self, spec: ProviderSpec | None, holders: Sequence[Holder], now: float, limit: int
    ) -> tuple["ProviderState", dict[Holder, int]]:
        if spec is None and now < self.quota.release_at + ORPHANED_AFTER:
            return self, dict.fromkeys(holders, 0)  # a worker that knows the limits releases them
        limits = ORPHANED if spec is None else spec.limits
        key_limits = Limits() if spec is None else spec.key_limits
        quota, left = releasable(limits, self.quota, now, limit=limit)
        if not left:
            return self, dict.fromkeys(holders, 0)
        keys, counts = dict(self.keys), {}
        for number, holder in enumerate(holders):
            key = holder.key or ""
            part = -(-left // (len(holders) - number))
            if key_limits.any and part:
                keys[key], part = releasable(key_limits, keys.get(key, Quota()), now, limit=part)
            counts[holder] = part
            left -= part
        # Of few holders another one is first each time; of very many the next ones follow.
        turn = self.turn + (1 if len(holders) < MAX_KEYS_PER_RELEASE else MAX_KEYS_PER_RELEASE)
        return replace(self, quota=quota, keys=keys, turn=turn), counts


def _in_use(keys: Mapping[str, Quota], now: float) -> dict[str, Quota]:
    return {key: quota for key, quota in keys.items() if not quota.idle(now)}


def _merged(quota: Quota, other: Quota | None) -> Quota:
    """Add what workers have taken that store it inline."""
    if other is None:
        return quota
    return Quota(
        max(quota.next_at, other.next_at),
        max(quota.release_at, other.release_at),
        {**quota.shares, **other.shares},
    )


def dump_quota(quota: Quota) -> str:
    """Return what is allocated of the limits of a key, as JSON."""
    return json.dumps(_quota_fields(quota), separators=(",", ":"))


def _quota_fields(quota: Quota) -> list[Any]:
    return [quota.next_at, quota.release_at, quota.shares]


def _load_quota(stored: Sequence[Any]) -> Quota:
    if not stored:
        return Quota()
    next_at, release_at, shares = stored[:3]
    return Quota(next_at, release_at, {worker: Share(*share[:3]) for worker, share in shares.items()})


_CAUSES = {cause.value: cause for cause in OpenCause}

_OVERRIDE_KINDS = {kind.value: kind for kind in OverrideKind}

_STORED_NAMES = {"open_period": "shut", "override": "order"}
"""Fields of `BreakerState` that are stored under another name."""


def _load_breaker(stored: Mapping[str, Any]) -> BreakerState:
    # A cause or a kind that is not known here still refuses calls, and its trials or its end come as for others.
    period, ramp, override = stored.get("shut"), stored.get("ramp"), stored.get("order")
    return BreakerState(
        generation=stored.get("generation", 1),
        seen=tuple(RecordedCall(*call[:3]) for call in stored.get("seen", ())),
        open_period=None
        if period is None
        else OpenPeriod(_CAUSES.get(period[0], OpenCause.FAILURES), *period[1:6]),
        trials=tuple(Trial(*trial[:2]) for trial in stored.get("trials", ())),
        denials=stored.get("denials", 0),
        ramp=None if ramp is None else Ramp(*ramp[:2]),
        override=None
        if override is None
        else Override(_OVERRIDE_KINDS.get(override[0], OverrideKind.PAUSE), *override[1:4]),
        probes=stored.get("probes", 0),
    )
