"""Dead letters for tests: one names only what it is about."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.core.dead_letters.letter import Cause, Letter, LetterState
from holdfast.core.failures.failure import ErrorClass, Failure

JOB_ID = "01900000-0000-7000-8000-00000000000a"
FIRST = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LAST = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)


def a_letter(
    state: LetterState = LetterState.NEW,
    *,
    error_class: ErrorClass = ErrorClass.UPSTREAM_5XX,
    context: Mapping[str, Any] | None = None,
    stage: str | None = None,
    cause: Cause | None = None,
    escalated: bool = False,
    replays: int = 0,
) -> Letter:
    """Return the letter of a job that failed after three attempts."""
    failure_fields = {
        "error_class": error_class.value,
        "message": "no luck",
        "stack": "Traceback: no luck",
        "upstream_status": 503,
        "fingerprint": "0123456789abcdef",
        "context": dict(context or {}),
    }
    return Letter(
        job_id=JOB_ID,
        version=1,
        state=state,
        name="grade",
        queue="default",
        owner="anna",
        generation=1,
        failure=Failure.from_dict(failure_fields),
        attempt=3,
        holds=2,
        first_reason="no answer within 60 s",
        first_failure_at=FIRST,
        last_failure_at=LAST,
        updated_at=LAST,
        stage=stage,
        replays=replays,
        escalated=escalated,
        cause=cause,
    )
