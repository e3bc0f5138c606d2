"""The stages of one attempt: run once, stored, and answered from the store ever after.

A stage that runs alone needs no note that it began: the job's attempt count is its own. As soon
as two run side by side, each gets a row with a count of its own before it starts, so that a crash
or a failure of one takes nothing from the other.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.breakers import Outcome
from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures import Failure, worker_lost
from holdfast.core.stages import CallHash, StageKey, StageRow, StageStatus, ensure_same
from holdfast.core.transitions import Requeue, StageWrite, Transition, exhausted, fail
from holdfast.engine.bustle import Bustle
from holdfast.engine.calling import call
from holdfast.engine.calls import Calls
from holdfast.engine.context import CALLING, STAGE, RunningStage
from holdfast.engine.registry import StageSpec
from holdfast.engine.unwinding import Interrupted, LeaseLost
from holdfast.ports.store import Settled

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt, Tools
    from holdfast.engine.permits import Permit
    from holdfast.ports import Span


class _Now(NamedTuple):
    """A stage that runs at this moment, which attempt at it this is, and whom it calls."""

    stage: StageSpec
    place: StageKey
    hashed: CallHash
    number: int
    provider: str | None = None


class Stages:
    """What is known of a job's stages while one attempt runs."""

    def __init__(self, attempt: "Attempt", stored: dict[StageKey, StageRow], tools: "Tools") -> None:
        self._attempt = attempt
        self.stored = stored
        self._tools = tools
        self._calls: Counter[str] = Counter()
        self._running: dict[StageKey, asyncio.Task[Any] | None] = {}
        self._alone: StageWrite | None = None
        """The note of a stage that runs alone. It is written if that changes."""
        self._noted: dict[StageKey, StageWrite] = {}
        self.bustle = Bustle()
        self._calls_made: Calls | None = None
        self.postponed: Transition | None = None
        """What a stage that is to be tried again asks for, or a wait, whatever the job's code makes of its unwinding."""

    @property
    def calls(self) -> Calls | None:
        """Who asks providers for leave; nobody does where jobs run inline, and every call is made."""
        if self._calls_made is None and self._tools.permits is not None:
            self._calls_made = Calls(self._attempt, self, self._tools.permits)
        return self._calls_made

    async def run(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Give the stage's result, stored before or computed now."""
        place = self._place(stage, key)
        if place in self._running:
            raise StageMismatch(f"stage {place} runs already; calls side by side need a key each")
        text = stage.shape.dump_args(args, kwargs)
        hashed = self._hashed(stage, text)
        row = self.stored.get(place)
        if row is not None:
            ensure_same(row, hashed, lambda: map(self._tools.fingerprint, stage.shape.earlier_forms(text)))
            if row.status is StageStatus.DONE:
                return stage.shape.load_result(row.result or "null")
            if row.status is StageStatus.FAILED and row.failure is not None:
                raise StageFailed(str(place), row.failure)
        return await self._run_now(stage, place, hashed, text)

    def _hashed(self, stage: StageSpec, text: str) -> CallHash:
        brief, full = stage.shape.without_defaults(text), self._tools.fingerprint(text)
        return CallHash(full, full if brief == text else self._tools.fingerprint(brief))

    def _place(self, stage: StageSpec, key: str | None) -> StageKey:
        self._calls[stage.name] += 1
        return StageKey(stage.name, key if key is not None else f"#{self._calls[stage.name]}")

    async def _run_now(self, stage: StageSpec, place: StageKey, hashed: CallHash, text: str) -> Any:
        self._running[place] = asyncio.current_task()
        try:
            with self.bustle.under_way():
                provider = None if stage.provider is None else stage.provider.name
                now = _Now(stage, place, hashed, await self._begin(stage, place, hashed), provider)
                if now.number > stage.policy.attempts:
                    raise await self._give_up(now, worker_lost())
                span = None if self._tools.tracer is None else self._tools.tracer.stage(place, now.number)
                now, result = await (
                    self._computed(now, text) if span is None else self._in_span(span, now, text)
                )
                await self._record(now, StageStatus.DONE, result=result)
                return stage.shape.load_result(result)
        finally:
            self._running.pop(place, None)

    async def _begin(self, stage: StageSpec, place: StageKey, hashed: CallHash) -> int:
        """Count this attempt at the stage, with a note of its own if it does not run alone."""
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
        """Count by the attempts of the job: nobody noted those of a stage that runs alone.

        A worker that was lost may have been lost in the stage, each time. If none was, the stage never went beyond
        its budget, and the job's own code has spent what is above that.
        """
        claim = self._attempt.claim
        return claim.attempt if claim.losses else min(claim.attempt, stage.policy.attempts)

    async def note_lone(self) -> None:
        """Give a stage that runs alone a count of its own, before that of the job, which it uses, is another's."""
        alone, self._alone = self._alone, None
        if alone is not None and alone.key in self._running:
            await self._note(alone)

    async def _note(self, note: StageWrite) -> None:
        self._noted[note.key] = note
        await self.write(note)

    async def _in_span(self, span: "Span", now: _Now, text: str) -> tuple[_Now, str]:
        """Compute the stage's result inside *span*, and say there what came of it."""
        try:
            computed = await self._computed(now, text)
        except (StageFailed, Interrupted) as error:
            span.end("held" if error.failure is None else "failed", error.failure)
            raise
        except BaseException:
            span.end("stopped")
            raise
        span.end("done")
        return computed

    async def _computed(self, now: _Now, text: str) -> tuple[_Now, str]:
        """Call the stage's function, with its provider's leave; tell who was called in the end, and the result.

        An error ends with a backup, in a later attempt, or in `StageFailed`.
        """
        provider, calls = now.stage.provider, self.calls
        if provider is None or calls is None:
            return await self._tried(now, text, None)
        key = "" if provider.key is None else now.stage.shape.key_of(provider.key, text)
        call, permit = await calls.admit(provider, key, retry=now.number > 1)
        outer = CALLING.set((*CALLING.get(), call))
        try:
            return await self._tried(now, text, permit)
        finally:
            CALLING.reset(outer)
            calls.leave(call)

    async def _tried(self, now: _Now, text: str, permit: "Permit | None") -> tuple[_Now, str]:
        """Call the function with *permit*, and with that of a backup if need be."""
        while True:
            now = now if permit is None else now._replace(provider=permit.provider.name)
            try:
                return now, await self._called(now, text, permit)
            except BaseException as error:
                if self.says_nothing(error):
                    raise
                # The edge of an attempt: SystemExit too is only its failure.
                judged = self._attempt.judge(error)
                # The provider's gate hears of it first: it needs no words, and they take their time.
                permit = await self._backup(now, permit, judged.failure)
                if permit is None:
                    raise await self._failed(now, await self._attempt.worded(judged)) from error

    async def _called(self, now: _Now, text: str, permit: "Permit | None") -> str:
        """Call the function once, and tell its provider's gate if that went well, or was given up."""
        stage = now.stage
        outer = STAGE.set(RunningStage(now.place, now.number, now.provider))
        try:
            args, kwargs = stage.shape.load_args(text)
            timeout = None if permit is None else permit.provider.timeout
            value = await call(stage, args, kwargs, executor=self._tools.executor, timeout=timeout)
            result = stage.shape.dump_result(value)
        except BaseException as error:
            if permit is not None and self.says_nothing(error):
                permit.drop()
            raise
        finally:
            STAGE.reset(outer)
        if permit is not None:
            await permit.ended(Outcome.SUCCESS)
        return result

    async def _backup(self, now: _Now, permit: "Permit | None", failure: Failure) -> "Permit | None":
        calls = self.calls
        if permit is None or calls is None:
            return None
        last = exhausted(failure, now.stage.policy, attempt=now.number)
        return await calls.failed(permit, failure, last=last)

    def says_nothing(self, error: BaseException) -> bool:
        """Whether an error is the engine's own doing, and no failure of what was called."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return self._attempt.interrupted() or (task is not None and task.cancelling() > 0)
        return isinstance(error, StageFailed | Interrupted | LeaseLost)

    def put_back(self, change: Transition, why: str) -> Interrupted:
        """Have the job put back as *change* says; a stage that failed beside it, and is to be tried again, comes first."""
        if self.postponed is None:
            self.postponed = change
        return Interrupted(why)

    async def _failed(self, now: _Now, failure: Failure) -> BaseException:
        """Decide on a failed stage: unwind the job for another attempt, or tell its function."""
        if exhausted(failure, now.stage.policy, attempt=now.number):
            return await self._give_up(now, failure)
        self._noted.pop(now.place, None)  # its attempt is spent
        later = fail(
            self._attempt.claim,
            failure,
            now.stage.policy,
            roll=self._tools.dice.roll(),
            attempt=now.number,
            stage=str(now.place),
        )
        if self.postponed is None or _is_held(self.postponed) or _delay(later) > _delay(self.postponed):
            # Of stages that failed side by side, the one that has to wait longest decides.
            self.postponed = later
        return Interrupted("the stage will be tried again", failure)

    async def _give_up(self, now: _Now, failure: Failure) -> StageFailed:
        """Write down that the stage is beyond its budget, so that no later attempt tries it again."""
        if now.provider is not None:
            failure = replace(failure, context={**failure.context, "provider": now.provider})
        failure = self._attempt.in_group(failure, now.stage.name)
        await self._record(now, StageStatus.FAILED, failure=failure)
        return StageFailed(str(now.place), failure)

    async def _record(
        self, now: _Now, status: StageStatus, *, result: str | None = None, failure: Failure | None = None
    ) -> None:
        claim = self._attempt.claim
        await self.write(
            StageWrite(
                claim.id,
                claim.token,
                now.place,
                status,
                now.number,
                now.hashed.full,
                result,
                failure,
                now.provider,
                now.hashed.brief,
            )
        )
        self._noted.pop(now.place, None)
        self.stored[now.place] = StageRow(
            claim.id,
            now.place,
            status,
            now.number,
            now.hashed.full,
            result,
            failure,
            brief_fingerprint=now.hashed.brief,
        )

    async def write(self, change: StageWrite) -> None:
        """Store what became of a stage. Raises `LeaseLost`."""
        written = await self._tools.settler.store_stage(
            change, self._attempt.claim, trace=self._attempt.trace
        )
        if written is Settled.OVER and self._attempt.may_be_late:
            return  # the stages run on, unwritten: only the job's result can be kept
        if written is not Settled.WRITTEN:
            raise LeaseLost
        if change.status is not StageStatus.STARTED:
            # The store set the job's count back with the same write: the next stage begins at one.
            self._attempt.claim = self._attempt.claim._replace(attempt=1)

    async def close(self) -> None:
        """Stop what still runs when the attempt is over, and give its noted attempts back."""
        left = [task for task in self._running.values() if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        # Whoever is still noted neither ended nor failed: it was stopped, here or by its task group.
        for note in list(self._noted.values()):
            await self._tools.settler.store_stage(
                note._replace(attempt=note.attempt - 1), self._attempt.claim
            )


def _is_held(change: Transition) -> bool:
    return isinstance(change, Requeue) and change.held_by is not None


def _delay(change: Transition) -> timedelta:
    return (change.delay if isinstance(change, Requeue) else None) or timedelta(0)
