"""Workers and clients of an earlier version and of this one work side by side, over the migrations between them.

The earlier ones run that version's real code in their own processes; the jobs write a line to a file each time
a stage runs. No process is killed here, so each line must appear exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from compileall import compile_dir
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs import transitions
from holdfast.core.providers.holder import Holder
from tests.acceptance.harness.polling import until
from tests.fork_server import OF_A_COMMAND, ForkServer
from tests.migration.conftest import PostgresTarget, SqliteTarget, Target
from tests.migration.earlier_code import ROOT, NoHistoryError, code_before

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast import Job
    from tests.fork_server import ForkedProcess

FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST", "1"))
RUNS = [
    *((schema, store) for schema in (1, 4) for store in ("sqlite", "postgres")),
    (3, ("sqlite", "postgres")[FIRST % 2]),
]
"""The oldest schema and the last one on both stores; the one between them on the store that the number of this run decides."""

TIMEOUT = 120.0
FEW = 15
"""Jobs that each side must have done at each step before the test goes on."""

APPLICATION = """
import os
from pathlib import Path

from holdfast import Holdfast

hold = Holdfast()
HERE, WHO = Path(__file__).parent, os.environ["WHO"]


def leave(line):
    # One write in append mode: lines of several processes do not mix.
    with (HERE / "effects").open("ab", buffering=0) as file:
        file.write(f"{WHO} {line}\\n".encode())


@hold.stage()
async def pack(number: int) -> int:
    leave(f"pack {number}")
    return number


@hold.stage()
async def send(number: int) -> int:
    leave(f"send {number}")
    return number


@hold.job("order")
async def order(number: int) -> int:
    return await send(await pack(number))


@hold.job("refuse")
async def refuse() -> None:
    raise ValueError("not this one")


if hasattr(hold, "wait_for"):  # what the first version cannot do
    import asyncio

    @hold.job("family", queue="new")
    async def family(first: int) -> list[int]:
        children = [await order.options(queue="old").submit(first + n) for n in range(3)]
        return list(await asyncio.gather(*[child.result() for child in children]))
"""

SUBMITTER = """
import asyncio
from itertools import count

from app import HERE, WHO, hold, order


async def main():
    async with hold:
        for number in count(10_000 if WHO == "old" else 20_000):
            if (HERE / f"enough {WHO}").exists():
                return
            job = await order.options(key=f"{WHO}-{number}").submit(number)
            with (HERE / "acknowledged").open("ab", buffering=0) as file:
                file.write(f"{WHO} {job.id}\\n".encode())
            await asyncio.sleep(0.05)


