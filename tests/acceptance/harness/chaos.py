"""Kills, pauses and restarts while orders come in; then everything must come to its end, once.

    python -m tests.acceptance.harness.chaos --store postgres --seconds 60 --seed 1

prints one line of JSON, and exits with 0 when every invariant held. The seed decides when each blow falls and
whom it hits; what the machine makes of it is its own affair.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from holdfast import Status as JobStatus
from holdfast_simulator import Moment, Reset, Rule, Script, Slow, Status, count
from tests import invariants
from tests.acceptance.harness.app import BUDGET
from tests.acceptance.harness.databases import Database, StoreName, open_database
from tests.acceptance.harness.pacing import ticks, until
from tests.acceptance.harness.processes import Crew, Process, Service, Submitter

LEASE = 2.0
WORKERS = 4
DRAIN_WITHIN = 90.0

Kind = Literal["kill", "pause", "restart"]


class Blow(NamedTuple):
    """Something bad, and how many seconds after the start it happens."""

    at: float
    kind: Kind


@dataclass(frozen=True)
class Report:
    """What a run did, and what came of it. `fenced` counts writes that came under a lost lease."""

    store: StoreName
    seconds: float
    seed: int
    kills: int
    pauses: int
    restarts: int
    acknowledged: int
    completed: int
    calls: int
    effects: int
    duplicate_effects: int
    replayed_answers: int
    fenced: int
    leases_lost: int
    reclaimed: int
    most_attempts: int
    most_leases: int
    drained_in: float


def plan(store: StoreName, seconds: float, chance: random.Random) -> list[Blow]:
    """Spread the blows over the time: three kills in five seconds, a pause every four, a few restarts."""
    numbers: dict[Kind, int] = {"kill": round(seconds * 0.6), "pause": round(seconds / 4)}
    if store == "postgres":
        numbers["restart"] = 2 if seconds >= 30 else 1
    blows = [
        Blow(seconds * (index + chance.random()) / number, kind)
        for kind, number in numbers.items()
        for index in range(number)
    ]
    return sorted(blows)


def flaky_service(seed: int) -> Script:
    """Half of the calls take their time; a few fail, before the effect or after it."""
    return Script.of(
        Rule(Status(503), probability=0.05),
        Rule(Reset(at=Moment.AFTER_EFFECT), probability=0.05),
        Rule(Slow(timedelta(seconds=0.4)), probability=0.5),
        seed=seed,
    )


@dataclass(frozen=True)
class Sleeper:
    """A paused worker, and the jobs that it held. It is worst to wake it while another has just begun on one."""

    process: Process
    held: set[str]
    wake_at: float

    def was_replaced(self, holders: dict[str, int]) -> bool:
        """Whether another worker has one of its jobs, or may have had them all by now."""
        others = {holders.get(job_id) for job_id in self.held} - {None, self.process.process.pid}
        return bool(others) or time.monotonic() >= self.wake_at


class Driver:
    """Strikes when the plan says so, and meanwhile replaces the dead and wakes the paused."""

    def __init__(self, database: Database, crew: Crew, chance: random.Random) -> None:
        self._database = database
        self._crew = crew
        self._chance = chance
        self._paused: list[Sleeper] = []
        self.struck: Counter[Kind] = Counter()

    def run(self, blows: list[Blow], *, seconds: float) -> None:
        """Carry out the plan, then let everybody go on."""
        waiting = list(blows)
        for now in ticks(seconds):
            self._tend()
            if waiting and waiting[0].at <= now and self._strike(waiting[0].kind):
                del waiting[0]
        until(self._all_awake, within=LEASE * 3, what="the last pause to end")
        self._crew.tend()

    def _tend(self) -> None:
        self._crew.tend()
        if self._paused and self._can_be_asked():
            holders = self._database.holders()
            due = [sleeper for sleeper in self._paused if sleeper.was_replaced(holders)]
            self._paused = [sleeper for sleeper in self._paused if sleeper not in due]
            for sleeper in due:
                sleeper.process.resume()

    def _can_be_asked(self) -> bool:
        return self._database.server is None or self._database.server.running

    def _all_awake(self) -> bool:
        self._tend()
        return not self._paused

    def _strike(self, kind: Kind) -> bool:
        """Do it; false means that nobody was there to be hit, and that it is to be tried again."""
        match kind:
            case "restart":
                done = self._restart()
            case "kill":
                done = self._kill()
            case "pause":
                done = self._pause()
        self.struck[kind] += done
        return done

    def _kill(self) -> bool:
        victims = self._crew.at_work()
        if victims:
            self._chance.choice(victims).kill()
        return bool(victims)

    def _pause(self) -> bool:
        """Stop a worker that holds a lease; one that had let go of its last by then is no good."""
        victims = self._crew.at_work()
        if not victims:
            return False
        victim = self._chance.choice(victims)
        victim.pause()
        held = {job_id for job_id, pid in self._database.holders().items() if pid == victim.process.pid}
        if not held:
            victim.resume()
            return False
        self._paused.append(Sleeper(victim, held, wake_at=time.monotonic() + LEASE + 1))
        return True

    def _restart(self) -> bool:
        server = self._database.server
        assert server is not None
        server.stop("immediate")
        for _ in ticks(self._chance.random()):
            self._tend()
        server.start()
        return True


def run_chaos(store: StoreName, *, seconds: float, seed: int, folder: Path) -> Report:
    """Run it all, and check every invariant. Raises `AssertionError` or `TimeoutError` if one broke."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        database = stack.enter_context(open_database(store, folder))
        service = stack.enter_context(Service(folder, flaky_service(seed)))
        crew = stack.enter_context(Crew(database.url, folder, service.url, WORKERS, ("--lease", str(LEASE))))
        crew.wait_until_at_work()
        submitter = stack.enter_context(Submitter(database.url, folder))
        until(submitter.acknowledged, within=30, what="the first acknowledged order")
        driver = Driver(database, crew, chance)

        driver.run(plan(store, seconds, chance), seconds=seconds)
        acknowledged = submitter.finish()
        drained_in = drain(database, crew)

        world, calls = database.world(), service.calls()
        invariants.all_hold(world, calls, acknowledged=acknowledged, budget=BUDGET)
        assert crew.deaths_by_themselves() == []
        assert crew.dismiss() == [0] * WORKERS
        told = count(calls)
        return Report(
            store=store,
            seconds=seconds,
            seed=seed,
            kills=driver.struck["kill"],
            pauses=driver.struck["pause"],
            restarts=driver.struck["restart"],
            acknowledged=len(acknowledged),
            completed=len(world.with_status(JobStatus.COMPLETED)),
            calls=told.calls,
            effects=told.effects,
            duplicate_effects=told.duplicate_effects,
            replayed_answers=told.replayed_answers,
            fenced=len(crew.lines("fenced")),
            leases_lost=len(crew.lines("lease lost")),
            reclaimed=sum(line["jobs"] for line in crew.lines("reclaimed")),
            most_attempts=max(row["attempt"] for row in world.jobs),
            most_leases=max((row["lease_token"] + 1) // 2 for row in world.jobs),
            drained_in=round(drained_in, 1),
        )


def drain(database: Database, crew: Crew, *, within: float = DRAIN_WITHIN) -> float:
    """Wait until no job is live, with nobody in the way any more; return how long that took."""
    began = time.monotonic()
    for _ in ticks(within):
        crew.tend()
        left = database.world().live
        if not left:
            return time.monotonic() - began
    raise TimeoutError(f"{len(left)} jobs are still live after {within:g} s: {left[:3]}")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    try:
        report = run_chaos(options.store, seconds=options.seconds, seed=options.seed, folder=folder)
        outcome = {"ok": True} | asdict(report)
    except (AssertionError, TimeoutError) as broken:
        outcome = {"ok": False, "store": options.store, "seed": options.seed, "broken": str(broken)}
        outcome["logs"] = str(folder)
    else:
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(outcome) + "\n")
    return 0 if outcome["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
