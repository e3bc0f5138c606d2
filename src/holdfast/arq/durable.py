"""Makes a durable job of an existing arq function, one function at a time.

Callers go on with `await redis.enqueue_job("grade", …)`. The worker that has always run the function now submits a job,
whose key is the arq id, and the job runs the function on the workers of its queue.
"""

import inspect
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Protocol, cast

from arq.utils import timestamp_ms, to_unix_ms
from arq.worker import Retry
from redis.exceptions import RedisError

from holdfast.app import Holdfast, JobFunction
from holdfast.arq.intake.enqueued_call import chosen_lifetime_ms
from holdfast.arq.protocol import job_key, retry_key
from holdfast.arq.worker_context import context_of_attempt
from holdfast.core.errors import ConfigError, Retryable, StoreUnavailable, SubmitError

AGAIN_AFTER = timedelta(seconds=5)
"""When arq calls again while the database is unavailable."""

ArqFunction = Callable[..., Awaitable[Any]]
"""An async function whose first parameter is the context of an arq worker."""


class DurableFunction(Protocol):
    """A function for `functions` and `cron_jobs` of an arq worker. In its place it submits *job*."""

    __qualname__: str
    job: JobFunction[..., Any]

    async def __call__(self, ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Submit a job, or run the function where no arq worker calls it."""
        ...


def durable(
    hold: Holdfast, *, name: str | None = None, queue: str, share: float = 1.0, **options: Any
) -> Callable[[ArqFunction], DurableFunction]:
    """Make a durable job of an arq function: a decorator, whose removal undoes it.

    The job is run by the workers of *queue*, with *options* as for `hold.job`. A *share* of the calls becomes jobs, chosen
    by their arq ids; the others run as before. `_job_id` is the job's key, `_expires` its deadline, and `Retry(defer=…)`
    a retry by the engine. The context has `job_id`, `job_try`, and what an arq worker of the queue has in it.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share={share!r} must be a fraction of the calls, from 0 to 1")

    def decorate(function: ArqFunction) -> DurableFunction:
        if not inspect.iscoroutinefunction(function):
            raise ConfigError(f"durable() decorates {function!r}; give it an async function of (ctx, …)")
        job = hold.job(name or function.__qualname__, queue=queue, **options)(
            _without_context(hold, function)
        )

        @wraps(function)
        async def submit(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> Any:
            arq_id = ctx.get("job_id")
            if arq_id is None or not is_chosen(arq_id, share):
                return await function(ctx, *args, **kwargs)
            try:
                made = job.options(key=arq_id, deadline_at=await _deadline_of(ctx, arq_id))
                return (await made.submit(*args, **kwargs)).id
            except SubmitError as error:
                hold.runtime.logger.warning(
                    "call not durable", name=job.name, arq_id=arq_id, message=hold.runtime.describe(error)
                )
                return await function(ctx, *args, **kwargs)
            except StoreUnavailable as error:
                # It counts as no try: arq would give the call up after a few.
                with suppress(RedisError, OSError):
                    await ctx["redis"].delete(retry_key(arq_id))
                raise Retry(defer=AGAIN_AFTER) from error

        found = cast("DurableFunction", submit)
        found.job = job
        return found

    return decorate


def is_chosen(arq_id: str, share: float) -> bool:
    """Whether a call belongs to the *share* that becomes jobs: the same each time it is delivered.

    >>> [is_chosen("an id", share) for share in (0, 1)]
    [False, True]
    """
    return zlib.crc32(arq_id.encode()) < share * 2**32


def _without_context(hold: Holdfast, function: ArqFunction) -> Callable[..., Awaitable[Any]]:
    """Return the function of the job: with the parameters after the context, and with arq's `Retry` as the engine's."""
    signature = inspect.signature(function)
    context, *parameters = signature.parameters.values()

    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(context_of_attempt(hold), *args, **kwargs)
        except Retry as retry:
            after = timedelta(milliseconds=retry.defer_score or 0)
            raise Retryable("the function asked for a retry", after=after) from retry

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what `inspect` reads first
    run.__annotations__ = {k: v for k, v in function.__annotations__.items() if k != context.name}
    return run


async def _deadline_of(ctx: dict[Any, Any], arq_id: str) -> datetime | None:
    """Return until when the call is worth running, if its caller chose that with `_expires`."""
    now = timestamp_ms()
    lifetime = chosen_lifetime_ms(
        int(await ctx["redis"].pttl(job_key(arq_id))),
        score_ms=ctx["score"],
        enqueued_ms=to_unix_ms(ctx["enqueue_time"]),
        now_ms=now,
    )
    return None if lifetime is None else datetime.fromtimestamp((now + lifetime) / 1000, UTC)
