"""The settings of an arq worker that takes calls which other programs have enqueued."""

from collections.abc import Sequence
from typing import Any, ClassVar

from arq.worker import Function, func

from holdfast.app import Holdfast, JobFunction
from holdfast.arq.intake.enqueued_call import EnqueuedBody, load_body
from holdfast.arq.intake.intake import Intake
from holdfast.arq.protocol import ENQUEUE_QUEUE, TAKE, dump_json
from holdfast.arq.redis_client import redis_settings
from holdfast.arq.settings_class import fill, hold_of, hooks, refuse_own
from holdfast.core.errors import ConfigError
from holdfast.core.names import ensure_name

MOST_TRIES = 1_000
"""Tries of a call, by kills and cancellations; waiting for the database costs none."""

IN_FLIGHT = 100
"""Calls that are stored at a time."""

SHUTDOWN_WAIT = 10
"""Seconds for what is being stored when the intake is stopped."""

_ITS_OWN = "an intake only stores calls"
REFUSED = {
    "functions": f"{_ITS_OWN}; name those that may be called in jobs =",
    "cron_jobs": f"{_ITS_OWN}; give cron jobs to another worker",
    "job_serializer": "calls are read as JSON",
    "job_deserializer": "calls are read as JSON, and refused ones become dead letters",
    "job_timeout": "arq deletes a call that exceeds it",
    "max_tries": "arq deletes a call that exceeds them",
    "retry_jobs": "arq would delete calls that are interrupted",
    "keep_result": "results are in the database",
    "keep_result_forever": "results are in the database",
    "allow_abort_jobs": "jobs are cancelled with hold.cancel(…)",
}


class IntakeSettings:
    """The base of a class that the command `arq` runs: its worker makes durable jobs of calls in a queue of Redis.

    *hold* is the Holdfast of the application, and *jobs* are those that may be called. *redis_settings* are
    `RedisSettings` or an address, and *queue_name* is the sorted set, by default arq's own. `on_startup`, `on_shutdown`
    and `max_jobs` may be set as ever.

        class Intake(holdfast.arq.IntakeSettings):
            hold = hold
            jobs = [grade]
            redis_settings = "redis://localhost:6379/0"

    Define it where the application's jobs are declared: a worker replays refused calls with what it says. A mistake
    raises `ConfigError` where the class is defined.
    """

    hold: ClassVar[Holdfast]
    jobs: ClassVar[Sequence[JobFunction[..., Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_own(cls, REFUSED)
        hold, given = hold_of(cls), vars(cls)
        queue = ensure_name(given.get("queue_name", ENQUEUE_QUEUE), "queue")
        intake = Intake(hold, queue, _jobs_of(cls))
        hold._add_consumer(intake.spec)
        fixed: dict[str, Any] = {
            "functions": [_take_function(intake)],
            **hooks(intake, cls),
            "job_serializer": dump_json,
            "job_deserializer": load_body,
            "job_timeout": None,  # no limit of arq's; its mark that a call is in progress lives for 10 s then
            "max_tries": MOST_TRIES,
            "keep_result": 0,
            "queue_name": queue,
        }
        if "redis_settings" in given:
            fixed["redis_settings"] = redis_settings(given["redis_settings"])
        defaults = {"max_jobs": IN_FLIGHT, "poll_delay": 0.05, "job_completion_wait": SHUTDOWN_WAIT}
        fill(cls, fixed, defaults)


def _jobs_of(settings: type) -> Sequence[JobFunction[..., Any]]:
    jobs = getattr(settings, "jobs", ())
    if not jobs or not all(isinstance(job, JobFunction) for job in jobs):
        raise ConfigError(
            f"{settings.__name__} needs the jobs that other programs may call, made with @hold.job: jobs = [grade]"
        )
    return tuple(jobs)


def _take_function(intake: Intake) -> Function:
    async def take(ctx: dict[Any, Any], body: EnqueuedBody) -> str:
        return await intake.take(ctx, body)

    return func(take, name=TAKE)
