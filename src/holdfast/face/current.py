"""What a function may ask about the attempt that it runs in."""

from dataclasses import dataclass
from urllib.parse import quote

from holdfast.core.errors import ConfigError
from holdfast.engine.context import CURRENT, STAGE


@dataclass(frozen=True, slots=True)
class Current:
    """The attempt that the running code belongs to; in a stage, `attempt` counts those of the stage.

    `key` is printable ASCII and fit for an `Idempotency-Key` header: the same in every attempt at this
    stage of this job, and no other stage, job or generation has it.
    """

    job_id: str
    attempt: int
    generation: int
    key: str


def current() -> Current:
    """Tell which job, attempt and generation the running code belongs to.

    Send `current().key` along with a call that must not take effect twice: a retry, or another worker
    that takes over after a crash, sends the same one. Raises `ConfigError` outside a job.
    """
    running = CURRENT.get()
    if running is None:
        raise ConfigError("current() was asked outside a job; call it in a job's function or in its stages")
    claim, stage = running.claim, STAGE.get()
    whole_job = f"{claim.id}:{claim.generation}"
    if stage is None:
        return Current(claim.id, claim.attempt, claim.generation, whole_job)
    place = ":".join(quote(part, safe="#") for part in stage.place)
    return Current(claim.id, stage.number, claim.generation, f"{whole_job}:{place}")


def next_key() -> str | None:
    """Give the next submission inside a job a key of its own, the same in every attempt; outside, `None`."""
    running = CURRENT.get()
    if running is None:
        return None
    place = current().key
    return f"{place}:submit#{running.count(place)}"
