"""A Celery app with tasks of all kinds, for `holdfast celery inspect`."""

from typing import Any

from celery import Celery, Task, chord

app = Celery("inspected", broker="memory://")
app.conf.task_routes = {"pickled": {"queue": "video"}}
app.conf.beat_schedule = {"nightly": {"task": "pickled", "schedule": 86_400}}


class Hooked(Task):
    def on_failure(self, *_: Any) -> None:
        """What a team does when a task has failed."""


@app.task(
    name="limited",
    shared=False,
    bind=True,
    autoretry_for=(ConnectionError,),
    max_retries=5,
    time_limit=60,
    soft_time_limit=30,
)
def limited(self: Task) -> None: ...


@app.task(name="pickled", shared=False, serializer="pickle", rate_limit="10/m")
def pickled() -> None: ...


@app.task(name="hooked", shared=False, base=Hooked)
def hooked() -> None: ...


@app.task(name="asynchronous", shared=False)
async def asynchronous() -> None: ...


@app.task(name="workflow", shared=False)
def workflow() -> None:
    chord([pickled.s()])(hooked.s())
