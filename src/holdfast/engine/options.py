"""How a worker behaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Slots, queues and the lengths of time a worker lives by."""

    slots: int = 100
    queues: Sequence[str] = ("default",)
    lease: timedelta = timedelta(seconds=90)
    grace: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=1)
