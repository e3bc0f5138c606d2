"""A provider: an outside service as declared, and what the outcome of a call says about it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.core.failures.failure import ErrorClass, Failure, Scope, Verdict
from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import BreakerState, OpenCause, state_name
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.core.providers.limits import Limits

MAX_KEY_LENGTH = 200


def checked_key(key: object) -> str:
    """Return a key as text. Raises `ValueError` for one that cannot be stored and displayed."""
    if key is None:
        raise ValueError("Not a key: None. Pass a text; '' is the key of calls without a customer")
    key = str(key)
    if len(key) > MAX_KEY_LENGTH or not key.isprintable():
        raise ValueError(
            f"Not a key: {key[:20]!r}. Use printable text of at most {MAX_KEY_LENGTH} characters"
        )
    return key


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A provider as declared."""

    name: str
    timeout: timedelta = timedelta(seconds=60)
    limits: Limits = field(default_factory=Limits)
    breaker: Breaker = field(default_factory=Breaker)
    backup: str | None = None
    key: Callable[[Any], str] | None = None
    """Returns the customer of a call, from the stage's arguments."""
    key_limits: Limits = field(default_factory=Limits)
    retry_budget: float | None = None

    @property
    def limited(self) -> bool:
        """Whether a call may have to wait for anything but the breaker."""
        return self.limits.any or self.key_limits.any or self.retry_budget is not None

    @property
    def limits_concurrency(self) -> bool:
        """Whether there is a limit on concurrent calls."""
        return self.limits.concurrency is not None or self.key_limits.concurrency is not None


def outcome_of(failure: Failure) -> CallOutcome:
    """Return what a failed call says about its provider.

    >>> str(outcome_of(Failure.of(ErrorClass.NETWORK_TIMEOUT, "no answer")))
    'failure'
    """
    match failure.scope, failure.error_class:
        case Scope.PROVIDER, ErrorClass.QUOTA_EXHAUSTED:
            return CallOutcome.EXHAUSTED
        case Scope.PROVIDER, ErrorClass.AUTH_DENIED | ErrorClass.MISCONFIGURED:
            return CallOutcome.DENIED
    return _OUTCOMES[failure.verdict]


_OUTCOMES = {
    Verdict.FAIL: CallOutcome.FAILURE,
    Verdict.LIMIT: CallOutcome.LIMITED,
    Verdict.IGNORE: CallOutcome.IGNORED,
}


def hold_reason(name: str, breaker: BreakerState, now: float) -> str:
    """Return why a job is held for the breaker.

    >>> from holdfast.core.providers.breaker_state import OpenPeriod
    >>> period = OpenPeriod(OpenCause.FAILURES, since=0.0, until=30.0, failed=11, seen=20)
    >>> hold_reason("llm", BreakerState(open_period=period), 10.0)
    'llm is open: 11 of 20 calls failed'
    """
    state = state_name(breaker, now)
    if breaker.override is not None:
        return f"{name} is {state} by {breaker.override.actor}" + (
            f": {breaker.override.reason}" if breaker.override.reason else ""
        )
    if state == "recovering":
        return f"{name} is recovering, and held jobs go first"
    if (
        breaker.open_period is not None
        and breaker.open_period.cause is OpenCause.FAILURES
        and breaker.open_period.failed
    ):
        return f"{name} is {state}: {breaker.open_period.failed} of {breaker.open_period.seen} calls failed"
    return f"{name} is {state}"
