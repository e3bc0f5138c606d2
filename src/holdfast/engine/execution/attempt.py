"""One attempt at one job: it calls the function, and turns the outcome into a transition."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, assert_never

from holdfast.core.envelope import is_encoded
from holdfast.core.errors import JobNotFound, StageFailed
from holdfast.core.failures.escalation import level_of
from holdfast.core.failures.failure import Failure, not_awaited, over_time_limit, rolled_back
from holdfast.core.jobs.completion import LeaseOutcome, lease_outcome
from holdfast.core.jobs.job import Claim, Signal
from holdfast.core.jobs.stages import StageKey, StageRow
from holdfast.core.jobs.transitions import (
    Finish,
    Requeue,
    Transition,
    cancel,
    complete,
    end_before_run,
    end_failed,
    end_of,
    fail,
    limit_runs,
    release,
    time_out,
)
from holdfast.engine.execution.attempt_failures import AttemptFailures
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.context import CURRENT
from holdfast.engine.execution.execution_state import Ended, ExecutionState
from holdfast.engine.execution.interrupts import Interruption, LeaseLost
from holdfast.engine.execution.invoke import call
from holdfast.engine.execution.job_context import JobContext
from holdfast.engine.registry import JobSpec
from holdfast.ports import Span

THREAD_DELAY = timedelta(seconds=5)
"""Delay before a job is claimed again whose function runs on in a thread at shutdown."""


class Attempt:
    """Calls the function of a claimed job. `run` never raises: a failure is data in its transition."""

    __slots__ = ("_context", "_runtime", "_spec", "_state", "claim", "task")

    def __init__(self, claim: Claim, spec: JobSpec | None, runtime: AttemptRuntime) -> None:
        self.claim = claim
        """The job, as it was claimed."""
        self.task: asyncio.Task[None] | None = None
        """The task that runs the attempt."""
        self._spec = spec
        self._runtime = runtime
        self._state = ExecutionState(claim, runtime.loop)
        self._context: JobContext | None = None
        """Set when the function is called."""

    def load(self, stages: dict[StageKey, StageRow], signals: Sequence[Signal]) -> None:
        """Set the stored state of the job. Called before `run`."""
        self._state.load(stages, signals)

    def runs_in(self, task: "asyncio.Task[None]") -> None:
        """Set the task that runs the attempt: an interruption cancels it."""
        self.task = task

    def interrupt(self, why: Interruption) -> None:
        """Stop the attempt. The transition that `run` returns then depends on *why*.

        A function that has completed its job is left to return: its lease has ended with the job.
        """
        if self.completes and why not in (Interruption.SHUTDOWN, Interruption.REPLACED):
            return
        # A task that is cancelled before its first step, or after its last, returns no transition.
        if self._state.interrupt(why) and self._context is not None and not self._state.ended and self.task:
            self.task.cancel()

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended or is interrupted: what the job's code does takes no effect any more."""
        return self._state.is_over

    @property
    def completes(self) -> bool:
        """Whether its function has ended the job in a transaction of its own, which may not be committed yet."""
        return self._state.completion is not None

    @property
    def trace(self) -> str | None:
        """The trace context of this attempt: a span of its own, or that of its submitter."""
        return self._state.trace

    @property
    def may_be_late(self) -> bool:
        """Whether the attempt runs on after the deadline has ended its lease, for a late result."""
        return self._spec is not None and self._spec.on_deadline == "finish"

    def deadline_due(self) -> bool:
        """Whether the deadline has passed by this process's clock, and the store has yet to confirm it."""
        return (
            self._state.interruption is None
            and self._state.overdue()
            and not self.may_be_late
            and not self.completes
        )

    def deadline_passed(self) -> None:
        """Stop the attempt, unless it may be late: the store has confirmed that the deadline has passed."""
        if not self.may_be_late:
            self.interrupt(Interruption.DEADLINE)

    def run(self) -> Coroutine[Any, Any, Transition | Ended | None]:
        """Run to an end and return the transition; `None` means that nothing may be written, `Ended` that it was.

        The coroutine that calls the function is returned as it is: another one around it would cost each job its frame.
        """
        claim, spec, state = self.claim, self._spec, self._state
        if state.interruption is not None:
            return _ended(self._end_interrupted())
        if claim.cancel_requested:
            return _ended(cancel(claim))
        if spec is None:
            return _ended(self._runtime.unrunnable.unknown(claim))
        if is_encoded(claim.args) or ((state.rows or state.signals) and self._has_undecodable_state()):
            return _ended(self._runtime.unrunnable.undecodable(claim))
        if claim.losses or claim.excused or claim.failed_runs or state.due is not None:
            end = self._end_before_run(spec)
            if end is not None:
                return _ended(end)
        span = None if self._runtime.tracer is None else self._runtime.tracer.attempt(claim)
        return self._call(spec) if span is None else self._in_span(span, spec)

    def _end_before_run(self, spec: JobSpec) -> Finish | None:
        """Return the end of a job whose function is not to be called; `None` if it is to be called."""
        if self.claim.suspected or self.claim.failed_runs:
            end = end_before_run(self.claim, crash_budget=spec.crash_budget, run_limit=spec.run_limit)
            if end is not None:
                return self._for_dead_letter(end, spec)
        return time_out(self.claim) if self._state.overdue() else None

    def _has_undecodable_state(self) -> bool:
        """Whether a stage's result or a signal cannot be decoded here."""
        results = [row.result for row in self._state.rows.values()]
        return any(map(is_encoded, [*results, *(signal.data for signal in self._state.signals)]))

    async def _in_span(self, span: Span, spec: JobSpec) -> Transition | Ended | None:
        """Call the function inside *span*, and end the span with the outcome."""
        self._state.enter_span(span.trace)
        change = None
        try:
            change = await self._call(spec)
        finally:
            span.end(*_span_end(change))
        return change

    async def _call(self, spec: JobSpec) -> Transition | Ended | None:
        """Call the function and return the transition that follows."""
        context = self._context = JobContext(self._state, spec, self._runtime)
        CURRENT.set(context)
        alarm = None if self._state.due is None else self._set_alarm(self._state.due, spec)
        if self._runtime.bind_job is not None:
            self._runtime.bind_job(self.claim)  # never undone: an attempt has a task and a context of its own
        try:
            args, kwargs = spec.signature.load_args(self.claim.args)
            if spec.is_async and spec.timeout is None:
                value = await spec.function(*args, **kwargs)
            else:
                value = await call(spec, args, kwargs, executor=self._runtime.executor)
            if self._state.completion is not None:
                return await self._end_completed(self._state.completion, None, spec)
            if context.has_stages:
                change = self._state.postponed or self._end_unawaited(context)
                if change is not None:
                    return self._conclude(change, spec)
            return complete(self.claim, spec.signature.dump_result(value))
        except BaseException as error:  # noqa: BLE001 - the edge of an attempt: SystemExit too is only its failure
            if self._state.completion is not None:
                return await self._end_completed(self._state.completion, error, spec)
            return self._conclude(await self._end_after(error, spec), spec)
        finally:
            self._state.end()
            if alarm is not None:
                alarm.cancel()
            if context.has_stages:
                await context.close()

    def _set_alarm(self, due: float, spec: JobSpec) -> asyncio.TimerHandle | None:
        if spec.on_deadline != "cancel":
            return None
        at_deadline = self._runtime.at_deadline
        if at_deadline is not None:
            return self._runtime.loop.call_at(due, at_deadline)
        return self._runtime.loop.call_at(due, self.interrupt, Interruption.DEADLINE)

    async def _end_completed(
        self, completion: Ended, error: BaseException | None, spec: JobSpec
    ) -> Transition | Ended | None:
        """Return what follows after the function has completed its job: its transaction may have been rolled back.

        *error* is what the function has raised since, if it has.
        """
        if isinstance(error, GeneratorExit):
            return None  # a coroutine that is being closed must not wait for anything
        try:
            outcome = await self._lease_outcome()
        except asyncio.CancelledError:
            return self._end_interrupted()
        match outcome:
            case LeaseOutcome.LOST:
                return None
            case LeaseOutcome.ENDED:
                if error is not None:
                    await self._warn_of_error_after_end(error)
                return completion
            case LeaseOutcome.HELD:
                change = (
                    self._retry_or_fail(rolled_back(), spec)
                    if error is None
                    else await self._end_after(error, spec)
                )
                return self._conclude(change, spec)
            case _:
                assert_never(outcome)

    async def _warn_of_error_after_end(self, error: BaseException) -> None:
        failures = AttemptFailures(self._state, self._runtime)
        failure = None if failures.is_control_flow(error) else await _describe(error, failures)
        if failure is not None:
            claim = self.claim
            self._runtime.logger.warning(
                "error after completion",
                job_id=claim.id,
                name=claim.name,
                queue=claim.queue,
                error_class=failure.error_class.value,
                message=failure.message,
            )

    async def _lease_outcome(self) -> LeaseOutcome:
        store, claim = self._runtime.store, self.claim
        try:
            job = await self._runtime.store_retry.call(lambda _: store.get(claim.id))
        except JobNotFound:
            return LeaseOutcome.LOST
        return lease_outcome(job, claim.token)

    def _retry_or_fail(self, failure: Failure, spec: JobSpec) -> Finish | Requeue:
        roll, claim = self._runtime.random.random(), self._state.claim
        return fail(claim, failure, spec.policy, roll=roll, attempt=claim.attempt)

    def _end_unawaited(self, context: JobContext) -> Finish | None:
        """End the job as failed if its function called a stage and did not await it: the stage did not run."""
        unawaited = context.take_unawaited()
        return end_failed(self.claim, not_awaited(unawaited)) if unawaited else None

    async def _end_after(self, error: BaseException, spec: JobSpec) -> Finish | Requeue | None:
        """Return the transition that follows from an error that the function raised."""
        state, failures = self._state, AttemptFailures(self._state, self._runtime)
        cancelled = isinstance(error, asyncio.CancelledError)
        if state.interruption is not None or (cancelled and self._runtime.closing()):
            if not spec.is_async:
                failures.warn_of_thread()
            return self._end_interrupted()
        inner = _find(error, (LeaseLost, StageFailed))
        match inner:
            case LeaseLost():
                return None
            case StageFailed():
                return end_failed(state.claim, inner.failure, inner.stage)
        if state.postponed is not None:
            return state.postponed
        failure = await _describe(error, failures)
        if failure is None:
            return self._end_interrupted()
        return self._retry_or_fail(failure, spec)

    def _end_interrupted(self) -> Finish | Requeue | None:
        match self._state.interruption:
            case Interruption.CANCEL:
                return cancel(self.claim)
            case Interruption.LOST | Interruption.REPLACED:
                return None
            case Interruption.DEADLINE:
                return time_out(self.claim)
            case Interruption.TIME_LIMIT if self._spec is not None:
                return self._retry_or_fail(over_time_limit(), self._spec)
            case _:
                in_thread = self._spec is not None and not self._spec.is_async
                # The thread runs until the process ends; no other worker may run the job beside it.
                return release(self.claim, "worker shut down", delay=THREAD_DELAY if in_thread else None)

    def _conclude(self, change: Finish | Requeue | None, spec: JobSpec) -> Finish | Requeue | None:
        """Apply the limit of runs, and add what the dead letter of a failed job shows."""
        if change is None:
            return None
        change = limit_runs(self.claim, change, spec.run_limit)
        return self._for_dead_letter(change, spec) if isinstance(change, Finish) else change

    def _for_dead_letter(self, end: Finish, spec: JobSpec) -> Finish:
        """Add to a failed job what its dead letter shows: the context, and the group that it belongs to."""
        failure = end.failure
        if failure is None or end.if_overdue:
            return end
        context = {
            **self._runtime.allowed(self._state.notes),
            **failure.context,
            "level": level_of(failure.error_class, spec.exhaustion).value,
            "code_version": self._runtime.code_version,
        }
        grouped = AttemptFailures(self._state, self._runtime).in_group(replace(failure, context=context))
        return end._replace(failure=grouped)


async def _ended(change: Transition | None) -> Transition | None:
    return change


async def _describe(error: BaseException, failures: AttemptFailures) -> Failure | None:
    """Turn an error into a failure; `None` means that the attempt was interrupted meanwhile."""
    classified = failures.classify(error)
    if isinstance(error, GeneratorExit):
        return classified.without_text  # a coroutine that is being closed must not wait for anything
    try:
        return await failures.describe(classified)
    except asyncio.CancelledError:  # by the engine, or by a task that the function left running
        return None if failures.stopped_by_engine() else classified.without_text


def _span_end(change: Transition | Ended | None) -> tuple[str, Failure | None]:
    """Return the outcome of an attempt in a word, and its failure, for its span."""
    match change:
        case Finish() | Requeue():
            return end_of(change).value, change.failure
        case Ended():
            return end_of(change.end).value, None
        case _:
            return "lost", None


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
