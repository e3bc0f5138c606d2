"""The module that arq, Celery and `holdfast dispatch` load: `WorkerSettings`, `app` and `hold`."""

import os
from typing import Any

from celery import Celery, signals

import holdfast.arq
from holdfast.celery import install
from tests.acceptance.harness.essays import ARQ_JOBS, build
from tests.run_with_parent import end_with_parent

hold = build(
    os.environ["DATABASE_URL"],
    redis_url=os.environ["ESSAYS_REDIS"],
    broker_url=os.environ["ESSAYS_RABBITMQ"],
    service_url=os.environ["ESSAYS_SERVICE"],
).hold

app = Celery("essays", broker=os.environ["ESSAYS_RABBITMQ"])
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=5,
)
install(app, hold)


def _end_with_worker(**_: Any) -> None:
    """End a child when its worker has ended: it would wait for ever, should the run be killed."""
    end_with_parent()


signals.worker_process_init.connect(_end_with_worker)


class WorkerSettings(holdfast.arq.Settings):
    hold = hold
    max_jobs = ARQ_JOBS
