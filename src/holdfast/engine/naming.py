"""The name and the queue of a job, for log lines that have only its id."""

from holdfast.core.errors import HoldfastError
from holdfast.ports import Store


async def name_and_queue(store: Store, job_id: str) -> dict[str, str]:
    """Read the name and the queue of a job for a log line; empty if the job cannot be read.

    What the line reports is written already: a failed read must not fail the caller.
    """
    try:
        job = await store.get(job_id)
    except HoldfastError:
        return {}
    return {"name": job.name, "queue": job.queue}
