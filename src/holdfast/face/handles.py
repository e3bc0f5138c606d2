"""A job that was submitted, seen from outside."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.durations import Duration
from holdfast.core.errors import JobCancelled, JobFailed
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import End, Event, Job, Receipt
from holdfast.core.jobs.states import Status
from holdfast.face.sync import Portal, in_sync

if TYPE_CHECKING:
    from holdfast.face.holdfast import Holdfast

R_co = TypeVar("R_co", covariant=True)


class JobHandle(Generic[R_co]):
    """A submitted job.

    `existing` says that an earlier job stands for this submission; `payload_differs` that it was
    submitted with other arguments.
    """

    __slots__ = ("_hold", "existing", "id", "name", "payload_differs")

    def __init__(self, hold: "Holdfast", receipt: Receipt, *, name: str) -> None:
        self._hold = hold
        self.id = receipt.id
        self.name = name
        self.existing = receipt.existing
        self.payload_differs = receipt.payload_differs

    def __repr__(self) -> str:
        return f"<job {self.name!r} {self.id}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job to end and give what it returned, with the type that it declares.

        Raises `JobFailed`, `JobCancelled`, or `ResultTimeout` after *timeout*; the job then goes on. Inside
        another job, that one waits without a worker.
        """
        return self._value(await self._hold._end_of(self.id, timeout))  # type: ignore[no-any-return]  # restored by annotation

    async def read(self) -> Job:
        """Read the job as it is in the store now: its `status`, `attempt`, `result` and the rest."""
        return await self._hold.read(self.id)

    async def events(self) -> list[Event]:
        """Read the job's history, in order."""
        return await self._hold.events(self.id)

    async def cancel(self) -> Status:
        """End the job if it waits, or ask its worker to stop it.

        Returns `cancelled`, or `processing` if the worker was asked; the job may still complete
        before it stops. Raises `StateRefused` if the job had ended.
        """
        return await self._hold.cancel(self.id)

    async def retry(self) -> Job:
        """Bring the job back after it failed, from the stage that failed, with fresh attempts."""
        return await self._hold.retry(self.id)

    result_sync = in_sync(result)
    read_sync = in_sync(read)
    events_sync = in_sync(events)
    cancel_sync = in_sync(cancel)
    retry_sync = in_sync(retry)

    @property
    def _portal(self) -> Portal:
        return self._hold._portal

    def _on(self, hold: "Holdfast") -> "JobHandle[R_co]":
        return JobHandle(hold, Receipt(self.id), name=self.name)

    def _value(self, job: Job | End) -> Any:
        match job.status:
            case Status.COMPLETED:
                return self._hold._loaded(job.name, job.result)
            case Status.CANCELLED:
                raise JobCancelled(f"job {job.id} was cancelled")
            case _:
                raise JobFailed(
                    job.failure or Failure.of(ErrorClass.UNKNOWN, f"job {job.id} is {job.status}")
                )
