"""`install`: makes an existing Celery app run the jobs of a Holdfast."""

import os
import threading
from dataclasses import replace
from typing import Any

from celery import Celery, signals

from holdfast.app import Holdfast
from holdfast.celery.dispatching.dispatch_message import TASK_NAME
from holdfast.celery.recommended_settings import check_settings, green_pool
from holdfast.celery.running.ended_runs import durable_run, store_end
from holdfast.celery.running.process_runner import ProcessRunner
from holdfast.core.errors import ConfigError, HoldfastError


class Installation:
    """The task `holdfast.run` of one Celery app, and what it needs in each process of its workers.

    The runner starts at the first dispatch, so a child has one of its own: threads and connections do not survive a
    fork.
    """

    def __init__(self, app: Celery, hold: Holdfast) -> None:
        self.hold = hold
        self.app = app
        self._slots = 1
        self._lock = threading.Lock()
        self._runner: ProcessRunner | None = None
        _INSTALLATIONS.append(self)
        signals.worker_init.connect(self._on_worker_init, weak=False)
        signals.worker_process_shutdown.connect(self._on_shutdown, weak=False)
        signals.worker_shutdown.connect(self._on_shutdown, weak=False)

    def run(self, job_id: str) -> str:
        """Run a dispatched job, and return in a word what that led to."""
        with durable_run(job_id) as run:
            ran = self._process_runner().run(job_id)
            store_end(run, job_id, ran, self.hold.runtime.logger)
        return ran.outcome.value

    def close(self) -> None:
        """Let what runs here end within the grace time, and disconnect."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def forget(self) -> None:
        """Drop the runner of the parent, in a forked child."""
        self._lock = threading.Lock()
        if self._runner is not None:
            _LEFT_BEHIND.append(self._runner)
        self._runner = None

    def _process_runner(self) -> ProcessRunner:
        with self._lock:
            if self._runner is None:
                options = replace(self.hold.settings.worker_options, slots=self._slots)
                self._runner = ProcessRunner(self.hold, options)
            return self._runner

    def _on_worker_init(self, sender: Any, **_: Any) -> None:
        if sender.app is not self.app:
            return
        pool = sender.pool_cls if isinstance(sender.pool_cls, str) else sender.pool_cls.__module__
        refuse_worker(self.app, pool)
        # The children of a prefork pool run one task each; a pool of threads runs all of them in this process.
        self._slots = max(1, int(sender.concurrency or 1)) if "thread" in pool else 1

    def _on_shutdown(self, **_: Any) -> None:
        self.close()


def install(app: Celery, hold: Holdfast, **options: Any) -> Any:
    """Register the task `holdfast.run` on *app*, which runs the jobs that are dispatched to its workers.

    Call it where the tasks of the app are declared, so that each worker imports it. *options* are those of
    `app.task`, such as `soft_time_limit`, which every attempt then has. Pools of processes and threads and the solo pool
    are supported. Raises `ConfigError` if the app has the task already.
    """
    if any(other.app is app for other in _INSTALLATIONS):
        raise ConfigError(
            f"the Celery app {app.main!r} runs the jobs of a Holdfast already; call install() once, or use a second app"
        )
    installation = Installation(app, hold)

    def run(job_id: str) -> str:
        """Run the job with this id, if it is ready."""
        try:
            return installation.run(job_id)
        except HoldfastError as error:
            # The dispatch is acknowledged, and counts as lost: the job is dispatched again.
            hold.runtime.logger.error("dispatch failed", job_id=job_id, message=hold.runtime.describe(error))
            raise

    return app.task(
        name=TASK_NAME,
        shared=False,
        serializer="json",
        ignore_result=True,
        max_retries=0,
        acks_late=True,
        # A dispatch whose process was killed comes again, and the next process finds that the lease is a dead one's.
        # That ends: each such run counts as a loss of the job, and a dispatch of an ended job does nothing.
        reject_on_worker_lost=True,
        acks_on_failure=True,
        acks_on_timeout=False,
        throws=(HoldfastError,),
        **options,
    )(run)


def refuse_worker(app: Celery, pool: str) -> None:
    """End the worker with one line if it could not run any job."""
    green = green_pool(pool)
    if green is not None:
        raise SystemExit(
            f"Holdfast does not run in a {green} pool, whose tasks are no threads; start the worker with "
            "--pool=prefork or --pool=threads"
        )
    for problem in check_settings(app):
        if problem.fatal:
            raise SystemExit(
                f"Holdfast cannot run with this {problem.setting} of the Celery app: {problem.advice}"
            )


_INSTALLATIONS: list[Installation] = []
"""One for each app, for as long as the process lives, as the receivers of Celery's signals do."""

_LEFT_BEHIND: list[ProcessRunner] = []
"""Runners of the parent in a forked child. They are kept: closing them would use the connections of the parent."""


def _forget_all() -> None:
    for installation in _INSTALLATIONS:
        installation.forget()


os.register_at_fork(after_in_child=_forget_all)
