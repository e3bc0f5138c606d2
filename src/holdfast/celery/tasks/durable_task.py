"""`durable`: makes a task of a Celery app a durable job, and leaves the code that calls it as it is."""

import asyncio
import inspect
import os
import zlib
from collections.abc import Callable
from contextvars import copy_context
from functools import partial, update_wrapper
from threading import Thread
from typing import Any, Literal, TypeVar

from celery import Task
from celery.app.task import Context
from celery.exceptions import Ignore
from celery.local import Proxy

from holdfast.app import Holdfast, JobFunction, current
from holdfast.celery.running.ended_runs import run_of
from holdfast.celery.tasks.call_options import SUBJECT, refuse_workflow, submit_options
from holdfast.celery.tasks.django_commit import take_over_commit
from holdfast.celery.tasks.durable_result import DurableResult
from holdfast.celery.tasks.durable_retries import RetryLater, retry_later, translate
from holdfast.celery.tasks.durable_signature import DurableSignature
from holdfast.core.errors import ConfigError
from holdfast.core.failures.backoff import Backoff
from holdfast.engine.execution.context import CURRENT

T = TypeVar("T")
TaskT = TypeVar("TaskT")
Errors = Literal["celery", "holdfast"]

BEAT_OPTION = "holdfast_schedule"
"""The option with which beat calls a task whose ticks a schedule of Holdfast submits."""

HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")
"""Methods of a task that Celery's worker calls, and that the engine does not."""

ENDLESS = 1_000_000
"""Attempts of a task without a limit of retries."""


def durable(
    hold: Holdfast,
    *,
    queue: str = "default",
    share: float = 1.0,
    errors: Errors = "celery",
    attempts: int | None = None,
    **options: Any,
) -> Callable[[TaskT], TaskT]:
    """Make a Celery task durable: each call of it is stored as a job of *hold*, and then run by the workers.

    Used as a decorator above `@app.task`. `delay`, `apply_async`, `s`, `apply` and direct calls work as before, and
    so do eager mode and `self.retry`. The jobs are in *queue*, whose transport says which workers run them. A *share*
    below 1 makes this part of the calls durable, and sends the others to Celery as before; with 0 all of them.

    *errors* says who decides about exceptions: with `"celery"` the task, by `self.retry` and `autoretry_for`, and all
    others end the job; with `"holdfast"` the engine classifies them, and retries those that may succeed later.
    *attempts* is by default one more than the task's `max_retries`. Other *options* are those of `hold.job`. Raises
    `ConfigError` for a task that would not work the same.
    """

    def adopt(declared: TaskT) -> TaskT:
        task = declared._get_current_object() if isinstance(declared, Proxy) else declared
        if not isinstance(task, Task):
            raise ConfigError(
                f"@durable(hold) got {declared!r}, which is no task of Celery; write it above @app.task"
            )
        DurableTask(
            hold, task, queue=queue, share=share, errors=errors, attempts=attempts, options=options
        ).take_over()
        return declared

    return adopt


def durable_task_of(task: Any) -> "DurableTask | None":
    """Return what makes *task* durable; `None` for another task."""
    return getattr(task, "__dict__", {}).get("durable_task")


