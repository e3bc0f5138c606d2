"""What a function can read about the attempt that it runs in."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.aio.coroutines import run_here
from holdfast.core.errors import ConfigError, WithinUnsupported
from holdfast.core.jobs.completion import Completion
from holdfast.core.within import kind_of
from holdfast.engine.execution.context import CURRENT, STAGE
from holdfast.ports import Tracer

if TYPE_CHECKING:
    from holdfast.engine.execution.job_context import JobContext


@dataclass(frozen=True, slots=True)
class Current:
    """The attempt that the running code belongs to; in a stage, `attempt` counts those of the stage.

    `key` is printable ASCII and fit for an `Idempotency-Key` header: the same in every attempt at this
    stage of this job, and no other stage, job or generation has it. `time_left` is the time until the
    job's deadline, if it has one; negative after it. `provider` is the name of the provider that a stage is to call: its
    own, or a backup.
    """

    job_id: str
    attempt: int
    generation: int
    key: str
    time_left: timedelta | None = None
    provider: str | None = None

    async def complete(self, result: Any = None, *, within: Any) -> Completion:
        """End the job with *result* in the transaction of your connection *within*: both are committed, or neither.

        Commit, and return from the function; what it returns then is ignored. After a rollback the job has not ended: call
        this again in another transaction, or raise. A function that returns after a rollback is retried. If the job's
        deadline has passed, it has timed out, and the result is kept as late: the `Completion` has `late`. Raises
        `WithinUnsupported`, `PayloadInvalid`, `StateRefused` if the job has ended, and `ConfigError` inside a stage.
        """
        job = self._require_job("complete")
        with job.completing():
            return await job.complete(result, within)

    def complete_sync(self, result: Any = None, *, within: Any) -> Completion:
        """Do what `complete` does, for plain functions: in this thread, on the plain connection given."""
        job, kind = self._require_job("complete_sync"), kind_of(within)
        if kind.awaits:
            raise WithinUnsupported(
                f"complete_sync() got {kind.value}, which can be used on its event loop only; "
                "write `await current().complete(...)` there"
            )
        return run_here(job.complete(result, within))

    def _require_job(self, method: str) -> "JobContext":
        running = CURRENT.get()
        if running is None or running.claim.id != self.job_id:
            raise ConfigError(f"{method}() was called outside its job; call it in the function of the job")
        return running


def current() -> Current:
    """Return which job, attempt and generation the running code belongs to.

    Send `current().key` with a call that must not take effect twice: a retry, also by another worker after a
    crash, sends the same one. Raises `ConfigError` outside a job.
    """
    running = CURRENT.get()
    if running is None:
        raise ConfigError("current() was asked outside a job; call it in a job's function or in its stages")
    claim, stage = running.claim, STAGE.get()
    attempt, provider = (claim.attempt, None) if stage is None else (stage.number, stage.provider)
    key = _key_here(claim.id, claim.generation)
    return Current(claim.id, attempt, claim.generation, key, running.time_left(), provider)


def _key_here(job_id: str, generation: int) -> str:
    """Return the key of the job, or of its stage, that the running code belongs to."""
    stage = STAGE.get()
    parts = () if stage is None else stage.key
    return ":".join([job_id, str(generation), *(quote(part, safe="#") for part in parts)])


def note(**fields: str | float | bool | None) -> None:
    """Show these fields in the dead letter of the running job, if it leaves one.

    Only those that the `Redactor` allows are kept, redacted: `Redactor(allowed=["order"])`. Raises `ConfigError`
    outside a job.
    """
    running = CURRENT.get()
    if running is None:
        raise ConfigError("note() was called outside a job; call it in a job's function or in its stages")
    running.note(fields)


def trace_here(tracer: Tracer | None) -> str | None:
    """Return the trace context of a submission: that of the running code, or else of the job that makes it."""
    here = None if tracer is None else tracer.here()
    if here is None:
        running = CURRENT.get()
        return None if running is None else running.trace
    return here


def next_key(name: str, owner: str, fingerprint: str) -> str | None:
    """Return a key for the next submission inside a job, the same in every attempt; outside a job, `None`.

    A submission is identified by its arguments, whose *fingerprint* is given, and only among equal ones by
    their order: concurrent code may submit in another order the next time. A later generation that keeps its
    finished stages keeps its submissions, too.
    """
    running = CURRENT.get()
    if running is None:
        return None
    key = _key_here(running.claim.id, running.origin)
    return f"{key}:submit:{fingerprint}#{running.count((key, name, owner, fingerprint))}"


def next_message_key(message_type: str, identity: str) -> str | None:
    """Return a key for the next message inside a job, the same in every attempt; outside a job, `None`.

    A message is known by its *identity*, a fingerprint, as a submission by that of its arguments: see `next_key`.
    """
    running = CURRENT.get()
    if running is None:
        return None
    key = _key_here(running.claim.id, running.origin)
    number = running.count((key, "publish", message_type, identity))
    return f"{key}:publish:{quote(message_type)}:{identity}#{number}"


def ensure_going_on() -> None:
    """Raise `Interrupted` in the code of a job that is being requeued: nothing that it does may take effect."""
    running = CURRENT.get()
    if running is not None:
        running.ensure_going_on()
