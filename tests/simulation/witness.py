"""A witness beside the handlers of one process: it sees what neither the tables nor the service show."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast import ErrorClass, current
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.execution.interrupts import Interrupted
from tests.simulation.processes import CANCELLED_BY_FAULT
from tests.simulation.provider_oracle import Caller, Ended
from tests.simulation.service_failures import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.auditor import Auditor, Row
    from tests.simulation.clocks import MachineClock

T = TypeVar("T")

MOST_ATTEMPTS = 4
"""Attempts that any job has, or one of its stages."""

SHORTEST_TIMEOUT = 20.0 - 1e-6
"""Seconds after which a call that is cancelled was given up: one that is cancelled earlier was stopped."""

TOO_LONG = Expected(ErrorClass.NETWORK_TIMEOUT, passes=True)
EARLY = 0.001
"""Seconds by which a clock may be rounded."""

EARLIER = {("order", "ship"): "pack", ("long", "ship"): "rest"}
"""Which stage of a job has to be stored before another one begins."""


AT_ONCE = 0.3
"""Seconds within which a job begins that lost a worker, once it is claimed and no other such job runs beside it."""

SLOT_WAIT = 3.0
"""Seconds that a job may wait in its slot for a permit to call a provider."""


class Place(NamedTuple):
    """Where something was seen: under which key, in which lease of the job, and when, by a clock that is never set."""

    job_id: str
    token: int
    key: str
    seconds: float


class ObservedFailure(NamedTuple):
    """A failure that reached a handler, and how the engine has to treat it."""

    place: Place
    expected: Expected


@dataclass
class Asked:
    """When a job asked for a permit to make a call, and whether it was given."""

    at: float
    given: bool = False


ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


@dataclass
class Seen:
    """What all witnesses of a world have seen. It outlives the processes."""

    begun: Counter[str] = field(default_factory=Counter)
    came: dict[str, float] = field(default_factory=dict)
    """When a job first came to one of its naps."""
    answers: dict[str, Any] = field(default_factory=dict)
    """The answers to a job's waits, by generation and wait."""
    parked: dict[str, float] = field(default_factory=dict)
    """When it had lain down for it: the nap's beginning is in the store since then at the latest."""
    failed: Counter[str] = field(default_factory=Counter)
    called: list[Place] = field(default_factory=list)
    observed: list[ObservedFailure] = field(default_factory=list)


