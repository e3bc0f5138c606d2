"""Metrics in memory: cheap enough to be always on, for any collector."""

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the histogram buckets, in seconds: jobs take from milliseconds to an hour."""

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]


class Histogram(NamedTuple):
    """The number of values in each bucket, the one above all bounds last, and the sum of the values."""

    buckets: tuple[int, ...]
    total: float


EMPTY_HISTOGRAM = Histogram((0,) * (len(BOUNDS) + 1), 0.0)


class MetricRegistry:
    """Counters and histograms by name and labels.

    >>> metrics = MetricRegistry()
    >>> metrics.count("jobs_failed", code="GW_5XX")
    >>> metrics.value("jobs_failed", code="GW_5XX")
    1
    """

    def __init__(self) -> None:
        self.reset()
        _ALL.add(self)

    def reset(self) -> None:
        """Start from zero, in a forked child: a thread of the parent may have held the lock at the fork."""
        self._lock = Lock()  # the `_sync` verbs count from a thread of their own
        self._counts: Counter[Key] = Counter()
        self._buckets: dict[Key, list[int]] = {}
        self._totals: defaultdict[Key, float] = defaultdict(float)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        with self._lock:
            self._counts[_key(name, labels)] += amount

    def observe(self, name: str, values: Sequence[float], **labels: str) -> None:
        key = _key(name, labels)
        with self._lock:
            buckets = self._buckets.setdefault(key, [0] * (len(BOUNDS) + 1))
            for value in values:
                buckets[bisect_left(BOUNDS, value)] += 1
            self._totals[key] += sum(values)

    def value(self, name: str, **labels: str) -> int:
        """Read a counter."""
        return self._counts[_key(name, labels)]

    def counts(self) -> dict[Key, int]:
        """Read all counters."""
        with self._lock:
            return dict(self._counts)

    def histograms(self) -> dict[Key, Histogram]:
        """Read all histograms."""
        with self._lock:
            return {key: Histogram(tuple(found), self._totals[key]) for key, found in self._buckets.items()}


def _key(name: str, labels: Mapping[str, str]) -> Key:
    return name, tuple(sorted(labels.items()))


_ALL: "WeakSet[MetricRegistry]" = WeakSet()


def _reset_all() -> None:
    for registry in list(_ALL):
        registry.reset()


os.register_at_fork(after_in_child=_reset_all)
