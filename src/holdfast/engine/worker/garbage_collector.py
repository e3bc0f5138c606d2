"""The garbage collector of the process, while workers run in it.

Attempts come and go by the thousand, and hardly any leaves a cycle behind. With the interpreter's defaults the
collector scans them every few dozen jobs without finding any, at a tenth of the run time of jobs that do nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 10_000
"""Allocations between two collections of the youngest generation: about a thousand jobs."""


class GarbageCollector:
    """Makes the collector run less often while at least one worker runs, and restores the earlier thresholds."""

    def __init__(self) -> None:
        self._workers = 0
        self._before = gc.get_threshold()

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Relax it for as long as the block runs."""
        if self._workers == 0:
            self._before = young, *older = gc.get_threshold()
            if young:  # else it is turned off
                gc.set_threshold(max(young, YOUNG), *older)
            # What is alive now stays so: every pass over all objects would walk over it again.
            gc.freeze()
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1
            if self._workers == 0:
                gc.set_threshold(*self._before)
                gc.unfreeze()


GARBAGE_COLLECTOR = GarbageCollector()
"""The one of this process."""
