"""What the code of a job reaches during an attempt: its stages, waits, permits, submissions and notes."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import timedelta
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import ConfigError, StateRefused, WithinUnsupported
from holdfast.core.jobs.completion import Completion
from holdfast.core.jobs.job import Claim, Receipt, Submission
from holdfast.core.jobs.stages import RESTARTED
from holdfast.core.jobs.transitions import complete
from holdfast.core.providers.provider import ProviderSpec
from holdfast.engine.execution.attempt_failures import AttemptFailures
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.context import STAGE
from holdfast.engine.execution.execution_state import Ended, ExecutionState
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.execution.provider_calls import ProviderCall, ProviderCalls
from holdfast.engine.execution.stage_writer import StageWriter
from holdfast.engine.execution.stages import Stages
from holdfast.engine.execution.suspension import Suspension
from holdfast.engine.registry import JobSpec, StageSpec
from holdfast.ports import Store
from holdfast.ports.store import Settled

if TYPE_CHECKING:
    from types import CoroutineType


class JobContext:
    """The job that the running code belongs to, as that code reaches it through `CURRENT`."""

    __slots__ = (
        "_counts",
        "_runtime",
        "_spec",
        "_stage_parts",
        "_state",
        "_suspension",
        "_unstarted",
        "has_stages",
    )

    def __init__(self, state: ExecutionState, spec: JobSpec, runtime: AttemptRuntime) -> None:
        self._state = state
        self._spec = spec
        self._runtime = runtime
        self.has_stages = False
        """Whether the job's code has called a stage, waited, or asked for a permit: `close` is to be called."""
        self._stage_parts: _StageParts | None = None
        self._suspension: Suspension | None = None
        self._unstarted: dict[object, CoroutineType[Any, Any, Any]] | None = None
        """The stages that were called and have not started: those left at the function's end were never awaited."""
        self._counts: Counter[Hashable] | None = None

    @property
    def claim(self) -> Claim:
        """The lease on the job, with the number of this attempt."""
        return self._state.claim

    @property
    def trace(self) -> str | None:
        """The trace context of this attempt."""
        return self._state.trace

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the attempt runs."""
        return self._runtime.loop

    def time_left(self) -> timedelta | None:
        """Return the time until the job's deadline; negative after it, `None` without one."""
        return self._state.time_left()

    def is_kept_by(self, store: Store) -> bool:
        """Whether this job is in *store*."""
        return self._runtime.store is store

    def note(self, fields: Mapping[str, Any]) -> None:
        """Remember fields for the dead letter, if the job leaves one."""
        self._state.note(fields)

    def count(self, key: Hashable) -> int:
        """Count the calls with *key*, from 1."""
        if self._counts is None:
            self._counts = Counter()
        self._counts[key] += 1
        return self._counts[key]

    @property
    def origin(self) -> int:
        """The generation that started without stored stages: the first, or the last replay that kept none."""
        restarts = [key.call for key in self._state.rows if key.name == RESTARTED]
        return max((int(call.removeprefix("#")) for call in restarts), default=1)

    def submitting(self) -> AbstractContextManager[None]:
        """Count a submission as in flight in the block: the job is not parked in the middle of it."""
        if self._state.ended:
            return nullcontext()
        self.ensure_going_on()
        return self._state.in_flight.track()

    def completing(self) -> AbstractContextManager[None]:
        """Count the job's completion as in flight in the block: the job is not parked in the middle of it."""
        return nullcontext() if self._state.ended else self._state.in_flight.track()

    def submitted(self, batch: Sequence[Submission], receipts: Sequence[Receipt]) -> None:
        """Remember which of the submitted jobs an earlier generation had submitted already."""
        if self.claim.generation > self.origin:
            own = f"{self.claim.id}:"
            self._state.reuse_children(
                receipt.id
                for sent, receipt in zip(batch, receipts, strict=True)
                if receipt.existing and (sent.key or "").startswith(own)
            )

    def ensure_going_on(self) -> None:
        """Raise `Interrupted` again, if the function swallowed the one that parks, holds or retries the job.

        The function continues without a result, and nothing that it does then may take effect. A stage that started
        before goes on. Raises `StateRefused` if the function has completed the job.
        """
        self._ensure_not_postponed()
        if self._state.completion is not None and STAGE.get() is None:
            raise StateRefused("the job was completed; return from its function")

    def _ensure_not_postponed(self) -> None:
        if self._state.postponed is not None and STAGE.get() is None:
            raise Interrupted("the job is requeued; what its function does now is dropped")

    async def complete(self, result: Any, within: Any) -> Completion:
        """End the job with *result* in the transaction of the connection *within*.

        A second call is for a transaction that was rolled back, and is repeated. Unwinds the function if the lease was
        lost. Raises `StateRefused` if the job has ended, `PayloadInvalid`, `WithinUnsupported`, and what the driver raises.
        """
        state = self._state
        if state.ended:
            raise LeaseLost  # an abandoned thread: its job may be running elsewhere by now
        if STAGE.get() is not None:
            raise ConfigError("complete() was called inside a stage; call it in the job's function")
        self._ensure_not_postponed()
        end, earlier = complete(state.claim, self._spec.signature.dump_result(result)), state.completion
        # Before it is sent: if the answer is lost, the store is asked what became of the lease.
        state.complete(Ended(end, Settled.WRITTEN))
        try:
            settled = await self._runtime.store.settle_within(within, end)
        except WithinUnsupported:
            state.complete(earlier)
            raise
        if settled is Settled.FENCED:
            state.complete(earlier)
            if earlier is None:
                raise LeaseLost
            raise StateRefused("the job has ended already; return from its function")
        state.complete(Ended(end, settled))
        return Completion(late=settled is not Settled.WRITTEN)

    def run_stage(
        self, stage: StageSpec, key: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Run a stage of this job, or return its stored result. A job that does not await it fails."""
        token = object()
        running = cast("CoroutineType[Any, Any, Any]", self._run_stage(token, stage, key, args, kwargs))
        # Python warns of this name, too, if the function fails before it awaits the stage.
        running.__qualname__ = stage.name
        if self._unstarted is None:
            self._unstarted = {}
        self._unstarted[token] = running
        self.has_stages = True
        return running

    async def _run_stage(
        self,
        token: object,
        stage: StageSpec,
        key: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._unstarted is not None:
            self._unstarted.pop(token, None)
        self._spec.saw_stage(stage)
        return await self._require_stage_parts().stages.run(stage, key, args, kwargs)

    @property
    def suspension(self) -> Suspension:
        """Suspends the job's function: durable sleep, signals, and waits for other jobs."""
        writer = self._require_stage_parts().writer
        if self._suspension is None:
            self._suspension = Suspension(self._state, writer, self._runtime.store, self._runtime.store_retry)
        return self._suspension

    def calling(self, provider: ProviderSpec, key: str) -> AbstractAsyncContextManager[ProviderCall]:
        """Call *provider* in the block, with a permit; where jobs run inline, calls need none."""
        calls = self._require_stage_parts().calls
        return nullcontext(ProviderCall(provider.name)) if calls is None else calls.block(provider, key)

    def _require_stage_parts(self) -> "_StageParts":
        if self._state.ended:
            raise LeaseLost  # an abandoned thread: its job may be running elsewhere by now
        self.ensure_going_on()
        if self._stage_parts is None:
            self._stage_parts = _StageParts(self._state, self._spec, self._runtime)
            self.has_stages = True
        return self._stage_parts

    def take_unawaited(self) -> list[str]:
        """Return the names of the stages that the function called and did not await: they did not run."""
        # A stage that was cancelled before it started is closed, and does not count.
        left = [
            stage for stage in (self._unstarted or {}).values() if getcoroutinestate(stage) == CORO_CREATED
        ]
        for stage in left:
            stage.close()  # the failure reports it; Python's own warning would come later, and name no job
        return [stage.__qualname__ for stage in left]

    async def close(self) -> None:
        """Stop the stages and waits that the function left running, when the attempt is over."""
        self._unstarted = None
        if self._suspension is not None:
            await self._suspension.close()
        if self._stage_parts is not None:
            await self._stage_parts.stages.close()


class _StageParts:
    """What only jobs with stages, waits or permits need."""

    def __init__(self, state: ExecutionState, spec: JobSpec, runtime: AttemptRuntime) -> None:
        failures = AttemptFailures(state, runtime)
        self.writer = StageWriter(state, runtime.settler, may_be_late=spec.on_deadline == "finish")
        self.calls = (
            None
            if runtime.admission is None
            else ProviderCalls(state, failures, runtime.admission, spec.exhaustion)
        )
        self.stages = Stages(state, runtime, self.writer, failures, self.calls)
