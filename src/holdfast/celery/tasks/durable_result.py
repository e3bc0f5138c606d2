"""The result of a durable task, as its caller gets it."""

from typing import Any

from celery.backends.base import DisabledBackend
from celery.result import AsyncResult

from holdfast.app import JobHandle
from holdfast.core.jobs.states import Status

STATES = {
    Status.COMPLETED: "SUCCESS",
    Status.FAILED: "FAILURE",
    Status.CANCELLED: "REVOKED",
    Status.PROCESSING: "STARTED",
}


class DurableResult(AsyncResult):
    """An `AsyncResult` with the `job` of the call.

    With a result backend it reads from there, as `AsyncResult(id)` does anywhere. Without one it asks the store.
    """

    def __init__(self, task_id: str, *, job: JobHandle[Any], app: Any, **options: Any) -> None:
        super().__init__(task_id, app=app, **options)
        self.job = job

    def get(self, timeout: float | None = None, **options: Any) -> Any:
        """Wait for the result. Without a backend, raises `JobFailed`, `JobCancelled` or `ResultTimeout`."""
        if isinstance(self.backend, DisabledBackend):
            return self.job.result_sync(timeout)
        return super().get(timeout=timeout, **options)

    @property
    def state(self) -> str:
        if isinstance(self.backend, DisabledBackend):
            return STATES.get(self.job.read_sync().status, "PENDING")
        return str(super().state)

    status = state

    def ready(self) -> bool:
        return self.state in ("SUCCESS", "FAILURE", "REVOKED")

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def revoke(self, *_: Any, **__: Any) -> None:
        """Cancel the job: it does not start, or stops."""
        if self.job.cancel_sync() is Status.CANCELLED and not isinstance(self.backend, DisabledBackend):
            self.backend.mark_as_revoked(self.id, "cancelled")
