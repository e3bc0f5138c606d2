"""Real processes: workers that are replaced when they die, a submitter, and the outside service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from holdfast_simulator import Script, read_log
from holdfast_simulator.codec import to_json
from tests.acceptance.harness import clocks
from tests.acceptance.harness.polling import until
from tests.acceptance.harness.worker import STORE_AWAY
from tests.fork_server import OF_A_COMMAND, ForkServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast_simulator import Entry, Fault
    from tests.acceptance.harness.clocks import WrongClock
    from tests.acceptance.harness.proxy import Route
    from tests.fork_server import ForkedProcess

ROOT = Path(__file__).parents[3]
HARNESS = "tests.acceptance.harness"


@dataclass
class Process:
    """A process of its own, whose standard output and error go to one file."""

    process: subprocess.Popen[bytes] | ForkedProcess
    log: Path
    paused: bool = False
    expected_to_die: bool = False

    @classmethod
    def launch(
        cls,
        module: str,
        *options: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        imports: tuple[str, ...] = (),
    ) -> Self:
        """Start `python -m module`; it ends with this process at the latest.

        What *imports* names is imported once for all processes that name the same.
        """
        words = ["tests.run_with_parent", module, *options]
        env = os.environ | dict(environment or {})
        with log.open("ab") as output:
            if "LD_PRELOAD" not in env:
                file = output.fileno()
                return cls(_fork_server(*imports).start(words, cwd=ROOT, env=env, out=file, err=file), log)
            # Only a new interpreter loads other libraries.
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return cls(process, log)

    @property
    def alive(self) -> bool:
        """Whether it has not ended, be it paused or not."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.expected_to_die = True
        self.process.kill()
        self.process.wait(10)

    def pause(self) -> None:
        """Send SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        self.expected_to_die = True
        if self.alive:
            self.process.terminate()

    def output(self) -> str:
        """Read its standard output and error so far."""
        return self.log.read_text(errors="replace")

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Read the structured log lines of one *event*."""
        found = [json.loads(line) for line in self.output().splitlines() if _is_event(line, event)]
        return [line for line in found if line.get("event") == event]

    def end(self) -> None:
        """End it now, if it has not ended."""
        if self.alive:
            self.kill()


@cache
def _fork_server(*imports: str) -> ForkServer:
    return ForkServer(*OF_A_COMMAND, f"{HARNESS}.app", "holdfast_simulator", *imports)


def _is_event(line: str, event: str) -> bool:
    return line.startswith("{") and line.endswith("}") and f'"{event}"' in line


@dataclass(frozen=True)
class WorkerHost:
    """A simulated machine for a worker: its route to the database, and its clock."""

    url: str
    route: Route | None = None
    clock: WrongClock | None = None


@dataclass
class WorkerPool:
    """Workers on one database. `replace_dead` starts successors, as a supervisor would.

    Each has a host, which its successor takes over; they are all alike unless *hosts* says otherwise.
    """

    url: str
    folder: Path
    service_url: str = "http://127.0.0.1:9"
    size: int = 4
    options: tuple[str, ...] = ()
    hosts: tuple[WorkerHost, ...] = ()
    members: list[Process] = field(default_factory=list)
    former: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.hosts = self.hosts or (WorkerHost(self.url),) * self.size
        self.members = [self._worker(host) for host in self.hosts]
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.end()
        for member in self.all_members:
            clocks.forget(member.process.pid)

    def replace_dead(self) -> None:
        """Start a new worker in the place of each that has ended, and keep the old one in `former`."""
        for index, member in enumerate(self.members):
            if not member.alive:
                self.former.append(member)
                self.members[index] = self._worker(self.hosts[index])

    def _worker(self, host: WorkerHost) -> Process:
        log = self.folder / f"worker-{len(self.former)}-{os.urandom(3).hex()}.log"
        where = ("--url", host.url, "--service", self.service_url)
        environment = host.clock.environment if host.clock else None
        return Process.launch(f"{HARNESS}.worker", *where, *self.options, log=log, environment=environment)

    @property
    def all_members(self) -> list[Process]:
        """All workers so far, the ended ones first."""
        return self.former + self.members

    def at_work(self) -> list[Process]:
        """The members that have begun to claim, and are not paused."""
        return [
            member
            for member in self.members
            if member.alive and not member.paused and member.lines("worker started")
        ]

    def wait_until_at_work(self) -> None:
        """Return when all members have begun to claim."""
        until(lambda: len(self.at_work()) == len(self.hosts), within=120, what="the workers to start")

    def stop(self) -> list[int | None]:
        """Ask all members to stop, wait for them, and return their exit codes."""
        for member in self.members:
            member.ask_to_stop()
        return [member.process.wait(30) for member in self.members]

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Read one event's log lines of all workers so far."""
        return [line for member in self.all_members for line in member.lines(event)]

    def unexpected_deaths(self) -> list[str]:
        """Describe workers that ended without being killed or stopped, and with their database available."""
        return [
            f"exit code {member.process.returncode}: {member.output()[-2000:]}"
            for member in self.former
            if not member.expected_to_die and member.process.returncode != STORE_AWAY
        ]


