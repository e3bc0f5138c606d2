"""The state of one attempt: what is known of its job, and what has become of it since the claim."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.core.jobs.job import Claim, Signal
from holdfast.core.jobs.stages import StageKey, StageRow
from holdfast.core.jobs.transitions import Finish, Requeue, prevailing
from holdfast.engine.execution.context import STAGE
from holdfast.engine.execution.interrupts import Interruption
from holdfast.ports.store import Settled

TURNS = 10
"""Iterations of the event loop that a branch of a job may need between two operations, through tasks and groups."""

_NO_ROWS: dict[StageKey, StageRow] = {}
_NO_NOTES: Mapping[str, Any] = {}
_NO_JOBS: frozenset[str] = frozenset()


class InFlight:
    """Counts work in flight: a job is parked only when there is none."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return self._count == 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count the block as work in flight."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight, and no branch of the job has started anything after that."""
        turns = 0
        while turns < TURNS:
            turns = turns + 1 if self.idle else 0
            await (asyncio.sleep(0) if self.idle else self._idle.wait())


class Ended(NamedTuple):
    """A job that has ended in a transaction of its function's own: *end* is written, and has yet to be reported."""

    end: Finish
    settled: Settled


class ExecutionState:
    """The state that the modules of an attempt share. They read its attributes, and change it by its methods only.

    Times are on this process's monotonic clock, from the moment of the claim. The store decides on deadlines.
    """

    __slots__ = (
        "_claimed_at",
        "_in_flight",
        "_loop",
        "claim",
        "completion",
        "due",
        "ended",
        "interruption",
        "notes",
        "postponed",
        "reused_children",
        "rows",
        "signals",
        "trace",
    )

    def __init__(self, claim: Claim, loop: asyncio.AbstractEventLoop) -> None:
        self.claim = claim
        """The lease, with the number of this attempt: the store counts from one again after each stored stage."""
        self.trace = claim.trace
        """The trace context of this attempt: a span of its own, or that of its submitter."""
        self.rows = _NO_ROWS
        """The stored stages and waits of the job."""
        self.signals: Sequence[Signal] = ()
        """All signals that the job had received when it was claimed."""
        self.interruption: Interruption | None = None
        """Why the engine stops the attempt, if it does."""
        self.ended = False
        """Whether the function has returned or raised."""
        self.postponed: Requeue | None = None
        """The transition that retries, holds or parks the job, even if its code swallows `Interrupted`."""
        self.completion: Ended | None = None
        """The end that the function has written in a transaction of its own, which may be rolled back."""
        self.notes = _NO_NOTES
        """The fields that the job's code has noted for its dead letter."""
        self.reused_children = _NO_JOBS
        """The jobs that an earlier generation has submitted, and that this generation has submitted again."""
        self._in_flight: InFlight | None = None
        self._loop = loop
        self._claimed_at = loop.time()
        self.due = None if claim.time_left is None else self._claimed_at + claim.time_left

    def load(self, rows: dict[StageKey, StageRow], signals: Sequence[Signal]) -> None:
        """Set what the store keeps of the job."""
        self.rows, self.signals = rows, signals

    def enter_span(self, trace: str | None) -> None:
        """Set the trace context of a span of this attempt's own."""
        self.trace = trace

    def interrupt(self, why: Interruption) -> bool:
        """Note that the engine stops the attempt; return false if it was stopping it already."""
        if self.interruption is not None:
            return False
        self.interruption = why
        return True

    def end(self) -> None:
        """Note that the function has ended: what its code does from now on takes no effect."""
        self.ended = True

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended or is interrupted: what the job's code does takes no effect any more."""
        return self.ended or self.interruption is not None

    def complete(self, completion: "Ended | None") -> None:
        """Note that the function ends the job in a transaction of its own; `None` means that it did not after all."""
        self.completion = completion

    def postpone(self, change: Requeue) -> None:
        """Requeue the job with *change* when the function is unwound, unless an earlier change prevails over it."""
        self.postponed = prevailing(self.postponed, change)

    def remember(self, row: StageRow) -> None:
        """Remember a stage or a wait that has been stored."""
        if self.rows:
            self.rows[row.key] = row
        else:
            self.rows = {row.key: row}

    def restart_count(self) -> None:
        """Count attempts from one again, as the store does when it stores the end of a stage."""
        self.claim = self.claim._replace(attempt=1)

    def note(self, fields: Mapping[str, Any]) -> None:
        """Remember fields for the dead letter, if the job leaves one."""
        self.notes = {**self.notes, **fields}

    def reuse_children(self, job_ids: Iterable[str]) -> None:
        """Remember jobs that an earlier generation has submitted already."""
        self.reused_children = self.reused_children.union(job_ids)

    @property
    def in_flight(self) -> InFlight:
        """The work that the job's code has in flight."""
        if self._in_flight is None:
            self._in_flight = InFlight()
        return self._in_flight

    @property
    def number(self) -> int:
        """The number of the attempt that the running code belongs to: at its stage, or at the whole job."""
        stage = STAGE.get()
        return self.claim.attempt if stage is None else stage.number

    def elapsed(self) -> float:
        """Return the seconds since the job was claimed."""
        return self._loop.time() - self._claimed_at

    def time_left(self) -> timedelta | None:
        """Return the time until the job's deadline; negative after it, `None` without one."""
        return None if self.due is None else timedelta(seconds=self.due - self._loop.time())

    def overdue(self) -> bool:
        """Whether the job's deadline has passed, by this process's clock."""
        return self.due is not None and self._loop.time() >= self.due
