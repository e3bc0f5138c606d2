"""The stages of one attempt: run once, stored, and returned from the store ever after.

A stage that runs alone needs no row when it starts: it uses the attempt count of the job. As soon as two run
concurrently, each gets a row with a count of its own before it starts, so that a crash or a failure of one costs the
other no attempt.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures.failure import Failure, worker_lost
from holdfast.core.jobs.stages import CallHash, StageKey, StageStatus, ensure_same
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, fail
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.engine.execution.attempt_failures import AttemptFailures
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.context import CALLING, STAGE, RunningStage
from holdfast.engine.execution.execution_state import ExecutionState
from holdfast.engine.execution.interrupts import Interrupted
from holdfast.engine.execution.invoke import call
from holdfast.engine.execution.provider_calls import ProviderCalls
from holdfast.engine.execution.stage_writer import StageWriter
from holdfast.engine.registry import StageSpec

if TYPE_CHECKING:
    from holdfast.engine.providers.admission import Permit
    from holdfast.ports import Span


class _StageRun(NamedTuple):
    """A running stage: its key, its arguments' hash, the number of the attempt, and the provider that it calls."""

    stage: StageSpec
    key: StageKey
    hashed: CallHash
    number: int
    provider: str | None = None


class Stages:
    """Runs the stages of a job during one attempt, and stores their results."""

    def __init__(
        self,
        state: ExecutionState,
        runtime: AttemptRuntime,
        writer: StageWriter,
        failures: AttemptFailures,
        calls: ProviderCalls | None,
    ) -> None:
        self._state = state
        self._runtime = runtime
        self._writer = writer
        self._failures = failures
        self._provider_calls = calls
        """Acquires permits for calls to providers; `None` where jobs run inline, and calls need no permit."""
        self._calls: Counter[str] = Counter()
        self._running: dict[StageKey, asyncio.Task[Any] | None] = {}

    async def run(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the stage's result, stored before or computed now."""
        self._calls[stage.name] += 1
        stage_key = StageKey(stage.name, key if key is not None else f"#{self._calls[stage.name]}")
        if stage_key in self._running:
            raise StageMismatch(f"stage {stage_key} is running already; concurrent calls need a key each")
        text = stage.signature.dump_args(args, kwargs)
        brief, full = stage.signature.without_defaults(text), self._runtime.fingerprint(text)
        hashed = CallHash(full, full if brief == text else self._runtime.fingerprint(brief))
        row = self._state.rows.get(stage_key)
        if row is not None:
            ensure_same(
                row, hashed, lambda: map(self._runtime.fingerprint, stage.signature.earlier_forms(text))
            )
            if row.status is StageStatus.DONE:
                return stage.signature.load_result(row.result or "null")
            if row.status is StageStatus.FAILED and row.failure is not None:
                raise StageFailed(str(stage_key), row.failure)
        return await self._run_now(stage, stage_key, hashed, text)

    async def _run_now(self, stage: StageSpec, stage_key: StageKey, hashed: CallHash, text: str) -> Any:
        self._running[stage_key] = asyncio.current_task()
        try:
            with self._state.in_flight.track():
                provider = None if stage.provider is None else stage.provider.name
                run = _StageRun(
                    stage, stage_key, hashed, await self._begin(stage, stage_key, hashed), provider
                )
                if run.number > stage.policy.attempts:
                    raise await self._give_up(run, worker_lost())
                span = (
                    None
                    if self._runtime.tracer is None
                    else self._runtime.tracer.stage(stage_key, run.number)
                )
                run, result = await (
                    self._compute(run, text) if span is None else self._in_span(span, run, text)
                )
                await self._record(run, StageStatus.DONE, result=result)
                return stage.signature.load_result(result)
        finally:
            self._running.pop(stage_key, None)
            self._writer.leave(stage_key)

    async def _begin(self, stage: StageSpec, stage_key: StageKey, hashed: CallHash) -> int:
        """Return the number of this attempt at the stage; write a row for it if the stage does not run alone."""
        await asyncio.sleep(0)  # stages that start together see each other here
        row, claim = self._state.rows.get(stage_key), self._state.claim
        start = StageWrite(
            claim.id,
            claim.token,
            stage_key,
            StageStatus.STARTED,
            1,
            hashed.full,
            brief_fingerprint=hashed.brief,
        )
        if len(self._running) == 1 and row is None:
            start = start._replace(attempt=self._lone_attempt(stage))
            self._writer.start_alone(start)
            return start.attempt
        await self._writer.store_lone()
        start = start._replace(attempt=1 if row is None else row.attempt + 1)
        await self._writer.start(start)
        return start.attempt

    def _lone_attempt(self, stage: StageSpec) -> int:
        """Return the attempt number of a stage that runs alone, which has no row: that of the job.

        If workers were lost, each may have been lost in the stage. If none was, the stage never exceeded its budget,
        and the job's own code has spent the attempts above it.
        """
        claim = self._state.claim
        return claim.attempt if claim.losses else min(claim.attempt, stage.policy.attempts)

    async def _in_span(self, span: "Span", run: _StageRun, text: str) -> tuple[_StageRun, str]:
        """Compute the stage's result inside *span*, and end the span with the outcome."""
        try:
            computed = await self._compute(run, text)
        except (StageFailed, Interrupted) as error:
            span.end("held" if error.failure is None else "failed", error.failure)
            raise
        except BaseException:
            span.end("stopped")
            raise
        span.end("done")
        return computed

    async def _compute(self, run: _StageRun, text: str) -> tuple[_StageRun, str]:
        """Call the stage's function, with a permit if it has a provider; return the run and the result.

        An error leads to a backup, to a later attempt, or to `StageFailed`.
        """
        provider, calls = run.stage.provider, self._provider_calls
        if provider is None or calls is None:
            return await self._call_with_backups(run, text, None)
        key = "" if provider.key is None else run.stage.signature.key_of(provider.key, text)
        call, permit = await calls.admit(provider, key, retry=run.number > 1)
        outer = CALLING.set((*CALLING.get(), call))
        try:
            return await self._call_with_backups(run, text, permit)
        finally:
            CALLING.reset(outer)
            calls.leave(call)

    async def _call_with_backups(
        self, run: _StageRun, text: str, permit: "Permit | None"
    ) -> tuple[_StageRun, str]:
        """Call the function with *permit*, and then with the permit of each backup that is to be called."""
        while True:
            run = run if permit is None else run._replace(provider=permit.provider.name)
            try:
                return run, await self._call_function(run, text, permit)
            except BaseException as error:
                if self._failures.is_control_flow(error):
                    raise
                # The edge of an attempt: SystemExit too is only its failure.
                classified = self._failures.classify(error)
                change = self._decide(run, classified.failure)
                # The failure is reported to the breaker first: it needs no message, and redacting one takes time.
                permit = await self._backup(permit, classified.failure, last=isinstance(change, Finish))
                if permit is None:
                    described = await self._failures.describe(classified)
                    raise await self._failed(run, change, described) from error

    def _decide(self, run: _StageRun, failure: Failure) -> Finish | Requeue:
        """Decide whether the stage is run again: `Finish` means that it is not, and its error raised in the job."""
        return fail(
            self._state.claim,
            failure,
            run.stage.policy,
            roll=self._runtime.random.random(),
            attempt=run.number,
            stage=str(run.key),
        )

    async def _call_function(self, run: _StageRun, text: str, permit: "Permit | None") -> str:
        """Call the function once; report success to the breaker, or drop the permit of a call that was stopped."""
        stage = run.stage
        outer = STAGE.set(RunningStage(run.key, run.number, run.provider))
        try:
            args, kwargs = stage.signature.load_args(text)
            timeout = None if permit is None else permit.provider.timeout
            value = await call(stage, args, kwargs, executor=self._runtime.executor, timeout=timeout)
            result = stage.signature.dump_result(value)
        except BaseException as error:
            if permit is not None and self._failures.is_control_flow(error):
                permit.drop()
            raise
        finally:
            STAGE.reset(outer)
        if permit is not None:
            await permit.ended(CallOutcome.SUCCESS)
        return result

    async def _backup(self, permit: "Permit | None", failure: Failure, *, last: bool) -> "Permit | None":
        """Report a failed call to its breaker; return a permit for a backup, if one is to be called."""
        if permit is None or self._provider_calls is None:
            return None
        return await self._provider_calls.failed(permit, failure, last=last)

    async def _failed(self, run: _StageRun, change: Finish | Requeue, failure: Failure) -> BaseException:
        """Return what to raise for a failed stage: `Interrupted` for another attempt, or `StageFailed`."""
        if isinstance(change, Finish):
            return await self._give_up(run, failure)
        self._writer.spend_attempt(run.key)
        self._state.postpone(change._replace(failure=failure))
        return Interrupted("the stage will be retried", failure)

    async def _give_up(self, run: _StageRun, failure: Failure) -> StageFailed:
        """Store that the stage has failed for good, so that no later attempt runs it again."""
        if run.provider is not None:
            failure = replace(failure, context={**failure.context, "provider": run.provider})
        failure = self._failures.in_group(failure, run.stage.name)
        await self._record(run, StageStatus.FAILED, failure=failure)
        return StageFailed(str(run.key), failure)

    async def _record(
        self,
        run: _StageRun,
        status: StageStatus,
        *,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> None:
        claim = self._state.claim
        await self._writer.store(
            StageWrite(
                claim.id,
                claim.token,
                run.key,
                status,
                run.number,
                run.hashed.full,
                result,
                failure,
                run.provider,
                run.hashed.brief,
            )
        )

    async def close(self) -> None:
        """Stop the stages that still run, and give back the attempts that their rows count."""
        left = [task for task in self._running.values() if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        await self._writer.close()
