"""What the code of a durable task raises, as the engine understands it."""

from datetime import datetime
from typing import Any, NoReturn

from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

from holdfast.core.durations import LONGEST
from holdfast.core.errors import ConfigError, HoldfastError, Permanent, Retryable
from holdfast.core.failures.classifier import Classifier


class RetryLater(Retryable, Retry):
    """Raised by `self.retry(...)` of a durable task: Celery's `Retry`, and `Retryable` for the engine."""

    def __init__(self, message: str, *, seconds: float, exc: BaseException | None) -> None:
        Retry.__init__(self, message, exc=exc, when=seconds)
        Retryable.__init__(self, message, after=min(max(seconds, 0.0), LONGEST.total_seconds()))
        self.__cause__ = exc


class Exhausted(Permanent):
    """Ends a job whose task has no retry left, although the job has attempts."""


def retry_later(
    task: Any,
    *,
    now: datetime,
    exc: BaseException | None,
    throw: bool,
    eta: datetime | None,
    countdown: float | None,
    max_retries: int | None,
) -> RetryLater:
    """Do what `self.retry(...)` of Celery does, for an attempt at a job.

    Raises `RetryLater`, or returns it without *throw*. Raises *exc*, or `MaxRetriesExceededError`, if there is no
    retry left.
    """
    most = task.max_retries if max_retries is None else max_retries
    request = task.request
    if most is not None and request.retries >= most:
        raise exc or MaxRetriesExceededError(f"Can't retry {task.name}[{request.id}]")
    if eta is not None:
        seconds = (eta - now).total_seconds()
    else:
        seconds = float(task.default_retry_delay if countdown is None else countdown)
    message = "" if exc is None else f"{type(exc).__name__}: {exc}"
    later = RetryLater(message or "the task asked for a retry", seconds=seconds, exc=exc)
    if throw:
        raise later
    return later


def translate(error: Exception, classifier: Classifier) -> NoReturn:
    """Raise what *error*, raised by a task as Celery knows it, means to the engine.

    As with Celery, the task's code decides: what it neither retries nor lists in `autoretry_for` ends the job. An
    exception of Holdfast's own says itself what it means.
    """
    match error:
        case ConfigError():
            raise Permanent(str(error)) from error
        case HoldfastError() | Ignore():
            raise error
        case Reject() if error.requeue:
            raise Retryable(f"rejected: {error.reason}") from error
        case Reject():
            raise Permanent(f"rejected: {error.reason}") from error
        case _:
            failure = classifier.classify_without_text(error).failure
            raise Permanent(
                f"{type(error).__name__}: {error}", error_class=failure.error_class, code=failure.code
            ) from error
