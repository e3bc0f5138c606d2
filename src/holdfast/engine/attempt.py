"""One attempt at one job: it runs the function, and whatever happens becomes a transition."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.classify import Judged
from holdfast.core.crashes import lost_too_often, out_of_runs
from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.exhaustion import USUAL, Table, level_of
from holdfast.core.failures import (
    Failure,
    fingerprint_of,
    not_awaited,
    stage_mismatch,
    timed_out,
    worker_lost,
)
from holdfast.core.jobs import Claim, Receipt, Signal, Submission
from holdfast.core.payload import fingerprint
from holdfast.core.providers import ProviderSpec
from holdfast.core.sealing import is_sealed
from holdfast.core.stages import RESTARTED, StageKey, StageRow
from holdfast.core.states import Status
from holdfast.core.traces import ids
from holdfast.core.transitions import (
    Finish,
    Requeue,
    Transition,
    cancel,
    complete,
    end_of,
    exhausted,
    fail,
    release,
    time_out,
)
from holdfast.engine.calling import TookTooLongError, call
from holdfast.engine.calls import Call
from holdfast.engine.context import CURRENT, STAGE
from holdfast.engine.failure_texts import FailureTexts
from holdfast.engine.patience import Patience
from holdfast.engine.permits import Permits
from holdfast.engine.registry import JobSpec, StageSpec
from holdfast.engine.settling import Settler
from holdfast.engine.stages import Stages
from holdfast.engine.strangers import Strangers
from holdfast.engine.unwinding import Interrupted, LeaseLost
from holdfast.engine.waits import Waits
from holdfast.ports import Dice, Executor, Journal, Span, Store, Tracer

if TYPE_CHECKING:
    from types import CoroutineType

STRAGGLING = timedelta(seconds=5)


class Interruption(StrEnum):
    """Why the engine stops an attempt from outside."""

    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    REPLACED = "replaced"
    """The job came back to the same worker: nothing that the older attempt could still write would be kept."""
    DEADLINE = "deadline"


def _stop_at_deadline(attempt: "Attempt") -> None:
    attempt.interrupt(Interruption.DEADLINE)


@dataclass(frozen=True, slots=True)
class Tools:
    """What every attempt of a worker uses."""

    settler: Settler
    strangers: Strangers
    failures: FailureTexts
    dice: Dice
    executor: Executor
    journal: Journal
    store: Store
    patience: Patience
    loop: asyncio.AbstractEventLoop
    closing: Callable[[], bool]
    permits: Permits | None = None
    tracer: Tracer | None = None
    fingerprint: Callable[[str], str] = fingerprint
    code_version: str = ""
    allowed: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Keeps of the fields that a job notes those that a dead letter may tell."""
    at_deadline: "Callable[[Attempt], None]" = _stop_at_deadline
    """Called when the deadline of a job that is to be stopped has passed, by this process's clock."""
    bind_job: Callable[[Claim], None] | None = None
    """Adds the job to what its function logs."""


