"""The settings of a Celery app that go with durable jobs, and what is wrong with those of an app."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from celery import Celery

RECOMMENDED_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "timezone": "UTC",
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_acks_on_failure_or_timeout": True,
        "worker_prefetch_multiplier": 1,
        "broker_connection_retry_on_startup": True,
        # These two belong to a task, and are no settings of Celery 5.
        "task_annotations": {"*": {"max_retries": 3, "default_retry_delay": 2}},
    }
)
"""Use it as `app.conf.update(RECOMMENDED_SETTINGS)`, before or after settings of your own."""

NO_SETTINGS = ("task_max_retries", "task_default_retry_delay")
PICKLES = frozenset({"pickle", "application/x-python-serialize"})
JSONS = frozenset({"json", "application/json"})
GREEN_POOLS = ("gevent", "eventlet")

VISIBILITY_SECONDS = 3600
"""After this time Redis delivers a message again that was not acknowledged, unless it is set otherwise."""


class SettingsProblem(NamedTuple):
    """A setting of an app, and what to do about it."""

    setting: str
    advice: str
    fatal: bool = False
    """Whether it keeps jobs from running."""


def check_settings(app: Celery) -> list[SettingsProblem]:
    """Return what is wrong with the settings of an app, the worst first."""
    problems = [*_content(app), *_retries(app), *_acknowledging(app)]
    return sorted(problems, key=lambda problem: not problem.fatal)


def green_pool(pool: object) -> str | None:
    """Return the name of a pool whose tasks are no threads; `None` for the others."""
    return next((name for name in GREEN_POOLS if name in str(pool)), None)


def _content(app: Celery) -> Iterator[SettingsProblem]:
    accepted = {str(kind) for kind in app.conf.accept_content or ()}
    if JSONS.isdisjoint(accepted):
        yield SettingsProblem(
            "accept_content",
            "it has no 'json', so workers would delete every dispatch; add 'json'",
            fatal=True,
        )
    if not PICKLES.isdisjoint(accepted) or app.conf.task_serializer in PICKLES:
        yield SettingsProblem(
            "accept_content",
            "it has 'pickle', with which a client of the broker can run any code in the workers; use json alone",
        )
    pool = green_pool(app.conf.worker_pool)
    if pool is not None:
        yield SettingsProblem(
            "worker_pool", f"jobs do not run in a {pool} pool; use prefork or threads", fatal=True
        )


def _retries(app: Celery) -> Iterator[SettingsProblem]:
    for name in NO_SETTINGS:
        if name in app.conf:
            attribute = name.removeprefix("task_")
            yield SettingsProblem(
                name,
                f"Celery 5 has no such setting, and ignores it; set {attribute} on the task, or in "
                f"task_annotations={{'*': {{'{attribute}': …}}}}",
            )


def _acknowledging(app: Celery) -> Iterator[SettingsProblem]:
    conf = app.conf
    if conf.task_acks_late and not conf.task_acks_on_failure_or_timeout and conf.task_time_limit:
        yield SettingsProblem(
            "task_acks_on_failure_or_timeout",
            "with False and task_time_limit, a task that always reaches the limit is delivered again for ever; set "
            "True. The task of Holdfast has a rule of its own, which ends",
        )
    if not conf.task_acks_late:
        yield SettingsProblem(
            "task_acks_late",
            "without it a task whose worker dies is lost; jobs of Holdfast are not, whatever it is",
        )
    if conf.worker_prefetch_multiplier != 1:
        yield SettingsProblem(
            "worker_prefetch_multiplier",
            f"with {conf.worker_prefetch_multiplier}, a process keeps messages behind a long task while others are "
            "idle; set 1",
        )
    if str(conf.broker_url or "").startswith(("redis", "valkey")):
        yield from _visibility(app)


def _visibility(app: Celery) -> Iterator[SettingsProblem]:
    seconds = (app.conf.broker_transport_options or {}).get("visibility_timeout", VISIBILITY_SECONDS)
    if app.conf.task_time_limit and seconds <= app.conf.task_time_limit:
        yield SettingsProblem(
            "broker_transport_options",
            f"visibility_timeout={seconds} is not above task_time_limit={app.conf.task_time_limit}, so a task that "
            "runs longer is delivered again while it runs; raise it",
        )
