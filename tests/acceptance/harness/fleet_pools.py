"""Fleets of real arq and Celery workers, which are killed and replaced."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.acceptance.harness.essays import CELERY_QUEUE, CRASHED, PROCESSES
from tests.acceptance.harness.polling import throttled, until
from tests.acceptance.harness.processes import HARNESS, Process, WorkerPool

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.processes import WorkerHost

IMPORTS = (
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "arq.cli",
    "holdfast.celery.dispatching.rabbit_sender",
    f"{HARNESS}.essays",
)
"""What the processes of fleets import: about a second for each, were it not imported once for all of them."""


class ProcessGroup(Process):
    """A process with its children, which are killed together."""

    def kill(self) -> None:
        """Send SIGKILL to all of them, and wait for the end of the first."""
        self.expected_to_die = True
        with suppress(ProcessLookupError):  # it has not made its group yet, and has no children then
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(10)


@dataclass
class FleetPool(WorkerPool):
    """The workers of one fleet."""

    settings: Mapping[str, str] = field(default_factory=dict)
    started = ""
    """What a worker prints when it takes dispatches."""

    def kill_one(self, database: Database, chance: random.Random) -> str:
        """Kill one at random, and return what was killed."""
        victims = until(self.at_work, within=120, what="a worker to start")
        chance.choice(victims).kill()
        return "worker"

    def at_work(self) -> list[Process]:
        """The members that take dispatches."""
        return [member for member in self.members if member.alive and self.started in member.output()]

    def unexpected_deaths(self) -> list[str]:
        """Describe workers that ended, and were not killed by the run or by a job."""
        return [
            f"exit code {member.process.returncode}: {member.output()[-2000:]}"
            for member in self.former
            if not member.expected_to_die and member.process.returncode != CRASHED
        ]

    def _launch(self, kind: str, *words: str) -> Process:
        log: Path = self.folder / f"{kind}-{len(self.former)}-{os.urandom(3).hex()}.log"
        return ProcessGroup.launch(
            f"{HARNESS}.in_own_group", *words, log=log, environment=self.settings, imports=IMPORTS
        )


@dataclass
class ArqPool(FleetPool):
    """arq workers."""

    started = "fleet runner started"

    def _worker(self, host: WorkerHost) -> Process:
        return self._launch("arq", "arq", f"{HARNESS}.essays_app.WorkerSettings")


@dataclass
class CeleryPool(FleetPool):
    """Celery workers, each with children that run the jobs."""

    started = "ready."

    def kill_one(self, database: Database, chance: random.Random) -> str:
        """Kill a worker with its children, or one of the children that run a job."""
        if chance.random() < 0.5:
            return super().kill_one(database, chance)
        busy: list[int] = []

        def find() -> bool:
            busy[:] = [pid for pid in set(database.holders().values()) if self._is_child(pid)]
            return bool(busy)

        until(throttled(find), within=120, what="a child that runs a job")
        with suppress(ProcessLookupError):  # a job has just ended it
            os.kill(chance.choice(sorted(busy)), signal.SIGKILL)
        return "child"

    def _is_child(self, pid: int) -> bool:
        """Whether the process belongs to a worker of this fleet, and is not that worker."""
        groups = {member.process.pid for member in self.members if member.alive}
        with suppress(ProcessLookupError):
            return pid not in groups and os.getpgid(pid) in groups
        return False

    def _worker(self, host: WorkerHost) -> Process:
        name = f"{os.urandom(4).hex()}@%h"
        options = (
            "--concurrency",
            str(PROCESSES),
            "--loglevel",
            "INFO",
            "--without-gossip",
            "--without-mingle",
        )
        return self._launch(
            *("celery", "celery", "-A", f"{HARNESS}.essays_app", "worker"),
            *("-Q", CELERY_QUEUE, "-n", name),
            *options,
        )
