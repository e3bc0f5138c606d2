"""The settings of an arq worker that runs dispatched jobs."""

from datetime import timedelta
from typing import Any, ClassVar

from arq.worker import Function, func

from holdfast.app import Holdfast
from holdfast.arq.arq_transport import ArqTransport
from holdfast.arq.protocol import RUN, dump_json, load_json
from holdfast.arq.running.dispatch_runner import DispatchRunner
from holdfast.arq.settings_class import Hook, fill, hold_of, hooks, refuse_own
from holdfast.core.errors import ConfigError

LONGEST_RUN = timedelta(days=30)
"""arq's own time limit for a dispatch, which no job reaches: timeouts and deadlines are the engine's."""

REFUSED = {
    "job_serializer": "dispatches are JSON, and a worker has one serialiser",
    "job_deserializer": "dispatches are JSON, and a worker has one serialiser",
    "max_tries": "the engine retries jobs; give a function of your own its tries with func(…, max_tries=…)",
    "keep_result": "results are in the database; give a function of your own another time with func(…, keep_result=…)",
    "keep_result_forever": "results are in the database",
    "allow_abort_jobs": "jobs are cancelled with hold.cancel(…)",
    "retry_jobs": "the engine retries jobs",
}


class Settings:
    """The base of a class that the command `arq` runs: its worker runs the jobs that are dispatched to it.

    *hold* is the Holdfast of the application. Redis and queue are those of the `ArqTransport` that the application
    declares; if it declares several, set *transport*. Everything else that arq knows may be set as ever: `functions`,
    `cron_jobs`, `on_startup`, `on_shutdown`, `max_jobs`, `ctx`. Functions take and return JSON. On SIGTERM, jobs may
    finish for `job_completion_wait` seconds, then they are released with their attempt.

        class WorkerSettings(holdfast.arq.Settings):
            hold = hold
            max_jobs = 10

    A mistake raises `ConfigError` where the class is defined.
    """

    hold: ClassVar[Holdfast]
    transport: ClassVar[ArqTransport]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_own(cls, REFUSED)
        hold, given = hold_of(cls), vars(cls)
        transport = _transport_of(cls, hold)
        max_jobs = given.get("max_jobs", transport.slots)
        queue = given.get("queue_name", transport.queue)
        runner = DispatchRunner(hold, queue, slots=max_jobs)
        run, around = _run_function(runner), hooks(runner, cls)
        fixed: dict[str, Any] = {
            "functions": [*given.get("functions", ()), run],
            "on_startup": _lift_time_limit(run, around["on_startup"]),
            "on_shutdown": around["on_shutdown"],
            "job_serializer": dump_json,
            "job_deserializer": load_json,
            "max_tries": 1,
            "keep_result": 0,
            "allow_abort_jobs": False,
        }
        defaults = {
            "redis_settings": transport.redis_settings,
            "queue_name": queue,
            "max_jobs": max_jobs,
            "poll_delay": 0.05,
            "job_completion_wait": round(hold.settings.worker_options.grace.total_seconds()),
        }
        fill(cls, fixed, defaults)


def _transport_of(settings: type, hold: Holdfast) -> ArqTransport:
    """Return the transport that is given, or the only one that is declared. Raises `ConfigError`."""
    given = getattr(settings, "transport", None)
    if isinstance(given, ArqTransport):
        return given
    declared = {
        id(each): each for each in hold.runtime.registry.transports.values() if isinstance(each, ArqTransport)
    }
    if given is not None or len(declared) != 1:
        raise ConfigError(
            f"{settings.__name__} needs to know its queue: declare one with hold.queue(…, transport=ArqTransport(…)) "
            "before it, or set transport= to one of those declared"
        )
    return next(iter(declared.values()))


def _run_function(runner: DispatchRunner) -> Function:
    async def run(ctx: dict[Any, Any], job_id: str) -> str:
        return await runner.run(ctx, job_id)

    return func(run, name=RUN, max_tries=1, keep_result=0)


def _lift_time_limit(function: Function, start: Hook) -> Hook:
    """Return a hook that gives *function* its time limit, and then calls *start*.

    A worker derives from the longest time limit of its functions, before it calls this hook, how long its marks of calls
    in progress live. The calls of a killed worker, the team's own among them, would be kept from others for as long.
    """

    async def lift(ctx: dict[Any, Any]) -> None:
        function.timeout_s = LONGEST_RUN.total_seconds()
        await start(ctx)

    return lift
