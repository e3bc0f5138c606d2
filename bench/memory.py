"""How much memory this process holds."""

from __future__ import annotations

import threading
from typing import Self

import psutil

INTERVAL_SECONDS = 0.05


def resident_mb() -> float:
    """Return the resident memory of this process in megabytes."""
    return psutil.Process().memory_info().rss / 1e6


class PeakMemory:
    """The highest resident memory between enter and exit, looked at twenty times a second."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def _watch(self) -> None:
        while not self._stopping.wait(INTERVAL_SECONDS):
            self.peak_mb = max(self.peak_mb, resident_mb())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.peak_mb = max(self.peak_mb, resident_mb())
