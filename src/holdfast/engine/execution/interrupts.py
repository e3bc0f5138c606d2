"""The exceptions that unwind a job's function when its attempt ends before the function does."""

from holdfast.core.failures.failure import Failure


class Interrupted(BaseException):
    """Unwinds the job's function when the job is parked or held, or a stage is retried later.

    Not an `Exception`: code that catches those would hide a retry that has budget left.
    """

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class LeaseLost(BaseException):
    """Unwinds the job's function when its lease is lost: another worker may have the job."""
