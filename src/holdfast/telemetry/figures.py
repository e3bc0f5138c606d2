"""Figures kept in memory: cheap enough to be kept always, for whoever collects them in the end."""

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Where the classes of a distribution end, in seconds: jobs take from milliseconds to an hour."""

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]


class Spread(NamedTuple):
    """How many lengths fell into each class, the one above all bounds last, and what they make together."""

    classes: tuple[int, ...]
    total: float


NOTHING = Spread((0,) * (len(BOUNDS) + 1), 0.0)


class Figures:
    """Counts and distributions by name and labels.

    >>> figures = Figures()
    >>> figures.count("jobs_failed", code="GW_5XX")
    >>> figures.value("jobs_failed", code="GW_5XX")
    1
    """

    def __init__(self) -> None:
        self.begin_anew()
        _ALL.add(self)

    def begin_anew(self) -> None:
        """Count from zero, in a forked child: a thread of the parent may have held the lock, half way through."""
        self._lock = Lock()  # the `_sync` verbs count from a thread of their own
        self._counts: Counter[Key] = Counter()
        self._classes: dict[Key, list[int]] = {}
        self._totals: defaultdict[Key, float] = defaultdict(float)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        with self._lock:
            self._counts[_key(name, labels)] += amount

    def observe(self, name: str, values: Sequence[float], **labels: str) -> None:
        key = _key(name, labels)
        with self._lock:
            classes = self._classes.setdefault(key, [0] * (len(BOUNDS) + 1))
            for value in values:
                classes[bisect_left(BOUNDS, value)] += 1
            self._totals[key] += sum(values)

    def value(self, name: str, **labels: str) -> int:
        """Read a counter."""
        return self._counts[_key(name, labels)]

    def counts(self) -> dict[Key, int]:
        """Read all counters."""
        with self._lock:
            return dict(self._counts)

    def spreads(self) -> dict[Key, Spread]:
        """Read all distributions."""
        with self._lock:
            return {key: Spread(tuple(found), self._totals[key]) for key, found in self._classes.items()}


def _key(name: str, labels: Mapping[str, str]) -> Key:
    return name, tuple(sorted(labels.items()))


_ALL: "WeakSet[Figures]" = WeakSet()


def _begin_anew() -> None:
    for figures in list(_ALL):
        figures.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
