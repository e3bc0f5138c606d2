"""What unwinds a job's function when its attempt is over before the function is."""

from holdfast.core.failures import Failure


class Interrupted(BaseException):
    """Unwinds the job's function when a stage is to be tried again later.

    Not an `Exception`: code that catches those would hide a retry that has budget left.
    """

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class LeaseLost(BaseException):
    """Unwinds the job's function when another worker has the job now."""
