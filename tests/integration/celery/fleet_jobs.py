"""Jobs that a fleet of Celery workers runs in the tests; each run is written to a file as it happens."""

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery, Task

from holdfast import Backoff, Breaker, Holdfast, Retryable, current
from holdfast.celery import durable
from holdfast.errors import StageFailed

QUEUE = "fleet"


class RunLog:
    """What happened in all processes, one line for each event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "runs.jsonl"

    def write(self, what: str, **fields: Any) -> None:
        """Add an event of the running attempt."""
        at = current()
        event = {"what": what, "job": at.job_id, "attempt": at.attempt, "pid": os.getpid(), **fields}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def read(self, job_id: str) -> list[dict[str, Any]]:
        """Return the events of a job, in order."""
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        return [event for event in map(json.loads, lines) if event["job"] == job_id]

    def allows(self, name: str) -> bool:
        """Whether a test has allowed what waits under this name to go on."""
        return (self.folder / name).exists()

    def allow(self, name: str) -> None:
        (self.folder / name).touch()


def declare(hold: Holdfast, log: RunLog) -> Any:  # noqa: C901 - many small jobs, none of them complex
    """Declare the jobs on *hold*, and return them by name."""
    at_once = Backoff.none()
    service = hold.provider("service", breaker=Breaker(window=2, minimum=2, threshold=0.5, cooldown="1h"))

    @hold.job("plain", queue=QUEUE, attempts=3, backoff=at_once)
    def plain(number: int) -> dict[str, Any]:
        log.write("ran", thread=threading.current_thread().name)
        return {"number": number, "pid": os.getpid(), "thread": threading.current_thread().name}

    @hold.job("quick", queue=QUEUE)
    async def quick(number: int) -> int:
        log.write("ran")
        return number + 1

    @hold.job("parent", queue=QUEUE)
    def parent(number: int) -> int:
        handle = quick.submit_sync(number)
        return handle.result_sync() + 100

    @hold.job("blocked", queue=QUEUE, attempts=3, backoff=at_once)
    def blocked(name: str) -> str:
        log.write("begun")
        while not log.allows(name):
            time.sleep(0.01)
        log.write("ended")
        return "done"

    @hold.job("waiting", queue=QUEUE, attempts=3, backoff=at_once)
    async def waiting(name: str) -> str:
        log.write("begun")
        while not log.allows(name):
            await asyncio.sleep(0.01)
        log.write("ended")
        return "done"

    @hold.job("crashing", queue=QUEUE, attempts=3, backoff=at_once)
    def crashing(times: int) -> str:
        log.write("begun")
        if len(log.read(current().job_id)) <= times:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    @hold.job("asked to wait", queue=QUEUE, attempts=3, backoff=at_once)
    def asked_to_wait(seconds: int) -> None:
        log.write("ran")
        request = httpx.Request("GET", "https://service.example")
        busy = httpx.Response(429, headers={"Retry-After": str(seconds)}, request=request)
        busy.raise_for_status()

    @hold.stage("first", attempts=2, backoff=at_once)
    def first() -> str:
        log.write("first")
        if current().attempt == 1:
            raise Retryable("not yet")
        return "one"

    @hold.stage("second", attempts=2, backoff=at_once)
    async def second() -> str:
        log.write("second")
        if current().attempt == 1:
            raise Retryable("not yet")
        return "two"

    @hold.job("staged", queue=QUEUE, attempts=1)
    async def staged() -> list[str]:
        return [await first.in_thread(), await second()]

    @hold.stage("call", provider=service, attempts=5, backoff=at_once)
    async def call() -> None:
        log.write("called")
        raise ConnectionError("the service is down")

    @hold.job("calling", queue=QUEUE)
    async def calling() -> str:
        try:
            await call()
        except StageFailed:
            return "failed"
        return "called"

    return SimpleNamespace(
        **{name: value for name, value in locals().items() if name not in ("hold", "log", "at_once")}
    )


def declare_tasks(app: Celery, hold: Holdfast, log: RunLog) -> Any:
    """Declare the durable tasks of the team's app, and return them by name."""
    app.conf.result_backend = f"file://{log.folder}"

    @durable(hold, queue=QUEUE)
    @app.task(name="adopted", shared=False, bind=True, max_retries=1)
    def adopted(self: Task, number: int) -> dict[str, Any]:
        log.write("ran", retries=self.request.retries)
        if self.request.retries == 0:
            raise self.retry(exc=ConnectionError("away"), countdown=0)
        return {"number": number, "id": self.request.id}

    @durable(hold, queue=QUEUE)
    @app.task(name="failing", shared=False)
    def failing() -> None:
        raise LookupError("no such order")

    @durable(hold, queue=QUEUE)
    @app.task(name="limited", shared=False, soft_time_limit=2, max_retries=0)
    def limited() -> str:
        try:
            while True:
                time.sleep(0.01)
        except SoftTimeLimitExceeded:
            return "stopped by the limit"

    @durable(hold, queue=QUEUE)
    @app.task(name="ticking", shared=False)
    def ticking() -> None:
        log.write("ticked")

    return SimpleNamespace(adopted=adopted, failing=failing, limited=limited, ticking=ticking)
