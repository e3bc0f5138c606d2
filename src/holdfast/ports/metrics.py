"""Figures that somebody may want to collect."""

from typing import Protocol


class Metrics(Protocol):
    """A sink for figures. Calls are made once per batch, never once per job."""

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add *amount* to a counter."""
        ...
