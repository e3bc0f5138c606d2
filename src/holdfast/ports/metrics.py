"""Metrics of a process."""

from collections.abc import Sequence
from typing import Protocol


class Metrics(Protocol):
    """A sink for metrics. Calls are made once per batch, never once per job, and from more than one thread."""

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add *amount* to a counter."""
        ...

    def observe(self, name: str, values: Sequence[float], **labels: str) -> None:
        """Add durations, in seconds, to a distribution."""
        ...