class Attempt:
    """Runs the function of a claimed job. It never raises: what went wrong is data."""

    __slots__ = (
        "_alarm",
        "_awaitable",
        "_began",
        "_begun",
        "_children",
        "_counts",
        "_due",
        "_interruption",
        "_notes",
        "_over",
        "_signals",
        "_spec",
        "_stages",
        "_stored",
        "_tools",
        "_waits",
        "claim",
        "task",
        "trace",
    )

    def __init__(
        self,
        claim: Claim,
        spec: JobSpec | None,
        stored: dict[StageKey, StageRow] | None,
        tools: Tools,
        signals: Sequence[Signal] = (),
    ) -> None:
        self.claim = claim
        self._spec = spec
        self._tools = tools
        self._stored = stored
        self._signals = signals
        self._stages: Stages | None = None
        self._waits: Waits | None = None
        self._interruption: Interruption | None = None
        self._begun = False
        self._over = False
        self._awaitable: dict[object, CoroutineType[Any, Any, Any]] = {}
        """The stages that were called and have not begun: those left at the function's end were never awaited."""
        self._counts: Counter[Hashable] | None = None
        self._notes: Mapping[str, Any] | None = None
        self._children: frozenset[str] = frozenset()
        # By this process's own steady clock, from the moment of the claim: the store has the last word.
        self._began = tools.loop.time()
        self._due = None if claim.time_left is None else self._began + claim.time_left
        self._alarm: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.trace = claim.trace
        """Where what this attempt does stands in a trace: in a span of its own, or in its submitter's."""

    def load(self, stages: dict[StageKey, StageRow], signals: Sequence[Signal]) -> None:
        """Give the attempt what the store holds of its job, before it runs."""
        self._stored, self._signals = stages, signals

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
        if self._interruption is not None:
            return self._stopped()
        if self.claim.cancel_requested:
            return cancel(self.claim)
        if self._spec is None:
            return self._tools.strangers.unknown(self.claim)
        if self._is_sealed():
            return self._tools.strangers.sealed(self.claim)
        ended = self._ended_before(self._spec)
        if ended is not None:
            return ended
        span = None if self._tools.tracer is None else self._tools.tracer.attempt(self.claim)
        return await (self._call(self._spec) if span is None else self._in_span(span, self._spec))

    @property
    def exhaustion(self) -> Table:
        """What follows when the job has no attempt left."""
        return USUAL if self._spec is None else self._spec.exhaustion

    def _given_up(self, failure: Failure, stage: str | None = None) -> Finish:
        """End the job as failed, with what its dead letter tells beside the failure."""
        context = {
            **self._tools.allowed(self._notes or {}),
            **failure.context,
            "level": level_of(failure.error_class, self.exhaustion).value,
            "code_version": self._tools.code_version,
        }
        failure = self.in_group(replace(failure, context=context))
        return Finish(self.claim.id, self.claim.token, Status.FAILED, failure=failure, stage=stage)

    def in_group(self, failure: Failure, stage: str = "") -> Failure:
        """Give *failure* the fingerprint under which its dead letter is found: that of this job, and of its stage.

        One that came from a stage or from another job has its fingerprint from there: what failed for one cause is one
        group.
        """
        kind, place = failure.error_class, str(failure.context.get("place", ""))
        if failure.fingerprint != fingerprint_of(kind, place):
            return failure
        return replace(failure, fingerprint=fingerprint_of(kind, place, job=self.claim.name, stage=stage))

    def _is_sealed(self) -> bool:
        """Whether something that the function needs is encoded, and cannot be decoded here."""
        if is_sealed(self.claim.args):
            return True
        if not self._stored and not self._signals:
            return False  # nearly every job
        results = [row.result for row in (self._stored or {}).values()]
        return any(map(is_sealed, [*results, *(signal.data for signal in self._signals)]))

    def _ended_before(self, spec: JobSpec) -> Transition | None:
        """Decide on a job whose function is not to be called at all."""
        if self.claim.suspect and lost_too_often(self.claim, spec.crash_budget):
            return self._given_up(worker_lost())
        if self.claim.failed_runs and self.claim.failed_runs >= spec.run_limit:
            return self._given_up(out_of_runs(worker_lost(), spec.run_limit))
        return time_out(self.claim) if self.overdue() else None

    async def _in_span(self, span: Span, spec: JobSpec) -> Transition | None:
        """Call the function inside *span*, and say there what came of it."""
        self.trace, change = span.trace, None
        try:
            change = await self._call(spec)
        finally:
            span.end(*_told(change))
        return change

    async def _call(self, spec: JobSpec) -> Transition | None:
        self._begun = True
        if self._due is not None and spec.on_deadline == "cancel":
            self._alarm = self._tools.loop.call_at(self._due, self._tools.at_deadline, self)
        CURRENT.set(self)
        if self._tools.bind_job is not None:
            self._tools.bind_job(self.claim)  # never undone: an attempt has a task, and a context, of its own
        try:
            args, kwargs = spec.shape.load_args(self.claim.args)
            if spec.is_async and spec.timeout is None:
                value = await spec.function(*args, **kwargs)
            else:
                value = await call(spec, args, kwargs, executor=self._tools.executor)
            return (
                self._within_limit(self._postponed(), spec)
                or self._forgotten()
                or complete(self.claim, spec.shape.dump_result(value))
            )
        except BaseException as error:  # noqa: BLE001 - the edge of an attempt: SystemExit too is only its failure
            return self._within_limit(await self._ended_by(error, spec), spec)
        finally:
            self._over = True
            self._awaitable.clear()
            if self._alarm is not None:
                self._alarm.cancel()
            if self._waits is not None:
                await self._waits.close()
            if self._stages is not None:
                await self._stages.close()

    def _forgotten(self) -> Finish | None:
        """End the job as failed if its function called a stage and did not await it: its work was not done."""
        if not self._awaitable:
            return None
        # One that was cancelled before it began is closed, and not forgotten.
        left = [stage for stage in self._awaitable.values() if getcoroutinestate(stage) == CORO_CREATED]
        for stage in left:
            stage.close()  # the failure says it; a warning of Python's would come later, and name no job
        return self._given_up(not_awaited([stage.__qualname__ for stage in left])) if left else None

    def run_stage(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Run a stage of this job, or answer from what is stored of it. A job that does not await it fails."""
        token = object()
        running = cast("CoroutineType[Any, Any, Any]", self._run_stage(token, stage, key, args, kwargs))
        # Python warns of this name, too, if the function fails before it awaits the stage.
        running.__qualname__ = stage.name
        self._awaitable[token] = running
        return running

    async def _run_stage(
        self,
        token: object,
        stage: StageSpec,
        key: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self._awaitable.pop(token, None)
        if self._spec is not None:
            self._spec.saw_stage(stage)
        return await self._its_stages().run(stage, key, args, kwargs)

    def _its_stages(self) -> Stages:
        if self._over:
            raise LeaseLost  # a thread that was left behind: its job may be running elsewhere by now
        self.ensure_going_on()
        if self._stages is None:
            self._stages = Stages(self, self._stored or {}, self._tools)
        return self._stages

    @property
    def waits(self) -> Waits:
        """What the job's function waits for."""
        stages = self._its_stages()
        if self._waits is None:
            self._waits = Waits(self, stages, self._tools, self._signals)
        return self._waits

    def calling(self, provider: ProviderSpec, key: str) -> AbstractAsyncContextManager[Call]:
        """Make a call to *provider* in a block, with its leave; inline, where there is nobody to ask, it is just made."""
        calls = self._its_stages().calls
        return nullcontext(Call(provider.name)) if calls is None else calls.block(provider, key)

    @property
    def number(self) -> int:
        """Which attempt the running code belongs to: one at its stage, or at the whole job."""
        stage = STAGE.get()
        return self.claim.attempt if stage is None else stage.number

    @property
    def is_over(self) -> bool:
        """Whether nothing that the job's code does can take effect any more."""
        return self._over or self._interruption is not None

    def ensure_going_on(self) -> None:
        """Unwind the function once more, if it swallowed that the job waits or is to be tried again.

        It goes on with something that is no result, and nothing that follows from that may take effect. A stage
        that runs meanwhile had begun before, and goes on.
        """
        if self._postponed() is not None and STAGE.get() is None:
            raise Interrupted("the job is put back; what its function does now is dropped")

    @property
    def origin(self) -> int:
        """The generation that began with nothing: the first one, or that of the last replay which kept no stage."""
        restarts = [key.call for key in self._stored or () if key.name == RESTARTED]
        return max((int(call.removeprefix("#")) for call in restarts), default=1)

    def submitted(self, batch: Sequence[Submission], receipts: Sequence[Receipt]) -> None:
        """Remember who was submitted before this generation, by an earlier one."""
        if self.claim.generation > self.origin:
            own = f"{self.claim.id}:"
            given = zip(batch, receipts, strict=True)
            earlier = [told.id for sent, told in given if told.existing and (sent.key or "").startswith(own)]
            self._children = self._children.union(earlier)

    def has_child(self, job_id: str) -> bool:
        """Whether an earlier generation has submitted that job, and this one goes on with it."""
        return job_id in self._children

    def submitting(self) -> AbstractContextManager[None]:
        """Count a submission as under way: the job is not parked in the middle of it."""
        return nullcontext() if self._over else self._its_stages().bustle.under_way()

    def is_kept_by(self, store: Store) -> bool:
        """Whether *store* is where this job is."""
        return self._tools.store is store

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the attempt runs."""
        return self._tools.loop

    def count(self, place: Hashable) -> int:
        """Count what the job does at *place*, from 1."""
        if self._counts is None:
            self._counts = Counter()
        self._counts[place] += 1
        return self._counts[place]

    def interrupted(self) -> bool:
        """Whether the engine is stopping this attempt, so that a cancellation is not its own fault."""
        return self._interruption is not None or self._tools.closing()

    def elapsed(self) -> float:
        """Tell how many seconds ago the job was claimed."""
        return self._tools.loop.time() - self._began

    def time_left(self) -> timedelta | None:
        """Tell how long it is until the job's deadline; less than nothing afterwards."""
        return None if self._due is None else timedelta(seconds=self._due - self._tools.loop.time())

    def overdue(self) -> bool:
        """Whether the job's deadline has passed, by this process's clock."""
        return self._due is not None and self._tools.loop.time() >= self._due

    @property
    def may_be_late(self) -> bool:
        """Whether the attempt goes on when the deadline takes its lease, for a late result."""
        return self._spec is not None and self._spec.on_deadline == "finish"

    def awaits_its_end(self) -> bool:
        """Whether the attempt is to be stopped as soon as the store, too, says that the deadline has passed."""
        return self._interruption is None and self.overdue() and not self.may_be_late

    def hear_of_deadline(self) -> None:
        """Hear from the store that the deadline has passed."""
        if not self.may_be_late:
            self.interrupt(Interruption.DEADLINE)

    async def _ended_by(self, error: BaseException, spec: JobSpec) -> Transition | None:
        """Decide what follows from an error that came out of the function."""
        if self._interruption is not None or (self._tools.closing() and _cancelled(error)):
            if not spec.is_async:
                self._warn_of_thread()
            return self._stopped()
        inner = _find(error, (LeaseLost, StageFailed))
        match inner:
            case LeaseLost():
                return None
            case StageFailed():
                return self._given_up(inner.failure, inner.stage)
        postponed = self._postponed()
        if postponed is not None:
            return postponed
        failure = await self._failure_of(error)
        return self._stopped() if failure is None else self._failed(failure, spec)

    def _failed(self, failure: Failure, spec: JobSpec) -> Transition:
        if exhausted(failure, spec.policy, attempt=self.claim.attempt):
            return self._given_up(failure)
        roll = self._tools.dice.roll()
        return fail(self.claim, failure, spec.policy, roll=roll, attempt=self.claim.attempt)

    def _within_limit(self, change: Transition | None, spec: JobSpec) -> Transition | None:
        """End a job that is to be tried again, if it has failed or lost its worker in too many runs."""
        if not isinstance(change, Requeue) or change.failure is None:
            return change
        if self.claim.failed_runs + 1 < spec.run_limit:
            return change
        return self._given_up(out_of_runs(change.failure, spec.run_limit), change.stage)

    def note(self, fields: Mapping[str, Any]) -> None:
        """Remember what a dead letter should tell, if the job leaves one."""
        self._notes = {**(self._notes or {}), **fields}

    def _postponed(self) -> Transition | None:
        return None if self._stages is None else self._stages.postponed

    def _stopped(self) -> Transition | None:
        match self._interruption:
            case Interruption.CANCEL:
                return cancel(self.claim)
            case Interruption.LOST | Interruption.REPLACED:
                return None
            case Interruption.DEADLINE:
                return time_out(self.claim)
            case _:
                in_thread = self._spec is not None and not self._spec.is_async
                # The thread goes on until the process ends; nobody shall run the job beside it.
                return release(self.claim, "worker shut down", delay=STRAGGLING if in_thread else None)

    def _warn_of_thread(self) -> None:
        self._tools.journal.warning(
            "thread left behind",
            job_id=self.claim.id,
            name=self.claim.name,
            queue=self.claim.queue,
            **ids(self.trace),
        )

    def judge(self, error: BaseException) -> Judged:
        """Say what an error means, and report a thread that could not be stopped."""
        match error:
            case TookTooLongError():
                if error.in_thread:
                    self._warn_of_thread()
                return Judged(timed_out(error.after), error, error)
            case StageMismatch():
                return Judged(stage_mismatch(str(error)), error, error)
            case _:
                return self._tools.failures.judge(error)

    async def _failure_of(self, error: BaseException) -> Failure | None:
        """Turn an error into a value; `None` means that the attempt was stopped meanwhile."""
        judged = self.judge(error)
        if isinstance(error, GeneratorExit):
            return judged.unworded  # a coroutine that is being closed must not wait for anything
        try:
            return await self.worded(judged)
        except asyncio.CancelledError:  # by the engine, or by something that the function left behind
            return None if self.interrupted() else judged.unworded

    async def worded(self, judged: Judged) -> Failure:
        """Turn an error that was judged into a value that can be stored and shown."""
        return judged.failure if judged.failure.message else await self._tools.failures.write(judged)


def _told(change: Transition | None) -> tuple[str, Failure | None]:
    """Say in a word what came of an attempt, and what went wrong."""
    match change:
        case Finish() | Requeue():
            return end_of(change).value, change.failure
        case _:
            return "lost", None


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
