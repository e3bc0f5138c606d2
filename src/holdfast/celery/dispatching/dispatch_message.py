"""A dispatch as the Celery message that its fleet receives: a call of `holdfast.run` with the job's id."""

from typing import Any, NamedTuple

from celery import Celery
from celery.utils import uuid
from kombu import serialization

from holdfast.ports.fleets import Dispatch

TASK_NAME = "holdfast.run"
"""The task that runs a job. Its only argument is the job's id: Celery copies arguments into headers, events and logs."""


class DispatchMessage(NamedTuple):
    """A message in version 2 of Celery's protocol."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    body: bytes


def dispatch_message(app: Celery, dispatch: Dispatch) -> DispatchMessage:
    """Return the message for *dispatch*.

    Celery's logs, events and Flower show it under the name of the job, and the job's id as its root. Its own id is
    new each time: Celery ignores a message whose id was revoked, and a job may be dispatched several times. A job that
    is a durable task has the task's time limits.
    """
    task = app.tasks.get(dispatch.name)
    made = app.amqp.as_task_v2(
        uuid(),
        TASK_NAME,
        args=[dispatch.job_id],
        kwargs={},
        root_id=dispatch.job_id,
        shadow=dispatch.name,
        ignore_result=True,
        time_limit=None if task is None else task.time_limit,
        soft_time_limit=None if task is None else task.soft_time_limit,
    )
    content_type, content_encoding, body = serialization.dumps(made.body, serializer="json")
    return DispatchMessage(
        headers=made.headers,
        properties=made.properties,
        content_type=content_type,
        content_encoding=content_encoding,
        body=body if isinstance(body, bytes) else body.encode(),
    )
