"""What a log line about a job says beside its id."""

from holdfast.core.errors import HoldfastError
from holdfast.ports import Store


async def name_and_queue(store: Store, job_id: str) -> dict[str, str]:
    """Read the name and the queue of a job for a log line; empty if that is not possible now.

    What the line reports has been written: that its job cannot be read is no reason to fail.
    """
    try:
        job = await store.get(job_id)
    except HoldfastError:
        return {}
    return {"name": job.name, "queue": job.queue}
