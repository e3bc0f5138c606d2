"""The Celery app of the tests, as a team would have it: `celery -A fleet_app worker`."""

import os
from pathlib import Path

from celery import Celery

from holdfast import Holdfast
from holdfast.celery import CeleryTransport, install, take_over_beat
from tests.integration.celery import fleet_jobs

app = Celery("team", broker=os.environ["FLEET_BROKER"])
app.conf.update(
    task_serializer="json",
    accept_content=[os.environ.get("FLEET_ACCEPT", "json")],
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    broker_connection_timeout=5,
)
hold = Holdfast(os.environ["FLEET_DATABASE"])
hold.queue(
    fleet_jobs.QUEUE,
    transport=CeleryTransport(app, queue=os.environ["FLEET_QUEUE"], slots=4, resend="2s"),
)
log = fleet_jobs.RunLog(Path(os.environ["FLEET_FOLDER"]))
jobs = fleet_jobs.declare(hold, log)
tasks = fleet_jobs.declare_tasks(app, hold, log)
if "FLEET_BEAT" in os.environ:
    app.conf.beat_schedule = {"tick": {"task": "ticking", "schedule": 1.0}}
    take_over_beat(app, hold)
if "FLEET_WITHOUT_HOLDFAST" not in os.environ:
    install(app, hold)


@app.task
def old(number: int) -> int:
    """A task of the team that has nothing to do with Holdfast."""
    (log.folder / f"old-{number}").touch()
    return number
