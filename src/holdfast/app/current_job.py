"""The job that the running code belongs to, if it can be parked."""

from typing import TYPE_CHECKING

from holdfast.core.errors import ConfigError
from holdfast.engine.execution.context import CALLING, CURRENT, STAGE
from holdfast.ports import Store

if TYPE_CHECKING:
    from holdfast.engine.execution.job_context import JobContext


def job_that_can_wait(store: Store) -> "JobContext | None":
    """Return the running job of *store* if it can be parked here; inside a stage or a provider call it cannot."""
    running = CURRENT.get()
    if running is None or not running.is_kept_by(store):
        return None
    if STAGE.get() is not None or CALLING.get():
        return None
    return running


def require_job(store: Store, method: str) -> "JobContext":
    """Return the running job that can be parked here. Raises `ConfigError` if there is none."""
    running = job_that_can_wait(store)
    if running is None:
        raise ConfigError(
            f"{method} was called outside a job's function; call it there, and not inside a stage or a permit's block"
        )
    return running