asyncio.run(main())
"""


@dataclass
class Version:
    """One version of the code: its commands, run on the database of the test."""

    who: str
    source: Path
    url: str
    folder: Path
    forks: ForkServer | None = None
    """Has imported this version, and saves each process that."""
    running: list[subprocess.Popen[bytes] | ForkedProcess] = field(default_factory=list)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a module to its end."""
        if self.forks is not None:
            return self.forks.run(words, cwd=self.folder, env=self._environment, timeout=TIMEOUT)
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start a module, whose output goes to a file of its own."""
        process: subprocess.Popen[bytes] | ForkedProcess
        with (self.folder / f"{self.who}.log").open("ab") as log:
            file = log.fileno()
            if self.forks is not None:
                process = self.forks.start(words, cwd=self.folder, env=self._environment, out=file, err=file)
            else:
                command = [sys.executable, "-m", *words]
                process = subprocess.Popen(
                    command, cwd=self.folder, env=self._environment, stdout=log, stderr=log
                )
        self.running.append(process)
        return process

    def work(self, *queues: str) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start a worker."""
        named = [word for queue in queues for word in ("--queue", queue)]
        return self.start("holdfast", "worker", "app:hold", "--slots", "4", *named)

    def output(self) -> str:
        return (self.folder / f"{self.who}.log").read_text(errors="replace")

    def end(self) -> None:
        """End what still runs."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "WHO": self.who,
            "DATABASE_URL": self.url,
            "PYTHONPATH": str(self.source),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@dataclass
class RunFiles:
    """The files that the processes have written so far."""

    folder: Path

    def effects(self) -> list[tuple[str, str]]:
        """Which version did what, in order."""
        return [(who, what) for who, what in self._lines("effects")]

    def acknowledged(self) -> list[str]:
        """The ids of the acknowledged jobs."""
        return [job_id for _, job_id in self._lines("acknowledged")]

    def done_by(self, who: str) -> int:
        return sum(by == who and what.startswith("send") for by, what in self.effects())

    def enough(self, who: str) -> None:
        (self.folder / f"enough {who}").touch()

    def _lines(self, name: str) -> Iterator[tuple[str, str]]:
        path = self.folder / name
        for line in path.read_text().splitlines() if path.exists() else []:
            who, _, what = line.partition(" ")
            yield who, what


class Earlier(NamedTuple):
    """An earlier version of the code."""

    schema: int
    source: Path


@pytest.fixture(scope="module")
def forks() -> ForkServer:
    """A server whose forks run the code of this version."""
    return ForkServer(*OF_A_COMMAND)


@pytest.fixture(scope="session")
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """The last version that uses this schema."""
    schema: int = request.param
    try:
        source = code_before(f"{schema + 1:04}", tmp_path_factory.mktemp("earlier"))
    except NoHistoryError as missing:
        pytest.skip(str(missing))
    # Once here, so that not each of its processes has to.
    assert compile_dir(source, quiet=1)
    return Earlier(schema, source)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "app.py").write_text(APPLICATION)
    (folder / "submitting.py").write_text(SUBMITTER)
    return RunFiles(folder)


@pytest.fixture
def versions(
    target: Target, files: RunFiles, earlier: Earlier, forks: ForkServer
) -> Iterator[tuple[Version, Version]]:
    """The earlier version and this one, on one database."""
    url = f"sqlite:///{target.path}" if isinstance(target, SqliteTarget) else _dsn(target)
    old = Version("old", earlier.source, url, files.folder)
    new = Version("new", ROOT / "src", url, files.folder, forks)
    with ExitStack() as stack:
        stack.callback(old.end)
        stack.callback(new.end)
        yield old, new


def _dsn(target: Target) -> str:
    assert isinstance(target, PostgresTarget)
    return target.dsn


@pytest.mark.parametrize(
    ("earlier", "target"),
    RUNS,
    indirect=True,
    ids=lambda value: value if isinstance(value, str) else f"from schema {value}",
)
async def test_no_job_is_lost_or_done_twice_while_old_and_new_workers_share_a_database(
    versions: tuple[Version, Version], earlier: Earlier, files: RunFiles
) -> None:
    old, new = versions
    assert schema_of(old) == {"found": 0, "expected": earlier.schema}
    assert old.run("holdfast", "schema", "apply").returncode == 0
    old_workers = [old.work("default"), old.work("default", "old")]
    submitters = [old.start("submitting")]
    until(lambda: files.done_by("old") > FEW, within=TIMEOUT, what="work of the earlier version")

    refused = new.run("holdfast", "worker", "app:hold")
    assert refused.returncode == 2
    assert "run `holdfast schema apply`" in refused.stderr

    applied = new.run("holdfast", "schema", "apply", "--json")
    assert json.loads(applied.stdout)["before"] == earlier.schema, applied.stderr
    held = await a_held_order(new.url)
    before = files.done_by("old")
    until(lambda: files.done_by("old") - before > FEW, within=TIMEOUT, what="work beside a held job")
    # Workers that know held jobs release it: no breaker of that name is open.
    assert await let_out(new.url, held) or earlier.schema >= 3
    assert await left_by_old_workers(new.url) == "not this one"
    before = files.done_by("old")
    new_worker = new.work("default", "new")
    submitters.append(new.start("submitting"))
    parent = await families(new.url)
    until(
        lambda: min(files.done_by("old") - before, files.done_by("new")) > FEW,
        within=TIMEOUT,
        what="work of both versions, side by side",
    )
    [waited_for_old_workers, released] = await ended(new.url, [parent, held])

    for worker in old_workers:
        worker.send_signal(signal.SIGTERM)
    assert [worker.wait(TIMEOUT) for worker in old_workers] == [0, 0]
    for who in ("old", "new"):
        files.enough(who)
    assert [submitter.wait(TIMEOUT) for submitter in submitters] == [0, 0]
    jobs = await ended(new.url, files.acknowledged())
    new_worker.send_signal(signal.SIGTERM)
    assert new_worker.wait(TIMEOUT) == 0

    assert {job.status for job in [*jobs, waited_for_old_workers, released]} == {Status.COMPLETED}
    assert waited_for_old_workers.result == json.dumps(CHILDREN, separators=(",", ":"))
    assert Counter(what for _, what in files.effects()) == Counter(expected(jobs))
    assert [line for line in (old.output() + new.output()).splitlines() if '"level": "error"' in line] == []


def expected(jobs: list[Job]) -> list[str]:
    """The effects that these jobs have, and those of the family's children and of the held order, each once."""
    numbers = [json.loads(job.args)["number"] for job in jobs] + [*CHILDREN, HELD]
    return [f"{stage} {number}" for number in numbers for stage in ("pack", "send")]


CHILDREN = [30_000, 30_001, 30_002]


HELD = 40_000


def schema_of(version: Version) -> dict[str, int]:
    """Read the database's schema version, and the one that this version of the code needs."""
    status = json.loads(version.run("holdfast", "schema", "status", "--json").stdout)
    return {"found": status["found"], "expected": status.get("expected", status.get("wanted"))}


async def a_held_order(url: str) -> str:
    """Submit an order to a queue without workers, claim it as a worker would, and have it held."""
    async with Holdfast(url) as hold:

        @hold.job("order", queue="new")
        async def order(number: int) -> int:
            return number

        job, store = await order.submit(HELD), hold.runtime.store
        [claim] = await store.claim("tester", "new", limit=1, lease=timedelta(minutes=1))
        await store.settle("tester", [transitions.hold(claim, "its breaker is open", held_by=Holder("llm"))])
        return job.id


async def let_out(url: str, job_id: str) -> bool:
    """Release a job that must still be held; return whether it was."""
    async with Holdfast(url) as hold:
        held_by = (await hold.read(job_id)).held_by
        return held_by == "llm" and await hold.runtime.store.providers.release(Holder("llm"), limit=1) == 1


async def left_by_old_workers(url: str) -> str:
    """Let workers of the earlier version, which know nothing of dead letters, fail a job; return the message of its letter."""
    async with Holdfast(url) as hold:

        @hold.job("refuse", queue="old")
        async def refuse() -> None: ...

        job = await refuse.submit()
        await hold.wait(job.id, timeout=TIMEOUT)
        return (await hold.runtime.store.dead_letters.get(job.id)).failure.message.removeprefix(
            "ValueError: "
        )


async def families(url: str) -> str:
    """Submit a job of the new version that waits for jobs which only workers of the earlier one take."""
    async with Holdfast(url) as hold:

        @hold.job("family", queue="new")
        async def family(first: int) -> list[int]:
            return [first]

        return (await family.submit(CHILDREN[0])).id


async def ended(url: str, job_ids: list[str]) -> list[Job]:
    """Wait until all of these have ended, and read them."""
    async with Holdfast(url) as hold:
        return [await hold.wait(job_id, timeout=TIMEOUT) for job_id in job_ids]
