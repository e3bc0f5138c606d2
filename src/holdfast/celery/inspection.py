"""What each task of a Celery app would be as a durable job: what maps, and what does not."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from celery import Celery, Task

from holdfast.celery.recommended_settings import PICKLES
from holdfast.celery.tasks.durable_task import HOOKS, durable_task_of

OWN = ("celery.", "holdfast.")


class TaskReport(NamedTuple):
    """A task, and what of it a job has (`maps`), needs a look (`look_at`), or has not (`refused`)."""

    task: str
    durable: bool
    maps: list[str]
    look_at: list[str]
    refused: list[str]


def inspect_tasks(app: Celery) -> list[TaskReport]:
    """Report on the tasks of an app, by name, without those of Celery itself."""
    return [
        TaskReport(
            task=name,
            durable=durable_task_of(task) is not None,
            maps=[*_maps(task)],
            look_at=[*_look_at(app, task)],
            refused=[*_refused(task)],
        )
        for name, task in sorted(app.tasks.items())
        if not name.startswith(OWN)
    ]


def _maps(task: Task) -> Iterator[str]:
    if getattr(task, "__bound__", False) and inspect.ismethod(_function(task)):
        yield "bind: self.request.id, .retries and .task; self.retry()"
    yield f"max_retries={task.max_retries}: {_attempts(task)}"
    if getattr(task, "autoretry_for", ()):
        kinds = ", ".join(kind.__name__ for kind in task.autoretry_for)
        yield f"autoretry_for={kinds}: retried, all other errors end the job"
    if task.time_limit or task.soft_time_limit:
        yield f"time limits (hard {task.time_limit}, soft {task.soft_time_limit}): sent with each dispatch"
    if task.ignore_result:
        yield "ignore_result: the result is in the job, and not in the result backend"


def _look_at(app: Celery, task: Task) -> Iterator[str]:
    if task.serializer in PICKLES:
        yield "serializer=pickle: arguments and results have to be JSON"
    if task.rate_limit:
        yield f"rate_limit={task.rate_limit} is for one worker; declare a provider with a rate for all of them"
    route = app.amqp.router.route({}, task.name).get("queue")
    if route is not None and route.name != app.conf.task_default_queue:
        yield f"it is routed to {route.name!r}; give the job a queue with durable(hold, queue=...)"
    entries = [name for name, entry in app.conf.beat_schedule.items() if entry.get("task") == task.name]
    if entries:
        yield f"beat starts it ({', '.join(sorted(entries))}); take_over_beat(app, hold) makes that a schedule"


def _refused(task: Task) -> Iterator[str]:
    hooks = [name for name in HOOKS if getattr(type(task), name) is not getattr(Task, name)]
    if hooks:
        yield f"{', '.join(hooks)}: a job does not call it"
    if inspect.iscoroutinefunction(_function(task)):
        yield "async: declare it with @hold.job instead"
    used = sorted({"chord", "chain", "group"}.intersection(_names(_function(task))))
    if used:
        yield f"{', '.join(used)} in its code: a durable task cannot be part of one"


def _attempts(task: Task) -> str:
    return "attempts without limit" if task.max_retries is None else f"{task.max_retries + 1} attempts"


def _function(task: Task) -> Any:
    """Return the function of the team's, a bound method if the task is bound."""
    return getattr(task, "_orig_run", task.run)


def _names(function: Any) -> set[str]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return set() if code is None else {*code.co_names, *code.co_freevars}
