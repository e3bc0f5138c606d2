"""What went wrong in an attempt, as a value that is stored, shown and decided upon.

A `Failure` is data: the attempt that met it has ended, and nothing raises it. Its `error_class` is for
operators and for rules; its `code` is one of a few public codes, safe to show to
the users of the application. `MEANINGS` says, once, what each class means for a retry, for a
second send and for the breaker; a rule may depart from it (see `rules`).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Self, TypeVar


class ErrorClass(StrEnum):
    """The stable name of a kind of failure. Names are stored and never change their meaning."""

    CONNECT_FAILED = "CONNECT_FAILED"
    POOL_EXHAUSTED = "POOL_EXHAUSTED"
    NETWORK_TIMEOUT = "NETWORK_TIMEOUT"
    CONNECTION_LOST = "CONNECTION_LOST"
    MISCONFIGURED = "MISCONFIGURED"
    RATE_LIMITED = "RATE_LIMITED"
    QUOTA_EXHAUSTED = "QUOTA_EXHAUSTED"
    OVERLOADED = "OVERLOADED"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    CONFLICT = "CONFLICT"
    AUTH_DENIED = "AUTH_DENIED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    SCHEMA_INVALID = "SCHEMA_INVALID"
    TOO_LARGE = "TOO_LARGE"
    POLICY_REJECTED = "POLICY_REJECTED"
    RECIPIENT_REJECTED = "RECIPIENT_REJECTED"
    BAD_RESPONSE = "BAD_RESPONSE"
    MEDIA_INVALID = "MEDIA_INVALID"
    DB_TRANSIENT = "DB_TRANSIENT"
    DB_AMBIGUOUS = "DB_AMBIGUOUS"
    RESOURCE = "RESOURCE"
    BUG = "BUG"
    WORKER_LOST = "WORKER_LOST"
    STAGE_MISMATCH = "STAGE_MISMATCH"
    TIMEOUT = "TIMEOUT"
    """The job's deadline has passed. A call or a stage that took too long is a `NETWORK_TIMEOUT`."""
    UNKNOWN = "UNKNOWN"


class PublicCode(StrEnum):
    """The codes that the API and the pages use; they reveal nothing internal."""

    NOT_PDF = "NOT_PDF"
    TOO_LARGE = "TOO_LARGE"
    GW_4XX = "GW_4XX"
    GW_5XX = "GW_5XX"
    GW_TIMEOUT = "GW_TIMEOUT"
    IO_ERROR = "IO_ERROR"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


