"""Mistakes in the decision after a failure: whether it is tried again, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.failures import failure as failures
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.failures.failure import MEANINGS, ErrorClass, Meaning
from tests.planted.planting import Bug, Swap

if TYPE_CHECKING:
    from datetime import timedelta

_REFUSED_FOR_NOW = (ErrorClass.RATE_LIMITED, ErrorClass.CONFLICT, ErrorClass.POOL_EXHAUSTED)
_REFUSED_FOR_GOOD = (ErrorClass.AUTH_DENIED, ErrorClass.QUOTA_EXHAUSTED, ErrorClass.BUG)


def _meanings(*classes: ErrorClass, retryable: bool) -> dict[ErrorClass, Meaning]:
    """What classes mean, with a mistake in some of them."""
    return {**MEANINGS, **{name: replace(MEANINGS[name], retryable=retryable) for name in classes}}


def _wait_as_the_backoff_says(self: Any, attempt: int, failure: Any, *, roll: float) -> timedelta:
    delay: timedelta = self.backoff.delay(attempt, roll=roll)
    return delay


BUGS = (
    Bug(
        "refusal-taken-for-final",
        "The service answered, and the answer is no.",
        (),
        (Swap(failures, "MEANINGS", _meanings(*_REFUSED_FOR_NOW, retryable=False)),),
    ),
    Bug(
        "final-refusal-retried",
        "It costs nothing to ask again.",
        (),
        (Swap(failures, "MEANINGS", _meanings(*_REFUSED_FOR_GOOD, retryable=True)),),
    ),
    Bug(
        "retry-after-ignored",
        "The backoff grows anyway, so a service need not ask for time.",
        (),
        (Swap(RetryPolicy, "delay", _wait_as_the_backoff_says),),
    ),
)
