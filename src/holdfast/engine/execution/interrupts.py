"""Why an attempt ends before its function does, and the exceptions that unwind the function then."""

from enum import StrEnum

from holdfast.core.failures.failure import Failure


class Interruption(StrEnum):
    """Why the engine stops an attempt from outside."""

    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    REPLACED = "replaced"
    """The same worker has claimed the job again: every write of the older attempt would be fenced."""
    DEADLINE = "deadline"
    TIME_LIMIT = "time limit"
    """The attempt has reached the time limit of the fleet's worker that it runs in."""


class Interrupted(BaseException):
    """Unwinds the job's function when the job is parked or held, or a stage is retried later.

    Not an `Exception`: code that catches those would hide a retry that has budget left.
    """

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class LeaseLost(BaseException):
    """Unwinds the job's function when its lease is lost: another worker may have the job."""
