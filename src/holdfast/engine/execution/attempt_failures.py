"""The errors of one attempt, as failures with redacted messages and stacks."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.errors import StageFailed, StageMismatch
from holdfast.core.failures.classifier import Classification, Classifier
from holdfast.core.failures.failure import Failure, fingerprint_of, stage_mismatch, timed_out
from holdfast.core.jobs.traces import ids
from holdfast.engine.execution.execution_state import ExecutionState
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.execution.invoke import TookTooLongError
from holdfast.ports import Executor

if TYPE_CHECKING:
    from holdfast.engine.execution.attempt_runtime import AttemptRuntime


class AttemptFailures:
    """Turns the errors that a job's code raises during one attempt into failures."""

    def __init__(self, state: ExecutionState, runtime: "AttemptRuntime") -> None:
        self._state = state
        self._runtime = runtime

    def classify(self, error: BaseException) -> Classification:
        """Classify an error, and log a thread that could not be stopped."""
        match error:
            case TookTooLongError():
                if error.in_thread:
                    self.warn_of_thread()
                return Classification(timed_out(error.after), error, error)
            case StageMismatch():
                return Classification(stage_mismatch(str(error)), error, error)
            case _:
                return self._runtime.failures.classify(error)

    def warn_of_thread(self) -> None:
        """Log that a function runs on in its thread, which cannot be stopped."""
        claim = self._state.claim
        self._runtime.logger.warning(
            "thread abandoned",
            job_id=claim.id,
            name=claim.name,
            queue=claim.queue,
            **ids(self._state.trace),
        )

    async def describe(self, classified: Classification) -> Failure:
        """Turn a classified error into a failure with its redacted message and stack."""
        return (
            classified.failure
            if classified.failure.message
            else await self._runtime.failures.write(classified)
        )

    def in_group(self, failure: Failure, stage: str = "") -> Failure:
        """Return *failure* with the fingerprint that groups its dead letter: by this job, and its stage.

        A failure that came from a stage or from another job keeps its fingerprint: one cause is one group.
        """
        kind, location = failure.error_class, str(failure.context.get("place", ""))
        if failure.fingerprint != fingerprint_of(kind, location):
            return failure
        return replace(
            failure, fingerprint=fingerprint_of(kind, location, job=self._state.claim.name, stage=stage)
        )

    def stopped_by_engine(self) -> bool:
        """Whether the engine is stopping this attempt: a cancellation then does not come from the job's code."""
        return self._state.interruption is not None or self._runtime.closing()

    def is_control_flow(self, error: BaseException) -> bool:
        """Whether an error comes from the engine itself, and is no failure of the called function."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return self.stopped_by_engine() or (task is not None and task.cancelling() > 0)
        return isinstance(error, StageFailed | Interrupted | LeaseLost)


class FailureTexts:
    """Writes messages and stacks of the failures of one worker.

    However many attempts fail at once, the event loop runs between any two. Texts of more than 2,000 characters are
    redacted by *executor*, if there is one. One at a time: regular expressions hold the interpreter's lock, and several
    threads would keep the loop from it without being any faster.
    """

    def __init__(self, classifier: Classifier, executor: Executor | None = None) -> None:
        self._classifier = classifier
        self._executor = executor
        self._turn = asyncio.Lock()

    def classify(self, error: BaseException) -> Classification:
        """Classify an error, without its text."""
        return self._classifier.classify_without_text(error)

    async def write(self, classified: Classification) -> Failure:
        """Add message and stack. When cancelled, a thread may run on for some milliseconds."""
        async with self._turn:
            if self._executor is not None and classified.is_long:
                try:
                    return await self._executor.run(partial(self._classifier.render, classified))
                except RuntimeError:
                    pass  # no thread is available: the text is bounded, so the loop is blocked only briefly
            await asyncio.sleep(0)
            return self._classifier.render(classified)
