"""Counters kept in memory, for those who collect nothing yet."""

from collections import Counter


class Figures:
    """Counts by name and labels.

    >>> figures = Figures()
    >>> figures.count("jobs_failed", code="GW_5XX")
    >>> figures.value("jobs_failed", code="GW_5XX")
    1
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        self._counts[name, tuple(sorted(labels.items()))] += amount

    def value(self, name: str, **labels: str) -> int:
        """Read a counter."""
        return self._counts[name, tuple(sorted(labels.items()))]