class Sent(StrEnum):
    """Whether the request may have taken effect before it failed."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class Scope(StrEnum):
    """What the failure is about: this job, its whole provider, or neither."""

    JOB = "job"
    PROVIDER = "provider"
    NONE = "none"


class Verdict(StrEnum):
    """What the provider's breaker makes of it: a failed call, nothing, or a request to slow down."""

    FAIL = "fail"
    IGNORE = "ignore"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a class means unless a rule overrides it."""

    code: PublicCode
    sent: Sent
    scope: Scope = Scope.JOB
    verdict: Verdict = Verdict.IGNORE
    retryable: bool = True
    retries: int | None = None


_again = Meaning
_never = partial(Meaning, retryable=False)
_MAYBE, _NO, _YES = Sent.MAYBE, Sent.NO, Sent.YES
_PROVIDER, _NEITHER = Scope.PROVIDER, Scope.NONE
_FAIL, _LIMIT = Verdict.FAIL, Verdict.LIMIT

MEANINGS: Mapping[ErrorClass, Meaning] = {
    ErrorClass.CONNECT_FAILED: _again(PublicCode.GW_5XX, _NO, verdict=_FAIL),
    ErrorClass.POOL_EXHAUSTED: _again(PublicCode.GW_TIMEOUT, _NO),
    ErrorClass.NETWORK_TIMEOUT: _again(PublicCode.GW_TIMEOUT, _MAYBE, verdict=_FAIL),
    ErrorClass.CONNECTION_LOST: _again(PublicCode.GW_5XX, _MAYBE, verdict=_FAIL),
    ErrorClass.MISCONFIGURED: _never(PublicCode.UNKNOWN, _NO, _PROVIDER),
    ErrorClass.RATE_LIMITED: _again(PublicCode.GW_5XX, _NO, _PROVIDER, _LIMIT),
    ErrorClass.QUOTA_EXHAUSTED: _never(PublicCode.GW_4XX, _NO, _PROVIDER),
    ErrorClass.OVERLOADED: _again(PublicCode.GW_5XX, _MAYBE, _PROVIDER, _FAIL),
    ErrorClass.UPSTREAM_5XX: _again(PublicCode.GW_5XX, _MAYBE, _PROVIDER, _FAIL),
    ErrorClass.CONFLICT: _again(PublicCode.UNKNOWN, _NO),
    ErrorClass.AUTH_DENIED: _never(PublicCode.GW_4XX, _NO, _PROVIDER),
    ErrorClass.PERMISSION_DENIED: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.NOT_FOUND: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.SCHEMA_INVALID: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.TOO_LARGE: _never(PublicCode.TOO_LARGE, _NO),
    ErrorClass.POLICY_REJECTED: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.RECIPIENT_REJECTED: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.BAD_RESPONSE: _again(PublicCode.GW_5XX, _YES, retries=2),
    ErrorClass.MEDIA_INVALID: _never(PublicCode.GW_4XX, _NO),
    ErrorClass.DB_TRANSIENT: _again(PublicCode.IO_ERROR, _NO, _NEITHER),
    ErrorClass.DB_AMBIGUOUS: _again(PublicCode.IO_ERROR, _MAYBE, _NEITHER),
    ErrorClass.RESOURCE: _again(PublicCode.IO_ERROR, _NO, _NEITHER),
    ErrorClass.BUG: _never(PublicCode.UNKNOWN, _MAYBE),
    ErrorClass.WORKER_LOST: _again(PublicCode.UNKNOWN, _MAYBE),
    ErrorClass.STAGE_MISMATCH: _never(PublicCode.UNKNOWN, _NO),
    ErrorClass.TIMEOUT: _never(PublicCode.EXPIRED, _MAYBE),
    ErrorClass.UNKNOWN: _again(PublicCode.UNKNOWN, _MAYBE),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt ended without a result, and what may follow from it.

    `wait` is how long the service asked callers to wait. `retries`, if set, is this failure's own limit
    on further attempts, below that of the policy. `stack` is for operators and never leaves the dead letter.

    Failures with one `fingerprint` belong together; that of a dead letter is made of its job, its stage, the class and
    the place in the application. `context` says more about this one, as JSON values without secrets: its `place`, and the `request_id` that the service gave it.
    """

    error_class: ErrorClass
    code: PublicCode
    retryable: bool
    message: str
    sent: Sent
    scope: Scope
    verdict: Verdict
    wait: timedelta | None = None
    upstream_status: int | None = None
    retries: int | None = None
    stack: str = ""
    fingerprint: str = ""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, error_class: ErrorClass, message: str) -> Self:
        """Return a failure that means what its class means.

        >>> failure = Failure.of(ErrorClass.NETWORK_TIMEOUT, "no answer within 60 s")
        >>> failure.retryable, str(failure.code), str(failure.sent)
        (True, 'GW_TIMEOUT', 'maybe')
        """
        meaning = MEANINGS[error_class]
        return cls(
            error_class=error_class,
            code=meaning.code,
            retryable=meaning.retryable,
            message=message,
            sent=meaning.sent,
            scope=meaning.scope,
            verdict=meaning.verdict,
            retries=meaning.retries,
            fingerprint=fingerprint_of(error_class),
        )

    def summary(self) -> dict[str, Any]:
        """Return the small part that belongs into a job's history: no stack, no context."""
        return {
            "error_class": self.error_class.value,
            "code": self.code.value,
            "message": self.message,
            "retryable": self.retryable,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as JSON values, lengths in seconds."""
        return self.summary() | {
            "sent": self.sent.value,
            "scope": self.scope.value,
            "verdict": self.verdict.value,
            "wait": None if self.wait is None else self.wait.total_seconds(),
            "upstream_status": self.upstream_status,
            "retries": self.retries,
            "stack": self.stack,
            "fingerprint": self.fingerprint,
            "context": dict(self.context),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also if a newer or an older version of the library wrote it.

        An unknown class reads as `UNKNOWN`, an unknown field is ignored, a missing one has its class's meaning.
        """
        failure = cls.of(
            _member(ErrorClass, stored.get("error_class"), ErrorClass.UNKNOWN), str(stored.get("message", ""))
        )
        wait, context = stored.get("wait"), stored.get("context")
        return replace(
            failure,
            code=_member(PublicCode, stored.get("code"), failure.code),
            retryable=bool(stored.get("retryable", failure.retryable)),
            sent=_member(Sent, stored.get("sent"), failure.sent),
            scope=_member(Scope, stored.get("scope"), failure.scope),
            verdict=_member(Verdict, stored.get("verdict"), failure.verdict),
            wait=None if wait is None else timedelta(seconds=wait),
            upstream_status=stored.get("upstream_status"),
            retries=stored.get("retries", failure.retries),
            stack=str(stored.get("stack", "")),
            fingerprint=str(stored.get("fingerprint", failure.fingerprint)),
            context=dict(context) if isinstance(context, Mapping) else {},
        )


def fingerprint_of(error_class: ErrorClass, location: str = "", *, job: str = "", stage: str = "") -> str:
    """Return what is common to failures of one class that were met at one location in the code, by one stage of one job.

    Without the job, all that timed out anywhere would be one group: a timeout has no location in the application.

    >>> fingerprint_of(ErrorClass.BUG, "shop.jobs:grade")
    '6f2ffb45'
    >>> fingerprint_of(ErrorClass.BUG, "shop.jobs:grade", job="grade", stage="read")
    'aad3e1a4'
    """
    parts = f"{error_class.value} {location}" + (f"\n{job}\n{stage}" if job else "")
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:8]


