"""One attempt at one job: it calls the function, and turns the outcome into a transition."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.envelope import is_encoded
from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures.classifier import Judged
from holdfast.core.failures.escalation import DEFAULT_TABLE, Table, level_of
from holdfast.core.failures.failure import (
    Failure,
    fingerprint_of,
    not_awaited,
    stage_mismatch,
    timed_out,
    worker_lost,
)
from holdfast.core.jobs.crashes import lost_too_often, out_of_runs
from holdfast.core.jobs.job import Claim, Receipt, Signal, Submission
from holdfast.core.jobs.stages import RESTARTED, StageKey, StageRow
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.traces import ids
from holdfast.core.jobs.transitions import (
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
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.strict_json import fingerprint
from holdfast.engine.execution.context import CURRENT, STAGE
from holdfast.engine.execution.failure_texts import FailureTexts
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.execution.invoke import TookTooLongError, call
from holdfast.engine.execution.provider_calls import ProviderCall
from holdfast.engine.execution.stages import Stages
from holdfast.engine.execution.suspension import Suspension
from holdfast.engine.providers.admission import Admission
from holdfast.engine.registry import JobSpec, StageSpec
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.worker.settler import Settler
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.ports import Dice, Executor, Logger, Span, Store, Tracer

if TYPE_CHECKING:
    from types import CoroutineType

STRAGGLING = timedelta(seconds=5)

NO_JOBS: frozenset[str] = frozenset()


class Interruption(StrEnum):
    """Why the engine stops an attempt from outside."""

    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    REPLACED = "replaced"
    """The same worker has claimed the job again: every write of the older attempt would be fenced."""
    DEADLINE = "deadline"


def _stop_at_deadline(attempt: "Attempt") -> None:
    attempt.interrupt(Interruption.DEADLINE)


@dataclass(frozen=True, slots=True)
class AttemptRuntime:
    """The dependencies that all attempts of a worker share."""

    settler: Settler
    unrunnable: Unrunnable
    failures: FailureTexts
    dice: Dice
    executor: Executor
    logger: Logger
    store: Store
    store_retry: StoreRetry
    loop: asyncio.AbstractEventLoop
    closing: Callable[[], bool]
    admission: Admission | None = None
    tracer: Tracer | None = None
    fingerprint: Callable[[str], str] = fingerprint
    code_version: str = ""
    allowed: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Filters the fields that a job notes: those that its dead letter may show."""
    at_deadline: "Callable[[Attempt], None]" = _stop_at_deadline
    """Called when the deadline of a job has passed, by this process's clock, if the job is to be stopped then."""
    bind_job: Callable[[Claim], None] | None = None
    """Binds the job to the log context of its function."""