class DurableTask:
    """A task of Celery, and the job that its calls are."""

    def __init__(
        self,
        hold: Holdfast,
        task: Task,
        *,
        queue: str,
        share: float,
        errors: Errors,
        attempts: int | None,
        options: dict[str, Any],
    ) -> None:
        if not 0 <= share <= 1:
            raise ConfigError(f"share={share!r} of task {task.name!r} must be from 0 to 1")
        refuse_task(task)
        self.hold = hold
        self.share = share
        self._task = task
        self._errors = errors
        self._send = task.apply_async
        self._retry = task.retry
        self.job: JobFunction[..., Any] = hold.job(
            task.name, queue=queue, **_policy(task, errors, attempts), **options
        )(self._job_function())

    def take_over(self) -> None:
        """Replace the methods of the task with which it is called."""
        task = self._task
        task.durable_task = self
        task.job = self.job
        task.apply_async = self.apply_async
        task.retry = self.retry
        task.signature = task.subtask = self.signature
        take_over_commit(task, self.hold, self.apply_async)
        for name in ("map", "starmap", "chunks"):
            setattr(task, name, partial(self._refuse_method, name))

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Store the call as a job, or send it to Celery as before: in eager mode, and outside the share."""
        task = self._task
        if options.pop(BEAT_OPTION, False):
            return self._on_beat()
        # A retry of a message that Celery has sent stays with Celery, which counts its retries.
        if task.app.conf.task_always_eager or options.get("retries"):
            return self._send(args, kwargs, task_id=task_id, **options)
        refuse_workflow(task.name, options)
        if not self._takes(task_id):
            options.pop("within", None)
            return self._send(args, kwargs, task_id=task_id, **options)
        queues = self.hold.runtime.registry.transports
        job = self.job.options(**submit_options(task.app, task.name, options, task_id=task_id, queues=queues))
        handle = _off_the_loop(task.name, lambda: job.submit_sync(*(args or ()), **(kwargs or {})))
        return DurableResult(task_id or handle.id, job=handle, app=task.app, backend=task.backend)

    def _on_beat(self) -> Any:
        """Submit what the schedules have due; this tick may have been submitted before, by another process."""
        from holdfast.celery.tasks.beat import submit_due  # noqa: PLC0415 - it declares schedules of durable tasks

        submit_due(self.hold)
        return self._task.AsyncResult("")

    def signature(self, args: Any = None, *given: Any, **options: Any) -> DurableSignature:
        """Return a call that can be delayed."""
        options.setdefault("app", self._task.app)
        return DurableSignature(self._task, args, *given, **options)

    def retry(  # noqa: PLR0917 - the parameters of Celery, in their order
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,  # noqa: FBT001, FBT002 - as above
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Fail the attempt so that it is retried; outside a job, do what Celery does."""
        if self._task.request.get("durable_job") is None:
            return self._retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if args is not None or kwargs is not None:
            raise ConfigError(
                f"task {self._task.name!r} is durable and cannot be retried with other arguments; submit another job"
            )
        return retry_later(
            self._task,
            now=self.hold.runtime.clock.now(),
            exc=exc,
            throw=throw,
            eta=eta,
            countdown=countdown,
            max_retries=max_retries,
        )

    def task_id_of(self, job_id: str) -> str:
        """Return the id under which the caller knows the job: its own choice, or the job's id."""
        subject = self.hold.read_sync(job_id).subject or ""
        return subject.removeprefix(SUBJECT) if subject.startswith(SUBJECT) else job_id

    def _job_function(self) -> Callable[..., Any]:
        """Return the function of the job: it calls the task's code with a `self.request` as Celery would make it."""

        def run(*args: Any, **kwargs: Any) -> Any:
            task, attempt = self._task, current()
            known = run_of(attempt.job_id)
            known.task, known.task_id = task, self.task_id_of(attempt.job_id)
            request = Context(
                id=known.task_id,
                task=task.name,
                args=args,
                kwargs=kwargs,
                retries=attempt.attempt - 1,
                root_id=attempt.job_id,
                called_directly=False,
                is_eager=False,
                hostname=f"{os.getpid()}",
                delivery_info={},
                durable_job=attempt.job_id,
            )
            task.request_stack.push(request)
            try:
                return task.run(*args, **kwargs)
            except Ignore:
                return None
            except Exception as error:
                known.error = error.exc if isinstance(error, RetryLater) and error.exc else error
                if self._errors == "holdfast":
                    raise
                translate(error, self.hold.runtime.classifier)
            finally:
                task.request_stack.pop()

        return update_wrapper(run, self._task.run)

    def _takes(self, task_id: str | None) -> bool:
        """Whether a call becomes a job: two calls with one id go the same way."""
        if task_id is None:
            return self.hold.runtime.random.random() < self.share
        return zlib.crc32(task_id.encode()) < self.share * 2**32

    def _refuse_method(self, name: str, *_: Any, **__: Any) -> Any:
        raise ConfigError(
            f"task {self._task.name!r} is durable, and {name}() would run it without a job; call it once for each item"
        )


def refuse_task(task: Task) -> None:
    """Raise `ConfigError` for a task that would not work the same as a job."""
    if durable_task_of(task) is not None:
        raise ConfigError(f"task {task.name!r} is durable already; decorate it once")
    if inspect.iscoroutinefunction(inspect.unwrap(task.run)):
        raise ConfigError(
            f"task {task.name!r} is async, which Celery does not run; declare it with @hold.job instead"
        )
    hooks = [name for name in HOOKS if getattr(type(task), name) is not getattr(Task, name)]
    if hooks:
        raise ConfigError(
            f"task {task.name!r} has {', '.join(hooks)}, which a job does not call; move what it does into the task, or "
            "announce ends of jobs with announce="
        )


def _policy(task: Task, errors: Errors, attempts: int | None) -> dict[str, Any]:
    """Return the attempts of the job, and its waits: with Celery's rules, those that the task asks for and no others."""
    most = ENDLESS if task.max_retries is None else task.max_retries + 1
    policy: dict[str, Any] = {"attempts": most if attempts is None else attempts}
    if errors == "celery":
        policy |= {"backoff": Backoff.none(), "max_wait": "365d"}
    return policy


def _off_the_loop(task: str, submit: Callable[[], T]) -> T:
    """Submit from any code: on an event loop, which `delay` blocks with Celery too, in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return submit()
    if CURRENT.get() is not None:
        raise ConfigError(
            f"task {task!r} was called inside an async job, whose event loop would wait for itself; write `await "
            "task.job.submit(...)` there"
        )
    answers: list[tuple[T | None, BaseException | None]] = []

    def call() -> None:
        try:
            answers.append((submit(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            answers.append((None, error))

    thread = Thread(target=copy_context().run, args=(call,), name="holdfast-delay")
    thread.start()
    thread.join()
    [(answer, error)] = answers
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]  # without an error there is an answer