def worker_lost() -> Failure:
    """Return the failure of an attempt whose worker was lost."""
    return Failure.of(ErrorClass.WORKER_LOST, "the worker was lost during the attempt")


def begun_attempts(claimed: int, failure: Failure | None) -> int:
    """Count the attempts that were begun, of those that were *claimed*: the last claim of a lost job runs nothing.

    >>> begun_attempts(4, worker_lost()), begun_attempts(3, None)
    (3, 3)
    """
    lost = failure is not None and failure.error_class is ErrorClass.WORKER_LOST
    return claimed - 1 if lost else claimed


def stage_mismatch(message: str) -> Failure:
    """Return the failure of a job whose stored stages do not fit its code any more."""
    return Failure.of(ErrorClass.STAGE_MISMATCH, message)


def not_awaited(stages: Iterable[str]) -> Failure:
    """Return the failure of a job whose function ended without awaiting these stages: they never ran.

    >>> not_awaited(["send"]).message
    "stage 'send' was called and never awaited, so it did not run; write `await send(...)`"
    """
    names = sorted(set(stages))
    listed = ", ".join(map(repr, names))
    called = f"stage {listed} was" if len(names) == 1 else f"the stages {listed} were"
    ran = "it" if len(names) == 1 else "they"
    failure = Failure.of(
        ErrorClass.BUG,
        f"{called} called and never awaited, so {ran} did not run; write `await {names[0]}(...)`",
    )
    return replace(failure, fingerprint=fingerprint_of(ErrorClass.BUG, f"not awaited: {listed}"))


def rolled_back() -> Failure:
    """Return the failure of a job whose function completed it in a transaction that was not committed."""
    return Failure.of(
        ErrorClass.CONFLICT,
        "the function returned, and the transaction in which it completed its job was rolled back or is still open; "
        "commit it before the function returns",
    )


def deadline_passed(job: str = "") -> Failure:
    """Return the failure of a job that had not ended at its deadline.

    Its fingerprint is readable, since the database composes it where no worker does.

    >>> deadline_passed("grade").fingerprint
    'TIMEOUT:grade'
    """
    failure = Failure.of(ErrorClass.TIMEOUT, "the deadline passed before the job was done")
    return replace(failure, fingerprint=f"{ErrorClass.TIMEOUT}:{job}") if job else failure


def timed_out(after: timedelta) -> Failure:
    """Return the failure of a stage that was stopped at its timeout.

    >>> timed_out(timedelta(seconds=90)).message
    'no result within 90 s'
    """
    return Failure.of(ErrorClass.NETWORK_TIMEOUT, f"no result within {after.total_seconds():g} s")


def over_time_limit() -> Failure:
    """Return the failure of an attempt that has reached the time limit of the Celery worker that it ran in.

    >>> over_time_limit().retryable
    True
    """
    return Failure.of(ErrorClass.NETWORK_TIMEOUT, "the soft time limit of the Celery worker was exceeded")


_Member = TypeVar("_Member", bound=StrEnum)


def _member(kind: type[_Member], value: object, otherwise: _Member) -> _Member:
    return next((member for member in kind if member.value == value), otherwise)