class Witness:
    """Watches the handlers of one process."""

    def __init__(
        self, auditor: Auditor, seen: Seen, clock: MachineClock, complain: Callable[[str], None]
    ) -> None:
        self._auditor = auditor
        self._seen = seen
        self._clock = clock
        self._complain = complain
        self._suspected_ended_at = float("-inf")
        self._suspected: dict[str, bool] = {}
        """Those that run here, and whether a loss would be the last."""

    def times_begun(self) -> int:
        """Count how often the running job was begun in its generation."""
        now = current()
        return self._seen.begun[f"{now.job_id}:{now.generation}"]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch a job's function, from its first line to its last."""
        now = current()
        self._seen.begun[f"{now.job_id}:{now.generation}"] += 1
        row = self._held(now.job_id)
        if row is not None and (row.losses or row.excused):
            self._watch_suspected(row)
        try:
            yield
        finally:
            if self._suspected.pop(now.job_id, None) is not None:
                self._suspected_ended_at = self._clock.monotonic()

    def _watch_suspected(self, row: Row) -> None:
        """Check that its row says so, and that no other suspected job runs beside one on its last attempt."""
        if row.suspicion != 2:
            self._complain(f"job {row.id} lost a worker, and runs without being held responsible")
        last = row.attempt >= MOST_ATTEMPTS
        if self._suspected and (last or any(self._suspected.values())):
            self._complain(
                f"job {row.id} began beside {sorted(self._suspected)}, and one could be lost for good"
            )
        claimed_at = self._auditor.claimed_at(row.id)
        waited = self._clock.monotonic() - claimed_at
        alone = not self._suspected and self._suspected_ended_at < claimed_at
        if alone and waited > AT_ONCE and self._undisturbed(row.id):
            self._complain(f"job {row.id} lost a worker, and waited {waited:.1f} s for a turn that was free")
        self._suspected[row.id] = last

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Watch a call to the service under the present key: did it fail, or was it only stopped?"""
        key, loop = current().key, asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        except asyncio.CancelledError:
            by_fault = asyncio.current_task() in CANCELLED_BY_FAULT
            if loop.time() - began >= SHORTEST_TIMEOUT and not by_fault:
                self._seen.failed[key] += 1
                self.observe_failure(TOO_LONG)
            raise
        except Exception:
            self._seen.failed[key] += 1
            raise

    @contextmanager
    def napping(self, seconds: float, call: str) -> Iterator[None]:
        """Watch a nap: it lasts as long as it should since it was first noted, however often the job is run."""
        now, clock = current(), self._clock
        nap, here = f"{now.job_id}:{now.generation}:{call}", clock.monotonic()
        came = self._seen.came.setdefault(f"{now.job_id}:{call}", here)  # a nap that is over stays so
        try:
            yield
        except Interrupted:
            parked = self._seen.parked.setdefault(nap, clock.monotonic())
            napped = here - parked + clock.turned(parked, here)
            if napped > seconds and self._undisturbed(now.job_id):
                self._complain(f"nap {nap} of {seconds:.1f} s begins again after {napped:.1f} s")
            raise
        over = clock.monotonic()
        napped = over - came + clock.skipped(came, over)
        if napped < seconds - EARLY:
            self._complain(f"nap {nap} of {seconds:.1f} s was over after {napped:.1f} s")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Watch a job that asks for a permit to call a provider: it gets an answer soon, or gives up its slot."""
        asked = Asked(self._clock.monotonic())
        outer = ASKED.set(asked)
        try:
            yield
        except Interrupted:
            if not asked.given:
                self._answered(asked)
            raise
        finally:
            ASKED.reset(outer)

    def calls(self, worker: str) -> Caller:
        """Check how long a job had to wait for a call that begins; return its caller."""
        asked, place = ASKED.get(), _here()
        if asked is not None and not asked.given:  # a second call is a backup's
            asked.given = True
            self._answered(asked)
        return Caller(worker, place.job_id, place.token, self._held(place.job_id))

    def saw_call_end(self, ended: Ended) -> None:
        """Note how a call to a provider ended."""
        if ended is not Ended.WELL:
            self._seen.failed[current().key] += 1

    def _answered(self, asked: Asked) -> None:
        waited, job_id = self._clock.monotonic() - asked.at, current().job_id
        if waited > SLOT_WAIT and self._undisturbed(job_id):
            self._complain(f"job {job_id} kept its slot for {waited:.1f} s, to wait for a provider")

    def note_answer(self, wait: str, what: T) -> T:
        """Note the answer to a wait: a job that is run again gets the same answer again."""
        now = current()
        before = self._seen.answers.setdefault(f"{now.job_id}:{now.generation}:{wait}", what)
        if before != what:
            self._complain(f"job {now.job_id} got {before!r} at {wait!r}, and then {what!r}")
        return what

    def _undisturbed(self, job_id: str) -> bool:
        """Whether the worker of a job has met no fault since it claimed it."""
        row = self._held(job_id)
        return row is not None and self._auditor.untroubled(
            row.worker or "", self._auditor.claimed_at(job_id)
        )

    def observe_failure(self, expected: Expected) -> None:
        """Remember that a failure has reached the handler that is running."""
        self._seen.observed.append(ObservedFailure(_here(), expected))

    def observe_call(self, key: str) -> None:
        """Check a call as it goes out: a stage begins in its turn, and once it is stored, never again."""
        self._seen.called.append(_here())
        job_id, _, stage, call = (*key.split(":"), "", "")[:4]
        row = self._held(job_id)
        if row is None or not stage:
            return  # a worker that lost its lease may be late
        if self._is_done(job_id, stage, call):
            self._complain(f"stage {stage} {call} of job {job_id} runs again, and its result is stored")
        earlier = EARLIER.get((row.name, stage))
        if earlier is not None and not self._is_done(job_id, earlier, "#1"):
            self._complain(f"stage {stage} of job {job_id} began before {earlier} was stored")

    def _held(self, job_id: str) -> Row | None:
        """The row of a job, if the attempt that is running still holds its lease."""
        row, attempt = self._auditor.jobs.get(job_id), CURRENT.get()
        return row if row is not None and attempt is not None and attempt.claim.token == row.token else None

    def _is_done(self, job_id: str, name: str, call: str) -> bool:
        stage = self._auditor.stages.get((job_id, name, call))
        return stage is not None and stage.status == "done"


def _here() -> Place:
    now, attempt = current(), CURRENT.get()
    assert attempt is not None
    return Place(now.job_id, attempt.claim.token, now.key, asyncio.get_running_loop().time())