@dataclass
class Service:
    """The outside service, in a process of its own, with a log of the calls it received."""

    folder: Path
    script: Script = field(default_factory=Script)
    url: str = ""
    process: Process | None = None

    def __enter__(self) -> Self:
        script = self.folder / "script.json"
        script.write_text(self.script.dumps())
        options = ("--log", str(self.folder / "calls.jsonl"), "--script", str(script))
        self.process = Process.launch("holdfast_simulator", *options, log=self.folder / "service.log")
        self.url = until(self._address, within=30, what="the service to listen")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.end()

    def _address(self) -> str:
        assert self.process is not None
        _, found, address = self.process.output().partition("listening on ")
        return address.strip() if found and address.endswith("\n") else ""

    def calls(self) -> list[Entry]:
        """Read the log of calls."""
        return read_log(self.folder / "calls.jsonl")

    def inject(self, fault: Fault, route: str) -> None:
        """Inject *fault* into every call to *route* from now on."""
        self._set({"fault": to_json(fault), "route": route})

    def heal(self, route: str) -> None:
        """Stop injecting faults into calls to *route*."""
        self._set({"fault": None, "route": route})

    def _set(self, request: dict[str, Any]) -> None:
        httpx.post(f"{self.url}/_control/fault", json=request, trust_env=False).raise_for_status()


@dataclass
class Submitter:
    """A process that submits orders, and the ids that were acknowledged to it.

    It samples the backlog through *look_at*, since *url* may lead over a broken network.
    """

    url: str
    folder: Path
    rate: float = 40
    backlog: int = 0
    look_at: str = ""
    process: Process | None = None

    def __enter__(self) -> Self:
        options = ["--url", self.url, "--acks", str(self._acks)]
        options += ["--rate", str(self.rate), "--backlog", str(self.backlog)]
        options += ["--look-at", self.look_at]
        self.process = Process.launch(f"{HARNESS}.submitter", *options, log=self.folder / "submitter.log")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.end()

    @property
    def _acks(self) -> Path:
        return self.folder / "acknowledged.txt"

    def acknowledged(self) -> list[str]:
        """Read the ids that were acknowledged so far; a line without its end is not one yet."""
        if not self._acks.exists():
            return []
        return self._acks.read_text().split("\n")[:-1]

    def backlogs(self) -> list[int]:
        """How many ticks were waiting, at each sample."""
        assert self.process is not None
        return [line["waiting"] for line in self.process.lines("backlog")]

    def finish(self) -> list[str]:
        """Stop it gracefully, and return all acknowledged ids."""
        assert self.process is not None
        self.process.ask_to_stop()
        code = self.process.process.wait(60)
        assert code == 0, f"the submitter ended with {code}: {self.process.output()[-2000:]}"
        return self.acknowledged()
