"""Mistakes around stages and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StageFailed
from holdfast.core.jobs import transitions
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.stage_writer import StageWriter
from holdfast.engine.execution.stages import Stages
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from tests.planted.planting import Bug, Sql, Swap

if TYPE_CHECKING:
    from holdfast.core.failures.backoff import RetryPolicy
    from holdfast.core.failures.failure import Failure
    from holdfast.core.jobs.stages import CallHash, StageKey
    from holdfast.core.jobs.transitions import StageWrite
    from holdfast.engine.registry import StageSpec


async def _write_later(self: Any, change: StageWrite) -> None:
    self._settler._batcher.post(AttemptOutcome(change, change.attempt, 0.0))


def _remember_nothing(self: Any, stages: Any, signals: Any) -> None:
    self._state.load({}, signals)


async def _give_up_without_a_record(self: Any, now: Any, failure: Failure) -> StageFailed:
    return StageFailed(str(now.key), failure)


async def _count_with_the_job(self: Any, stage: StageSpec, stage_key: StageKey, hashed: CallHash) -> int:
    attempt: int = self._state.claim.attempt
    return attempt


def _exhausted_one_later(failure: Failure, policy: RetryPolicy, *, attempt: int) -> bool:
    if not failure.retryable or attempt > policy.attempts:
        return True
    return failure.retries is not None and attempt > failure.retries


BUGS = (
    Bug(
        "stage-answered-before-written",
        "The write is on its way; the job need not wait for it.",
        ("STG-1",),
        (Swap(StageWriter, "write", _write_later),),
    ),
    Bug(
        "stages-not-read",
        "Begin at the top, and run every stage.",
        ("STG-1",),
        (Swap(Attempt, "load", _remember_nothing),),
    ),
    Bug(
        "replay-forgets-stages",
        "A retry by hand starts afresh.",
        ("STG-1",),
        (Sql("delete_stages", "   AND (:restart OR (status <> 'done' AND name <> '@restarted'))\n", ""),),
    ),
    Bug(
        "next-stage-pays",
        "Attempts are attempts, in whichever stage.",
        ("STG-2",),
        (Sql("reset_attempts", "CASE WHEN want.ended THEN 1 ELSE job.attempt END", "job.attempt"),),
    ),
    Bug(
        "note-resets-the-count",
        "Something was written for the job, so it made progress.",
        ("STG-2",),
        (Sql("reset_attempts", "CASE WHEN want.ended THEN 1 ELSE job.attempt END", "1"),),
    ),
    Bug(
        "stages-share-a-count",
        "The job's count will do, also for stages that run side by side.",
        ("STG-2",),
        (Swap(Stages, "_begin", _count_with_the_job),),
    ),
    Bug(
        "failed-stage-not-recorded",
        "The job fails in a moment, and says why.",
        ("STG-3",),
        (Swap(Stages, "_give_up", _give_up_without_a_record),),
    ),
    Bug(
        "one-attempt-too-many",
        "Three attempts are three retries.",
        ("STG-2", "STG-3"),
        (Swap(transitions, "exhausted", _exhausted_one_later),),
    ),
)
