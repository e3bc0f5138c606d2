"""The stages of one attempt: run once, stored, and returned from the store ever after.

A stage that runs alone needs no row when it starts: it uses the attempt count of the job. As soon as two run
concurrently, each gets a row with a count of its own before it starts, so that a crash or a failure of one costs the
other no attempt.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures.failure import Failure, worker_lost
from holdfast.core.jobs.stages import CallHash, StageKey, StageRow, StageStatus, ensure_same
from holdfast.core.jobs.transitions import Requeue, StageWrite, Transition, exhausted, fail
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.engine.execution.context import CALLING, STAGE, RunningStage
from holdfast.engine.execution.in_flight import InFlight
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.execution.invoke import call
from holdfast.engine.execution.provider_calls import ProviderCalls
from holdfast.engine.registry import StageSpec
from holdfast.ports.store import Settled

if TYPE_CHECKING:
    from holdfast.engine.execution.attempt import Attempt, AttemptRuntime
    from holdfast.engine.providers.admission import Permit
    from holdfast.ports import Span


class _StageRun(NamedTuple):
    """A running stage: its key, its arguments' hash, the number of the attempt, and the provider that it calls."""

    stage: StageSpec
    place: StageKey
    hashed: CallHash
    number: int
    provider: str | None = None


class Stages:
    """Runs the stages of a job during one attempt, and stores their results."""

    def __init__(
        self, attempt: "Attempt", stored: dict[StageKey, StageRow], runtime: "AttemptRuntime"
    ) -> None:
        self._attempt = attempt
        self.stored = stored
        self._runtime = runtime
        self._calls: Counter[str] = Counter()
        self._running: dict[StageKey, asyncio.Task[Any] | None] = {}
        self._alone: StageWrite | None = None
        """The row of a stage that runs alone. It is written if another stage starts beside it."""
        self._noted: dict[StageKey, StageWrite] = {}
        self.in_flight = InFlight()
        self._calls_made: ProviderCalls | None = None
        self.postponed: Transition | None = None
        """The transition that retries, holds or parks the job, even if its code swallows `Interrupted`."""

    @property
    def calls(self) -> ProviderCalls | None:
        """Acquires permits for calls to providers; `None` where jobs run inline, and calls need no permit."""
        if self._calls_made is None and self._runtime.admission is not None:
            self._calls_made = ProviderCalls(self._attempt, self, self._runtime.admission)
        return self._calls_made

    async def run(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the stage's result, stored before or computed now."""
        place = self._place(stage, key)
        if place in self._running:
            raise StageMismatch(f"stage {place} is running already; concurrent calls need a key each")
        text = stage.signature.dump_args(args, kwargs)
        hashed = self._hash_call(stage, text)
        row = self.stored.get(place)
        if row is not None:
            ensure_same(
                row, hashed, lambda: map(self._runtime.fingerprint, stage.signature.earlier_forms(text))
            )
            if row.status is StageStatus.DONE:
                return stage.signature.load_result(row.result or "null")
            if row.status is StageStatus.FAILED and row.failure is not None:
                raise StageFailed(str(place), row.failure)
        return await self._run_now(stage, place, hashed, text)

    def _hash_call(self, stage: StageSpec, text: str) -> CallHash:
        brief, full = stage.signature.without_defaults(text), self._runtime.fingerprint(text)
        return CallHash(full, full if brief == text else self._runtime.fingerprint(brief))

    def _place(self, stage: StageSpec, key: str | None) -> StageKey:
        self._calls[stage.name] += 1
        return StageKey(stage.name, key if key is not None else f"#{self._calls[stage.name]}")

    async def _run_now(self, stage: StageSpec, place: StageKey, hashed: CallHash, text: str) -> Any:
        self._running[place] = asyncio.current_task()
        try:
            with self.in_flight.track():
                provider = None if stage.provider is None else stage.provider.name
                run = _StageRun(stage, place, hashed, await self._begin(stage, place, hashed), provider)
                if run.number > stage.policy.attempts:
                    raise await self._give_up(run, worker_lost())
                span = None if self._runtime.tracer is None else self._runtime.tracer.stage(place, run.number)
                run, result = await (
                    self._compute(run, text) if span is None else self._in_span(span, run, text)
                )
                await self._record(run, StageStatus.DONE, result=result)
                return stage.signature.load_result(result)
        finally:
            self._running.pop(place, None)

    async def _begin(self, stage: StageSpec, place: StageKey, hashed: CallHash) -> int:
        """Return the number of this attempt at the stage; write a row for it if the stage does not run alone."""
        await asyncio.sleep(0)  # stages that start together see each other here
        row, claim = self.stored.get(place), self._attempt.claim
        note = StageWrite(
            claim.id, claim.token, place, StageStatus.STARTED, 1, hashed.full, brief_fingerprint=hashed.brief
        )
        if len(self._running) == 1 and row is None:
            self._alone = note._replace(attempt=self._lone_attempt(stage))
            return self._alone.attempt
        await self.note_lone()
        note = note._replace(attempt=1 if row is None else row.attempt + 1)
        await self._note(note)
        return note.attempt

    def _lone_attempt(self, stage: StageSpec) -> int:
        """Return the attempt number of a stage that runs alone, which has no row: that of the job.

        If workers were lost, each may have been lost in the stage. If none was, the stage never exceeded its budget,
        and the job's own code has spent the attempts above it.
        """
        claim = self._attempt.claim
        return claim.attempt if claim.losses else min(claim.attempt, stage.policy.attempts)

    async def note_lone(self) -> None:
        """Write the row of a stage that runs alone, before another write resets the job's count, which it uses."""
        alone, self._alone = self._alone, None
        if alone is not None and alone.key in self._running:
            await self._note(alone)

    async def _note(self, note: StageWrite) -> None:
        self._noted[note.key] = note
        await self.write(note)

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
        provider, calls = run.stage.provider, self.calls
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
                if self.is_control_flow(error):
                    raise
                # The edge of an attempt: SystemExit too is only its failure.
                judged = self._attempt.judge(error)
                # The failure is reported to the breaker first: it needs no message, and redacting one takes time.
                permit = await self._backup(run, permit, judged.failure)
                if permit is None:
                    raise await self._failed(run, await self._attempt.describe_failure(judged)) from error

    async def _call_function(self, run: _StageRun, text: str, permit: "Permit | None") -> str:
        """Call the function once; report success to the breaker, or drop the permit of a call that was stopped."""
        stage = run.stage
        outer = STAGE.set(RunningStage(run.place, run.number, run.provider))
        try:
            args, kwargs = stage.signature.load_args(text)
            timeout = None if permit is None else permit.provider.timeout
            value = await call(stage, args, kwargs, executor=self._runtime.executor, timeout=timeout)
            result = stage.signature.dump_result(value)
        except BaseException as error:
            if permit is not None and self.is_control_flow(error):
                permit.drop()
            raise
        finally:
            STAGE.reset(outer)
        if permit is not None:
            await permit.ended(CallOutcome.SUCCESS)
        return result

    async def _backup(self, run: _StageRun, permit: "Permit | None", failure: Failure) -> "Permit | None":
        calls = self.calls
        if permit is None or calls is None:
            return None
        last = exhausted(failure, run.stage.policy, attempt=run.number)
        return await calls.failed(permit, failure, last=last)

    def is_control_flow(self, error: BaseException) -> bool:
        """Whether an error comes from the engine itself, and is no failure of the called function."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return self._attempt.interrupted() or (task is not None and task.cancelling() > 0)
        return isinstance(error, StageFailed | Interrupted | LeaseLost)

    def put_back(self, change: Transition, why: str) -> Interrupted:
        """Requeue the job with *change*, unless a concurrent stage has requeued it; return what to raise."""
        if self.postponed is None:
            self.postponed = change
        return Interrupted(why)

    async def _failed(self, run: _StageRun, failure: Failure) -> BaseException:
        """Return what to raise for a failed stage: `Interrupted` for another attempt, or `StageFailed`."""
        if exhausted(failure, run.stage.policy, attempt=run.number):
            return await self._give_up(run, failure)
        self._noted.pop(run.place, None)  # its attempt is spent
        later = fail(
            self._attempt.claim,
            failure,
            run.stage.policy,
            roll=self._runtime.dice.roll(),
            attempt=run.number,
            stage=str(run.place),
        )
        if self.postponed is None or _is_held(self.postponed) or _delay(later) > _delay(self.postponed):
            # Of stages that failed concurrently, the one with the longest delay decides.
            self.postponed = later
        return Interrupted("the stage will be retried", failure)

    async def _give_up(self, run: _StageRun, failure: Failure) -> StageFailed:
        """Store that the stage has failed for good, so that no later attempt runs it again."""
        if run.provider is not None:
            failure = replace(failure, context={**failure.context, "provider": run.provider})
        failure = self._attempt.in_group(failure, run.stage.name)
        await self._record(run, StageStatus.FAILED, failure=failure)
        return StageFailed(str(run.place), failure)

    async def _record(
        self,
        run: _StageRun,
        status: StageStatus,
        *,
        result: str | None = None,
        failure: Failure | None = None,
    ) -> None:
        claim = self._attempt.claim
        await self.write(
            StageWrite(
                claim.id,
                claim.token,
                run.place,
                status,
                run.number,
                run.hashed.full,
                result,
                failure,
                run.provider,
                run.hashed.brief,
            )
        )
        self._noted.pop(run.place, None)
        self.stored[run.place] = StageRow(
            claim.id,
            run.place,
            status,
            run.number,
            run.hashed.full,
            result,
            failure,
            brief_fingerprint=run.hashed.brief,
        )

    async def write(self, change: StageWrite) -> None:
        """Store the state of a stage. Raises `LeaseLost`."""
        written = await self._runtime.settler.store_stage(
            change, self._attempt.claim, trace=self._attempt.trace
        )
        if written is Settled.OVER and self._attempt.may_be_late:
            return  # the deadline has passed: stages run on without being stored, for the late result of the job
        if written is not Settled.WRITTEN:
            raise LeaseLost
        if change.status is not StageStatus.STARTED:
            # The store has reset the job's attempt count in the same write: the next stage starts at one.
            self._attempt.claim = self._attempt.claim._replace(attempt=1)

    async def close(self) -> None:
        """Stop the stages that still run, and give back the attempts that their rows count."""
        left = [task for task in self._running.values() if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        # A stage that is still noted neither ended nor failed: it was stopped, here or by its task group.
        for note in list(self._noted.values()):
            await self._runtime.settler.store_stage(
                note._replace(attempt=note.attempt - 1), self._attempt.claim
            )


def _is_held(change: Transition) -> bool:
    return isinstance(change, Requeue) and change.held_by is not None


def _delay(change: Transition) -> timedelta:
    return (change.delay if isinstance(change, Requeue) else None) or timedelta(0)
