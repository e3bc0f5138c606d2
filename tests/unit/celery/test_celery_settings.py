"""Settings of a Celery app that do not go with durable jobs are found, and a worker that cannot run them does not start."""

from typing import Any

import pytest
from celery import Celery

from holdfast import Holdfast
from holdfast.celery import RECOMMENDED_SETTINGS, CeleryTransport, install
from holdfast.celery.recommended_settings import check_settings
from holdfast.celery.running.installation import refuse_worker
from holdfast.errors import ConfigError


def an_app(**settings: Any) -> Celery:
    app = Celery("team", broker="memory://", set_as_current=False)
    app.conf.update(RECOMMENDED_SETTINGS)
    app.conf.update(settings)
    return app


def test_the_recommended_settings_have_no_problem_and_set_the_retries_of_each_task() -> None:
    app = an_app()

    @app.task(name="add", shared=False)
    def add() -> None: ...

    assert check_settings(app) == []
    assert (add.max_retries, add.default_retry_delay, add.acks_late) == (3, 2, True)


@pytest.mark.parametrize(
    ("settings", "setting", "advice", "fatal"),
    [
        (
            {"task_max_retries": 3},
            "task_max_retries",
            "set max_retries on the task, or in task_annotations",
            False,
        ),
        (
            {"task_default_retry_delay": 2},
            "task_default_retry_delay",
            "set default_retry_delay on the task",
            False,
        ),
        (
            {"task_acks_on_failure_or_timeout": False, "task_time_limit": 60},
            "task_acks_on_failure_or_timeout",
            "delivered again for ever",
            False,
        ),
        ({"accept_content": ["json", "pickle"]}, "accept_content", "it has 'pickle'", False),
        ({"accept_content": ["yaml"]}, "accept_content", "it has no 'json'", True),
        ({"worker_prefetch_multiplier": 4}, "worker_prefetch_multiplier", "set 1", False),
        ({"task_acks_late": False}, "task_acks_late", "is lost", False),
        ({"worker_pool": "gevent"}, "worker_pool", "do not run in a gevent pool", True),
        (
            {"broker_url": "redis://localhost", "task_time_limit": 7200},
            "broker_transport_options",
            "visibility_timeout=3600 is not above task_time_limit=7200",
            False,
        ),
    ],
)
def test_a_setting_that_does_not_go_with_durable_jobs_is_found(
    settings: dict[str, Any], setting: str, advice: str, fatal: bool
) -> None:
    [problem] = check_settings(an_app(**settings))

    assert (problem.setting, problem.fatal) == (setting, fatal)
    assert advice in problem.advice


@pytest.mark.parametrize("pool", ["celery.concurrency.gevent", "celery.concurrency.eventlet", "gevent"])
def test_a_worker_with_a_pool_of_greenlets_ends_with_one_line(pool: str) -> None:
    with pytest.raises(
        SystemExit, match=r"does not run in a (gevent|eventlet) pool.*--pool=prefork"
    ) as ended:
        refuse_worker(an_app(), pool)

    assert "\n" not in str(ended.value)


def test_the_jobs_of_two_applications_need_two_apps() -> None:
    app, hold = an_app(), Holdfast("sqlite:///unused.db")
    install(app, hold)

    with pytest.raises(ConfigError, match="the Celery app 'team' runs the jobs of a Holdfast already"):
        install(app, hold)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"broker": "localhost"}, "needs a Celery app, or the address of its broker"),
        ({"queue": ""}, "is no name of a Celery queue"),
        ({"slots": 0}, "slots=0 runs nothing"),
        ({"resend": "0s"}, "resend must be positive"),
        ({"resend": "soon"}, "resend: "),
    ],
)
def test_a_transport_that_could_not_work_is_refused_where_it_is_declared(
    options: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        CeleryTransport(**{"broker": "amqp://localhost", **options})
