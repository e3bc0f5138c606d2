"""`delay_on_commit` of a durable task in a Django project: the job is stored in the transaction itself."""

from collections.abc import Callable
from typing import Any

from holdfast.app import Holdfast


def take_over_commit(task: Any, hold: Holdfast, apply_async: Callable[..., Any]) -> None:
    """Replace `delay_on_commit` and `apply_async_on_commit` of a task of a Django project.

    Celery sends after the commit, and loses the call if the process dies in between. With a `DjangoHoldfast` the job is
    part of the transaction. Outside a transaction, and with jobs in another database, all stays as it is.
    """
    alias = getattr(hold, "_alias", None)
    if alias is None or not hasattr(task, "delay_on_commit"):
        return
    after_commit = task.apply_async_on_commit

    def apply_async_on_commit(args: Any = None, kwargs: Any = None, **options: Any) -> None:
        from django.db import connections  # noqa: PLC0415 - the task is one of a Django project

        connection = connections[alias]
        if connection.in_atomic_block:
            apply_async(args, kwargs, within=connection, **options)
        else:
            after_commit(args, kwargs, **options)

    def delay_on_commit(*args: Any, **kwargs: Any) -> None:
        apply_async_on_commit(args, kwargs)

    task.apply_async_on_commit = apply_async_on_commit
    task.delay_on_commit = delay_on_commit