class Attempt:
    """Calls the function of a claimed job. `run` never raises: a failure is data in its transition."""

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
        "_runtime",
        "_signals",
        "_spec",
        "_stages",
        "_stored",
        "_suspension",
        "claim",
        "task",
        "trace",
    )

    def __init__(
        self,
        claim: Claim,
        spec: JobSpec | None,
        stored: dict[StageKey, StageRow] | None,
        runtime: AttemptRuntime,
        signals: Sequence[Signal] = (),
    ) -> None:
        self.claim = claim
        self._spec = spec
        self._runtime = runtime
        self._stored = stored
        self._signals = signals
        self._stages: Stages | None = None
        self._suspension: Suspension | None = None
        self._interruption: Interruption | None = None
        self._begun = False
        self._over = False
        self._awaitable: dict[object, CoroutineType[Any, Any, Any]] | None = None
        """The stages that were called and have not started: those left at the function's end were never awaited."""
        self._counts: Counter[Hashable] | None = None
        self._notes: Mapping[str, Any] | None = None
        self._children = NO_JOBS
        # On this process's monotonic clock, from the moment of the claim. The store decides on deadlines.
        self._began = runtime.loop.time()
        self._due = None if claim.time_left is None else self._began + claim.time_left
        self._alarm: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.trace = claim.trace
        """The trace context of this attempt: a span of its own, or that of its submitter."""

    def load(self, stages: dict[StageKey, StageRow], signals: Sequence[Signal]) -> None:
        """Set the stored state of the job. Called before `run`."""
        self._stored, self._signals = stages, signals

    def interrupt(self, why: Interruption) -> None:
        """Stop the attempt. The transition that `run` returns then depends on *why*."""
        if self._interruption is not None:
            return
        self._interruption = why
        # A task that is cancelled before its first step, or after its last, returns no transition.
        if self._begun and not self._over and self.task is not None:
            self.task.cancel()

    async def run(self) -> Transition | None:
        """Run to an end and return the transition; `None` means that nothing may be written."""
        if self._interruption is not None:
            return self._end_interrupted()
        if self.claim.cancel_requested:
            return cancel(self.claim)
        if self._spec is None:
            return self._runtime.unrunnable.unknown(self.claim)
        if is_encoded(self.claim.args) or ((self._stored or self._signals) and self._has_undecodable_state()):
            return self._runtime.unrunnable.undecodable(self.claim)
        claim = self.claim
        if claim.losses or claim.excused or claim.failed_runs or self._due is not None:
            ended = self._end_without_running(self._spec)
            if ended is not None:
                return ended
        span = None if self._runtime.tracer is None else self._runtime.tracer.attempt(self.claim)
        return await (self._call(self._spec) if span is None else self._in_span(span, self._spec))

    @property
    def exhaustion(self) -> Table:
        """What follows, per error class, when the job has no attempt left."""
        return DEFAULT_TABLE if self._spec is None else self._spec.exhaustion

    def _given_up(self, failure: Failure, stage: str | None = None) -> Finish:
        """End the job as failed, with the context that its dead letter shows."""
        context = {
            **self._runtime.allowed(self._notes or {}),
            **failure.context,
            "level": level_of(failure.error_class, self.exhaustion).value,
            "code_version": self._runtime.code_version,
        }
        failure = self.in_group(replace(failure, context=context))
        return Finish(self.claim.id, self.claim.token, Status.FAILED, failure=failure, stage=stage)

    def in_group(self, failure: Failure, stage: str = "") -> Failure:
        """Return *failure* with the fingerprint that groups its dead letter: by this job, and its stage.

        A failure that came from a stage or from another job keeps its fingerprint: one cause is one group.
        """
        kind, place = failure.error_class, str(failure.context.get("place", ""))
        if failure.fingerprint != fingerprint_of(kind, place):
            return failure
        return replace(failure, fingerprint=fingerprint_of(kind, place, job=self.claim.name, stage=stage))

    def _has_undecodable_state(self) -> bool:
        """Whether a stage's result or a signal cannot be decoded here."""
        results = [row.result for row in (self._stored or {}).values()]
        return any(map(is_encoded, [*results, *(signal.data for signal in self._signals)]))

    def _end_without_running(self, spec: JobSpec) -> Transition | None:
        """Return the transition of a job whose function is not to be called; `None` if it is to be called."""
        if self.claim.suspect and lost_too_often(self.claim, spec.crash_budget):
            return self._given_up(worker_lost())
        if self.claim.failed_runs and self.claim.failed_runs >= spec.run_limit:
            return self._given_up(out_of_runs(worker_lost(), spec.run_limit))
        return time_out(self.claim) if self.overdue() else None

    async def _in_span(self, span: Span, spec: JobSpec) -> Transition | None:
        """Call the function inside *span*, and end the span with the outcome."""
        self.trace, change = span.trace, None
        try:
            change = await self._call(spec)
        finally:
            span.end(*_span_end(change))
        return change

    async def _call(self, spec: JobSpec) -> Transition | None:
        self._begun = True
        if self._due is not None and spec.on_deadline == "cancel":
            self._alarm = self._runtime.loop.call_at(self._due, self._runtime.at_deadline, self)
        CURRENT.set(self)
        if self._runtime.bind_job is not None:
            self._runtime.bind_job(self.claim)  # never undone: an attempt has a task and a context of its own
        try:
            args, kwargs = spec.signature.load_args(self.claim.args)
            if spec.is_async and spec.timeout is None:
                value = await spec.function(*args, **kwargs)
            else:
                value = await call(spec, args, kwargs, executor=self._runtime.executor)
            if self._stages is None and not self._awaitable:
                return complete(
                    self.claim, spec.signature.dump_result(value)
                )  # nearly every job without stages
            return (
                self._within_limit(self._postponed(), spec)
                or self._not_awaited_stages()
                or complete(self.claim, spec.signature.dump_result(value))
            )
        except BaseException as error:  # noqa: BLE001 - the edge of an attempt: SystemExit too is only its failure
            return self._within_limit(await self._end_after(error, spec), spec)
        finally:
            self._over = True
            self._awaitable = None
            if self._alarm is not None:
                self._alarm.cancel()
            if self._suspension is not None:
                await self._suspension.close()
            if self._stages is not None:
                await self._stages.close()

    def _not_awaited_stages(self) -> Finish | None:
        """End the job as failed if its function called a stage and did not await it: the stage did not run."""
        if not self._awaitable:
            return None
        # A stage that was cancelled before it started is closed, and does not count.
        left = [stage for stage in self._awaitable.values() if getcoroutinestate(stage) == CORO_CREATED]
        for stage in left:
            stage.close()  # the failure reports it; Python's own warning would come later, and name no job
        return self._given_up(not_awaited([stage.__qualname__ for stage in left])) if left else None

    def run_stage(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Run a stage of this job, or return its stored result. A job that does not await it fails."""
        token = object()
        running = cast("CoroutineType[Any, Any, Any]", self._run_stage(token, stage, key, args, kwargs))
        # Python warns of this name, too, if the function fails before it awaits the stage.
        running.__qualname__ = stage.name
        if self._awaitable is None:
            self._awaitable = {}
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
        if self._awaitable is not None:
            self._awaitable.pop(token, None)
        if self._spec is not None:
            self._spec.saw_stage(stage)
        return await self._require_stages().run(stage, key, args, kwargs)

    def _require_stages(self) -> Stages:
        if self._over:
            raise LeaseLost  # an abandoned thread: its job may be running elsewhere by now
        self.ensure_going_on()
        if self._stages is None:
            self._stages = Stages(self, self._stored or {}, self._runtime)
        return self._stages

    @property
    def suspension(self) -> Suspension:
        """Suspends the job's function: durable sleep, signals, and waits for other jobs."""
        stages = self._require_stages()
        if self._suspension is None:
            self._suspension = Suspension(self, stages, self._runtime, self._signals)
        return self._suspension

    def calling(self, provider: ProviderSpec, key: str) -> AbstractAsyncContextManager[ProviderCall]:
        """Call *provider* in the block, with a permit; where jobs run inline, calls need none."""
        calls = self._require_stages().calls
        return nullcontext(ProviderCall(provider.name)) if calls is None else calls.block(provider, key)

    @property
    def number(self) -> int:
        """The number of the attempt that the running code belongs to: at its stage, or at the whole job."""
        stage = STAGE.get()
        return self.claim.attempt if stage is None else stage.number

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended or is interrupted: what the job's code does takes no effect any more."""
        return self._over or self._interruption is not None

    def ensure_going_on(self) -> None:
        """Raise `Interrupted` again, if the function swallowed the one that parks, holds or retries the job.

        The function continues without a result, and nothing that it does then may take effect. A stage that started
        before goes on.
        """
        if self._postponed() is not None and STAGE.get() is None:
            raise Interrupted("the job is requeued; what its function does now is dropped")

    @property
    def origin(self) -> int:
        """The generation that started without stored stages: the first, or the last replay that kept none."""
        restarts = [key.call for key in self._stored or () if key.name == RESTARTED]
        return max((int(call.removeprefix("#")) for call in restarts), default=1)

    def submitted(self, batch: Sequence[Submission], receipts: Sequence[Receipt]) -> None:
        """Remember which of the submitted jobs an earlier generation had submitted already."""
        if self.claim.generation > self.origin:
            own = f"{self.claim.id}:"
            given = zip(batch, receipts, strict=True)
            earlier = [
                receipt.id for sent, receipt in given if receipt.existing and (sent.key or "").startswith(own)
            ]
            self._children = self._children.union(earlier)

    def has_child(self, job_id: str) -> bool:
        """Whether an earlier generation has submitted that job, and this generation has reused it."""
        return job_id in self._children

    def submitting(self) -> AbstractContextManager[None]:
        """Count a submission as in flight in the block: the job is not parked in the middle of it."""
        return nullcontext() if self._over else self._require_stages().in_flight.track()

    def is_kept_by(self, store: Store) -> bool:
        """Whether this job is in *store*."""
        return self._runtime.store is store

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the attempt runs."""
        return self._runtime.loop

    def count(self, place: Hashable) -> int:
        """Count what the job does at *place*, from 1."""
        if self._counts is None:
            self._counts = Counter()
        self._counts[place] += 1
        return self._counts[place]

    def interrupted(self) -> bool:
        """Whether the engine is stopping this attempt: a cancellation then does not come from the job's code."""
        return self._interruption is not None or self._runtime.closing()

    def elapsed(self) -> float:
        """Return the seconds since the job was claimed."""
        return self._runtime.loop.time() - self._began

    def time_left(self) -> timedelta | None:
        """Return the time until the job's deadline; negative after it, `None` without one."""
        return None if self._due is None else timedelta(seconds=self._due - self._runtime.loop.time())

    def overdue(self) -> bool:
        """Whether the job's deadline has passed, by this process's clock."""
        return self._due is not None and self._runtime.loop.time() >= self._due

    @property
    def may_be_late(self) -> bool:
        """Whether the attempt runs on after the deadline has ended its lease, for a late result."""
        return self._spec is not None and self._spec.on_deadline == "finish"

    def deadline_due(self) -> bool:
        """Whether the deadline has passed by this process's clock, and the store has yet to confirm it."""
        return self._interruption is None and self.overdue() and not self.may_be_late

    def deadline_passed(self) -> None:
        """Stop the attempt, unless it may be late: the store has confirmed that the deadline has passed."""
        if not self.may_be_late:
            self.interrupt(Interruption.DEADLINE)

    async def _end_after(self, error: BaseException, spec: JobSpec) -> Transition | None:
        """Return the transition that follows from an error that the function raised."""
        if self._interruption is not None or (self._runtime.closing() and _cancelled(error)):
            if not spec.is_async:
                self._warn_of_thread()
            return self._end_interrupted()
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
        return self._end_interrupted() if failure is None else self._failed(failure, spec)

    def _failed(self, failure: Failure, spec: JobSpec) -> Transition:
        if exhausted(failure, spec.policy, attempt=self.claim.attempt):
            return self._given_up(failure)
        roll = self._runtime.dice.roll()
        return fail(self.claim, failure, spec.policy, roll=roll, attempt=self.claim.attempt)

    def _within_limit(self, change: Transition | None, spec: JobSpec) -> Transition | None:
        """End a job that is to be retried, if it has failed or lost its worker in too many runs."""
        if not isinstance(change, Requeue) or change.failure is None:
            return change
        if self.claim.failed_runs + 1 < spec.run_limit:
            return change
        return self._given_up(out_of_runs(change.failure, spec.run_limit), change.stage)

    def note(self, fields: Mapping[str, Any]) -> None:
        """Remember fields for the dead letter, if the job leaves one."""
        self._notes = {**(self._notes or {}), **fields}

    def _postponed(self) -> Transition | None:
        return None if self._stages is None else self._stages.postponed

    def _end_interrupted(self) -> Transition | None:
        match self._interruption:
            case Interruption.CANCEL:
                return cancel(self.claim)
            case Interruption.LOST | Interruption.REPLACED:
                return None
            case Interruption.DEADLINE:
                return time_out(self.claim)
            case _:
                in_thread = self._spec is not None and not self._spec.is_async
                # The thread runs until the process ends; no other worker may run the job beside it.
                return release(self.claim, "worker shut down", delay=STRAGGLING if in_thread else None)

    def _warn_of_thread(self) -> None:
        self._runtime.logger.warning(
            "thread abandoned",
            job_id=self.claim.id,
            name=self.claim.name,
            queue=self.claim.queue,
            **ids(self.trace),
        )

    def judge(self, error: BaseException) -> Judged:
        """Classify an error, and log a thread that could not be stopped."""
        match error:
            case TookTooLongError():
                if error.in_thread:
                    self._warn_of_thread()
                return Judged(timed_out(error.after), error, error)
            case StageMismatch():
                return Judged(stage_mismatch(str(error)), error, error)
            case _:
                return self._runtime.failures.judge(error)

    async def _failure_of(self, error: BaseException) -> Failure | None:
        """Turn an error into a failure; `None` means that the attempt was interrupted meanwhile."""
        judged = self.judge(error)
        if isinstance(error, GeneratorExit):
            return judged.without_text  # a coroutine that is being closed must not wait for anything
        try:
            return await self.describe_failure(judged)
        except asyncio.CancelledError:  # by the engine, or by a task that the function left running
            return None if self.interrupted() else judged.without_text

    async def describe_failure(self, judged: Judged) -> Failure:
        """Turn a classified error into a failure with its redacted message and stack."""
        return judged.failure if judged.failure.message else await self._runtime.failures.write(judged)


def _span_end(change: Transition | None) -> tuple[str, Failure | None]:
    """Return the outcome of an attempt in a word, and its failure, for its span."""
    match change:
        case Finish() | Requeue():
            return end_of(change).value, change.failure
        case _:
            return "lost", None


def _cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)


def _find(error: BaseException, kinds: tuple[type[BaseException], ...]) -> BaseException | None:
    """Find an exception of *kinds*, also inside an exception group."""
    if isinstance(error, kinds):
        return error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            found = _find(member, kinds)
            if found is not None:
                return found
    return None
