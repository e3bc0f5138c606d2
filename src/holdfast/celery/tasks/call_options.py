"""The options of `apply_async` as the options of a submission."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.utils.time import maybe_make_aware

from holdfast.core.errors import ConfigError

SUBJECT = "celery:"
"""Before a task id that a caller has chosen, as the subject of its job: there the worker finds it again."""

WORKFLOW = {
    "link": "link=",
    "link_error": "link_error=",
    "chain": "a chain",
    "chord": "a chord",
    "group_id": "a group",
}
"""Options that make a call part of a workflow of Celery, and what to call it."""

UNMAPPED = ("time_limit", "soft_time_limit", "exchange", "routing_key")
"""Options that would be lost without notice. Those about the message itself, such as headers, have no meaning here."""


def refuse_workflow(task: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a call is part of a workflow: Celery would wait for a message that never comes."""
    for option, what in WORKFLOW.items():
        if options.get(option):
            raise ConfigError(
                f"task {task!r} is durable and cannot be used with {what}; submit the next job inside the task, or wait "
                "for several with job handles, and nothing was sent"
            )


def submit_options(
    app: Celery, task: str, options: Mapping[str, Any], *, task_id: str | None, queues: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a submission that mean the same as those of a call. Raises `ConfigError`."""
    _refuse_unmapped(task, options)
    made: dict[str, Any] = {}
    if task_id is not None:
        made |= {"key": task_id, "subject": f"{SUBJECT}{task_id}", "version": 1}
    if options.get("eta") is not None:
        made["run_at"] = _instant(app, options["eta"])
    elif options.get("countdown"):
        made["delay"] = timedelta(seconds=max(float(options["countdown"]), 0.0))
    expires = options.get("expires")
    if isinstance(expires, int | float):
        made["deadline"] = timedelta(seconds=expires)
    elif expires is not None:
        made["deadline_at"] = _instant(app, expires)
    if options.get("priority") is not None:
        made["priority"] = _priority(app, options["priority"])
    if options.get("queue") is not None:
        made["queue"] = _queue(task, options["queue"], queues)
    if options.get("within") is not None:
        made["within"] = options["within"]
    return made


def _refuse_unmapped(task: str, options: Mapping[str, Any]) -> None:
    for option in UNMAPPED:
        if options.get(option) is not None:
            raise ConfigError(
                f"task {task!r} is durable, and {option}= of a single call is not supported; set it where the task is "
                "declared, or leave it out"
            )


def _instant(app: Celery, given: Any) -> datetime:
    instant = datetime.fromisoformat(given) if isinstance(given, str) else given
    aware: datetime = maybe_make_aware(instant, app.timezone)
    return aware


def _priority(app: Celery, priority: int) -> int:
    """Return a priority of which the highest runs first, as with RabbitMQ; Redis takes the lowest first."""
    return -priority if str(app.conf.broker_url or "").startswith(("redis", "valkey")) else priority


def _queue(task: str, queue: Any, queues: Mapping[str, Any]) -> str:
    name = str(getattr(queue, "name", queue))
    if name not in queues:
        known = ", ".join(sorted(queues)) or "none"
        raise ConfigError(
            f"task {task!r} was called with queue={name!r}, for which no transport is declared (declared: {known}); "
            f"declare hold.queue({name!r}, transport=...), or call it without queue="
        )
    return name
