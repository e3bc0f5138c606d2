"""Runs jobs on the Celery workers that a team already has.

`CeleryTransport` sends the jobs of a queue to the workers, and `install` makes an existing Celery app run them. Only
the ids of jobs travel: arguments and results stay in the database. `durable` makes a task that the team has a job,
and leaves the code that calls it as it is.
"""

from holdfast.celery.dispatching.celery_transport import CeleryTransport
from holdfast.celery.recommended_settings import RECOMMENDED_SETTINGS
from holdfast.celery.running.installation import install
from holdfast.celery.tasks.beat import take_over_beat
from holdfast.celery.tasks.durable_result import DurableResult
from holdfast.celery.tasks.durable_task import durable

__all__ = ["RECOMMENDED_SETTINGS", "CeleryTransport", "DurableResult", "durable", "install", "take_over_beat"]
