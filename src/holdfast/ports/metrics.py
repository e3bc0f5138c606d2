"""Figures about the work of a process, for a collector."""

from collections.abc import Sequence
from typing import Protocol


class Metrics(Protocol):
    """A sink for figures. Calls are made once per batch, never once per job, and from more than one thread."""

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add *amount* to a counter."""
        ...

    def observe(self, name: str, values: Sequence[float], **labels: str) -> None:
        """Add lengths of time, in seconds, to a distribution."""
        ...
