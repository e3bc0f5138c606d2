"""Real Celery workers and a real dispatcher, in processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery

from holdfast import Holdfast
from holdfast.celery import CeleryTransport
from holdfast.ports.fleets import Dispatch
from tests.integration.celery.fleet_jobs import RunLog, declare, declare_tasks
from tests.integration.cli_process import Running, _environment, a_process

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TIMEOUT = 60.0


class Fleet:
    """A database, a broker, a queue, and the processes that a test has started on them."""

    def __init__(self, database: str, broker: str, folder: Path) -> None:
        self.queue = f"fleet-{uuid4().hex[:8]}"
        self.broker = broker
        self.log = RunLog(folder)
        self.environment = {
            "FLEET_DATABASE": database,
            "FLEET_BROKER": broker,
            "FLEET_QUEUE": self.queue,
            "FLEET_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self.hold = Holdfast(database)
        self.jobs: Any = declare(self.hold, self.log)
        self.app = Celery("caller", broker=broker, set_as_current=False)
        self.tasks: Any = declare_tasks(self.app, self.hold, self.log)

    @contextmanager
    def worker(self, *options: str, **settings: str) -> Iterator[Running]:
        """Run a Celery worker while the block runs; it takes tasks when the block begins."""
        with self.starting_worker(*options, **settings) as running:
            running.wait_for("ready.")
            yield running

    def starting_worker(self, *options: str, **settings: str) -> AbstractContextManager[Running]:
        """Run a Celery worker while the block runs, with these variables of the environment."""
        words = ("-A", "fleet_app", "worker", *self._options(), *options)
        return a_celery(*words, environment=self.environment | settings)

    def dispatch(self, *job_ids: str) -> None:
        """Send dispatches of jobs, whether or not they are ready."""

        async def send() -> None:
            sender = CeleryTransport(self.broker, queue=self.queue).open()
            await sender.send("fleet", [Dispatch(job_id, "sent by a test", 1) for job_id in job_ids])
            await sender.close()

        asyncio.run(send())

    def _options(self) -> list[str]:
        return [
            "-Q",
            self.queue,
            "-n",
            f"{uuid4().hex[:8]}@%h",
            "--loglevel=INFO",
            "--without-gossip",
            "--without-mingle",
        ]

    @contextmanager
    def dispatcher(self, **settings: str) -> Iterator[Running]:
        """Run `holdfast dispatch` while the block runs, with these variables of the environment."""
        environment = self.environment | settings
        with a_process("dispatch", "fleet_app:hold", cwd=HERE, settings=environment) as running:
            running.wait_for("worker started")
            yield running

    def send_task(self, name: str, *args: object) -> None:
        """Send a task to the fleet's queue without Holdfast, as a team does."""
        self.app.send_task(name, args, queue=self.queue)

    def await_event(self, job_id: str, what: str, *, times: int = 1) -> dict[str, Any]:
        """Wait until a job has written *what* as often as this, and return the last such event."""

        def events() -> list[dict[str, Any]]:
            return [event for event in self.log.read(job_id) if event["what"] == what]

        self.wait_until(lambda: len(events()) >= times)
        return events()[-1]

    def pids(self, job_id: str) -> list[int]:
        """Return the processes in which a job has run, in order."""
        return [event["pid"] for event in self.log.read(job_id)]

    def wait_until(self, true: Callable[[], object]) -> None:
        """Wait for what another process does."""
        until = time.monotonic() + TIMEOUT
        while not true():
            assert time.monotonic() < until, "it did not happen"
            time.sleep(0.02)


@contextmanager
def a_celery(*words: str, environment: dict[str, str]) -> Iterator[Running]:
    """Run a command of Celery while the block runs, in a process group of its own, which is then ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", *words],
        cwd=HERE,
        env=_environment(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running = Running.of(process)
    with ExitStack() as ending:
        ending.callback(_end, process)
        yield running


def _end(process: "subprocess.Popen[str]") -> None:
    """End the process and its children: a child of a killed worker would wait for ever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT)
