"""One attempt at one job: it runs the function, and whatever happens becomes a transition."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from holdfast.core.classify import Classifier
from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures import Failure, stage_mismatch, timed_out, worker_lost
from holdfast.core.jobs import Claim
from holdfast.core.stages import StageKey, StageRow
from holdfast.core.states import Status
from holdfast.core.transitions import Finish, Transition, cancel, complete, fail, release
from holdfast.engine.calling import TookTooLongError, call
from holdfast.engine.context import CURRENT
from holdfast.engine.registry import JobSpec, StageSpec
from holdfast.engine.settling import Settler
from holdfast.engine.stages import LeaseLost, Stages
from holdfast.ports import Dice, Executor, Journal

UNKNOWN_JOB_PAUSE = timedelta(seconds=30)
STRAGGLING = timedelta(seconds=5)


class Interruption(StrEnum):
    """Why the engine stops an attempt from outside."""

    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Tools:
    """What every attempt of a worker uses."""

    settler: Settler
    classifier: Classifier
    dice: Dice
    executor: Executor
    journal: Journal
    loop: asyncio.AbstractEventLoop
    closing: Callable[[], bool]


class Attempt:
    """Runs the function of a claimed job. It never raises: what went wrong is data."""

    __slots__ = (
        "_begun",
        "_counts",
        "_interruption",
        "_over",
        "_spec",
        "_stages",
        "_stored",
        "_tools",
        "claim",
        "task",
    )

    def __init__(
        self, claim: Claim, spec: JobSpec | None, stored: dict[StageKey, StageRow] | None, tools: Tools
    ) -> None:
        self.claim = claim
        self._spec = spec
        self._tools = tools
        self._stored = stored
        self._stages: Stages | None = None
        self._interruption: Interruption | None = None
        self._begun = False
        self._over = False
        self._counts: Counter[str] | None = None
        self.task: asyncio.Task[None] | None = None

    def interrupt(self, why: Interruption) -> None:
        """Stop the attempt. What it writes then depends on *why*."""
        if self._interruption is not None:
            return
        self._interruption = why
        # A task that is cancelled before its first step, or after its last, never says what became of its job.
        if self._begun and not self._over and self.task is not None:
            self.task.cancel()

    async def run(self) -> Transition | None:
        """Run to an end; `None` means that nothing may be written."""
        spec = self._spec
        if self._interruption is not None:
            return self._stopped()
        if self.claim.cancel_requested:
            return cancel(self.claim)
        if spec is None:
            return release(self.claim, f"no job named {self.claim.name!r} here", delay=UNKNOWN_JOB_PAUSE)
        if self.claim.attempt > spec.crash_budget and self.claim.losses:
            return Finish(self.claim.id, self.claim.token, Status.FAILED, failure=worker_lost())

        self._begun = True
        CURRENT.set(self)
        try:
            args, kwargs = spec.shape.load_args(self.claim.args)
            if spec.is_async and spec.timeout is None:
                value = await spec.function(*args, **kwargs)
            else:
                value = await call(spec, args, kwargs, executor=self._tools.executor)
            return self._postponed() or complete(self.claim, spec.shape.dump_result(value))
        except BaseException as error:  # noqa: BLE001 - the edge of an attempt: SystemExit too is only its failure
            return self._ended_by(error, spec)
        finally:
            self._over = True
            if self._stages is not None:
                await self._stages.close()

    async def run_stage(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a stage of this job, or answer from what is stored of it."""
        if self._over:
            raise LeaseLost  # a thread that was left behind: its job may be running elsewhere by now
        if self._stages is None:
            self._stages = Stages(self, self._stored or {}, self._tools)
        if self._spec is not None:
            self._spec.saw_stage(stage)
        return await self._stages.run(stage, key, args, kwargs)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the attempt runs."""
        return self._tools.loop

    def count(self, place: str) -> int:
        """Count what the job does at *place*, from 1."""
        if self._counts is None:
            self._counts = Counter()
        self._counts[place] += 1
        return self._counts[place]

    def interrupted(self) -> bool:
        """Whether the engine is stopping this attempt, so that a cancellation is not its own fault."""
        return self._interruption is not None or self._tools.closing()

    def _ended_by(self, error: BaseException, spec: JobSpec) -> Transition | None:
        """Decide what follows from an error that came out of the function."""
        if self._interruption is not None or (self._tools.closing() and _cancelled(error)):
            if not spec.is_async:
                self._tools.journal.warning("thread left behind", job_id=self.claim.id)
            return self._stopped()
        inner = _find(error, (LeaseLost, StageFailed))
        match inner:
            case LeaseLost():
                return None
            case StageFailed():
                return Finish(
                    self.claim.id, self.claim.token, Status.FAILED, failure=inner.failure, stage=inner.stage
                )
        postponed = self._postponed()
        if postponed is not None:
            return postponed
        failure = self.failure_of(error)
        return fail(
            self.claim, failure, spec.policy, roll=self._tools.dice.roll(), attempt=self.claim.attempt
        )

    def _postponed(self) -> Transition | None:
        return None if self._stages is None else self._stages.postponed

    def _stopped(self) -> Transition | None:
        match self._interruption:
            case Interruption.CANCEL:
                return cancel(self.claim)
            case Interruption.LOST:
                return None
            case _:
                in_thread = self._spec is not None and not self._spec.is_async
                # The thread goes on until the process ends; nobody shall run the job beside it.
                return release(self.claim, "worker shut down", delay=STRAGGLING if in_thread else None)

    def failure_of(self, error: BaseException) -> Failure:
        """Turn an error into a value, and report a thread that could not be stopped."""
        match error:
            case TookTooLongError():
                if error.in_thread:
                    self._tools.journal.warning("thread left behind", job_id=self.claim.id)
                return timed_out(error.after)
            case StageMismatch():
                return stage_mismatch(str(error))
            case _:
                return self._tools.classifier.classify(error)


def _cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)


def _find(error: BaseException, kinds: tuple[type[BaseException], ...]) -> BaseException | None:
    """Look for one of the engine's own signals, also inside a task group's bundle."""
    if isinstance(error, kinds):
        return error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            found = _find(member, kinds)
            if found is not None:
                return found
    return None
