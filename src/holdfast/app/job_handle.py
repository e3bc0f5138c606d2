"""A job that was submitted, seen from outside."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.durations import Duration
from holdfast.core.errors import JobCancelled, JobFailed
from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import End, Event, Job, Receipt
from holdfast.core.jobs.states import Status
from holdfast.engine.operations.store_access import in_sync

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class JobHandle(Generic[R_co]):
    """A submitted job.

    `existing` is true if an earlier job has the same key or subject, and nothing was stored; `payload_differs` is true
    if that job was submitted with other arguments.
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
        """Wait for the job to end, and return its result with the type that its function declares.

        Raises `JobFailed`, `JobCancelled`, or `ResultTimeout` after *timeout*; the job then continues. Inside
        another job, that job is parked meanwhile, and occupies no worker.
        """
        return self._value(await self._hold._end_of(self.id, timeout))  # type: ignore[no-any-return]  # restored by annotation

    async def read(self) -> Job:
        """Read the job as it is in the store now: its `status`, `attempt`, `result` and the rest."""
        return await self._hold.read(self.id)

    async def events(self) -> list[Event]:
        """Read the job's history, in order."""
        return await self._hold.events(self.id)

    async def cancel(self) -> Status:
        """Cancel the job if it waits, or request its worker to stop it.

        Returns `cancelled`, or `processing` if the worker was requested to stop it; the job may still complete
        before it stops. Raises `StateRefused` if the job had ended.
        """
        return await self._hold.cancel(self.id)

    async def retry(self) -> Job:
        """Queue the job again after it failed, with all of its attempts; finished stages are kept."""
        return await self._hold.retry(self.id)

    result_sync = in_sync(result)
    read_sync = in_sync(read)
    events_sync = in_sync(events)
    cancel_sync = in_sync(cancel)
    retry_sync = in_sync(retry)

    def _run_sync(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        return self._hold._portal.run(
            method, lambda hold: call(JobHandle(hold, Receipt(self.id), name=self.name))
        )

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
