"""Thousands of jobs run on real arq and Celery workers, which are killed while Redis is flushed and RabbitMQ restarted.

    python -m tests.acceptance.harness.fleet_chaos --jobs 5000 --store postgres

submits jobs of two stages, half of them to an arq fleet and half to a Celery fleet, in portions. When half of a portion
has completed, the next fault comes: a worker, or a child of a Celery worker, is killed, Redis loses all it has, or
RabbitMQ restarts, the last time after SIGKILL. Each fleet also has a job that ends its process whenever it runs. Then the run waits until all have
ended, compares the tables with the log of the service that had the effects, and prints a table. It exits with 1 if a
bound is missed, or if jobs are left when the time is over.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import redis

from holdfast import Status
from holdfast_simulator import Rule, Script, Slow, count
from tests import invariants
from tests.acceptance.harness.app import BUDGET
from tests.acceptance.harness.databases import StoreName, open_database
from tests.acceptance.harness.essays import ON_ARQ, ON_CELERY, PROCESSES, Essays, build
from tests.acceptance.harness.fleet_pools import IMPORTS, ArqPool, CeleryPool
from tests.acceptance.harness.measurements import Measurements
from tests.acceptance.harness.polling import ASK_EVERY, until
from tests.acceptance.harness.processes import HARNESS, Process, Service
from tests.brokers import PrivateRabbitMQ, PrivateRedis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.fleet_pools import FleetPool
    from tests.invariants import World

JOBS = 5_000
KILLS = 20
FLUSHES = 1
RESTARTS = 2
LEASE = 5
"""Seconds."""

LIMIT = 1_200.0
"""Seconds after which a run fails, and says what is left."""

EFFECT_TAKES = timedelta(milliseconds=50)

Fault = Literal["kill", "flush", "restart"]


@dataclass(frozen=True)
class Plan:
    """How many jobs run, and what goes wrong meanwhile."""

    jobs: int = JOBS
    kills: int = KILLS
    flushes: int = FLUSHES
    restarts: int = RESTARTS
    limit: float = LIMIT
    seed: int = 1


@dataclass
class Fleet:
    """The workers of one queue, and the faults that they meet, one in each portion of their jobs but the last."""

    queue: str
    pool: FleetPool
    jobs: int
    faults: list[Fault]
    met: int = 0
    submitted: int = 0

    def next_portion(self) -> range:
        """Return the numbers of the jobs that are submitted before the next fault, or after the last."""
        first = self.submitted
        self.submitted = self.jobs * (self.met + 1) // (len(self.faults) + 1)
        return range(first, self.submitted)

    def is_due(self, completed: int) -> bool:
        """Whether half of the portion has completed, and a fault is left."""
        earlier = self.jobs * self.met // (len(self.faults) + 1)
        return self.met < len(self.faults) and completed >= (earlier + self.submitted) // 2


@dataclass
class FleetHarness:
    """Controls a run: it submits jobs, injects faults, and reads what came of it."""

    plan: Plan
    database: Database
    service: Service
    redis: PrivateRedis
    rabbitmq: PrivateRabbitMQ
    essays: Essays
    fleets: list[Fleet]
    runner: asyncio.Runner
    chance: random.Random
    acknowledged: list[str] = field(default_factory=list)
    crashing: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)

    def run(self) -> Evidence:
        """Run all jobs, and return the evidence; jobs that have not ended within the limit are part of it."""
        began = time.monotonic()
        for fleet in self.fleets:
            handle = self.runner.run(self.essays.crash[fleet.queue].submit())
            self.crashing.append(handle.id)
            self._submit(fleet)
        while time.monotonic() - began < self.plan.limit and not self._has_ended():
            for fleet in self.fleets:
                fleet.pool.replace_dead()
                if fleet.is_due(self.database.completed(fleet.queue)):
                    self._inject(fleet)
            time.sleep(ASK_EVERY)
        return self._evidence(time.monotonic() - began)

    def _submit(self, fleet: Fleet) -> None:
        grade = self.essays.grade[fleet.queue]
        handles = self.runner.run(grade.submit_many((number,) for number in fleet.next_portion()))
        self.acknowledged += [handle.id for handle in handles]

    def _inject(self, fleet: Fleet) -> None:
        """Inject the next fault of a fleet, and submit its next portion."""
        match fleet.faults[fleet.met]:
            case "kill":
                killed = fleet.pool.kill_one(self.database, self.chance)
                self.injected[f"{killed} of {fleet.queue}"] += 1
            case "flush":
                with redis.Redis.from_url(self.redis.url) as client:
                    client.flushall()
                self.injected["flush"] += 1
            case "restart":
                self.injected["restart"] += 1
                last = self.injected["restart"] == self.plan.restarts
                self.rabbitmq.kill() if last else self.rabbitmq.stop()
                self.rabbitmq.start()
        fleet.met += 1
        self._submit(fleet)

    def _has_ended(self) -> bool:
        return all(fleet.met == len(fleet.faults) for fleet in self.fleets) and not self.database.live()

    def _evidence(self, seconds: float) -> Evidence:
        world, calls = self.database.world(), self.service.calls()
        broken = ""
        try:
            invariants.all_hold(world, calls, acknowledged=self.acknowledged, budget=BUDGET)
        except AssertionError as error:
            broken = str(error)
        crashed = [row for row in world.ended if row["id"] in self.crashing]
        counts = count(calls)
        return Evidence(
            self.plan,
            acknowledged=len(self.acknowledged),
            damage=invariants.damage(world, calls, self.acknowledged),
            broken=broken,
            left=_left(world),
            crashers_failed=sum(row["status"] == Status.FAILED for row in crashed),
            others_failed=len(world.with_status(Status.FAILED) - set(self.crashing)),
            interrupted=sum(row["lease_token"] > 2 for row in world.ended if row["id"] not in self.crashing),
            overspent=_overspent(world),
            injected=self.injected,
            effects=counts.effects,
            replayed_answers=counts.replayed_answers,
            seconds=seconds,
        )

    def unexpected_deaths(self) -> list[str]:
        """Describe workers that ended without being killed."""
        return [death for fleet in self.fleets for death in fleet.pool.unexpected_deaths()]


def _left(world: World) -> Mapping[str, int]:
    """Count the jobs that have not ended, by name and state."""
    return Counter(f"{row['name']}, {row['status']}" for row in world.live)


def _overspent(world: World) -> int:
    """Count the jobs whose stages have spent more attempts after the first than the job was claimed again."""
    spent: Counter[str] = Counter()
    for row in world.stages:
        spent[row["id"]] += row["attempt"] - 1
    return sum(spent[row["id"]] > (row["lease_token"] + 1) // 2 - 1 for row in world.jobs)


@contextmanager
def fleet_harness(
    plan: Plan,
    database: Database,
    folder: Path,
    *,
    redis_server: PrivateRedis,
    rabbitmq: PrivateRabbitMQ,
) -> Iterator[FleetHarness]:
    """Start the service, both fleets and the dispatcher, and wait until the workers take dispatches."""
    essays, chance = build(database.url), random.Random(plan.seed)
    with ExitStack() as stack:
        service = stack.enter_context(Service(folder, Script.of(Rule(Slow(EFFECT_TAKES), probability=0.5))))
        settings = {
            "DATABASE_URL": database.url,
            "ESSAYS_REDIS": redis_server.url,
            "ESSAYS_RABBITMQ": rabbitmq.url,
            "ESSAYS_SERVICE": service.url,
            "WORKER_LEASE_TTL_SEC": str(LEASE),
        }
        pools = (
            ArqPool(database.url, folder, size=PROCESSES, settings=settings),
            CeleryPool(database.url, folder, size=PROCESSES, settings=settings),
        )
        for pool in pools:
            stack.enter_context(pool)
        dispatcher = _start_dispatcher(settings, folder)
        stack.callback(dispatcher.end)
        runner = stack.enter_context(asyncio.Runner())
        runner.run(essays.hold.open())
        stack.callback(lambda: runner.run(essays.hold.close()))
        for pool in pools:
            pool.wait_until_at_work()
        until(lambda: dispatcher.lines("worker started"), within=60, what="the dispatcher")
        fleets = _fleets(plan, pools, chance)
        yield FleetHarness(plan, database, service, redis_server, rabbitmq, essays, fleets, runner, chance)


def _start_dispatcher(settings: Mapping[str, str], folder: Path) -> Process:
    return Process.launch(
        *("holdfast", "dispatch", f"{HARNESS}.essays_app:hold", "--log-format", "json"),
        log=folder / "dispatcher.log",
        environment=settings,
        imports=IMPORTS,
    )


def _fleets(plan: Plan, pools: tuple[ArqPool, CeleryPool], chance: random.Random) -> list[Fleet]:
    """Give each fleet half of the jobs and of the kills, and the faults of its broker."""
    half, kills = plan.jobs // 2, plan.kills // 2
    return [
        Fleet(ON_ARQ, pools[0], half, _faults(kills, "flush", plan.flushes, chance)),
        Fleet(
            ON_CELERY,
            pools[1],
            plan.jobs - half,
            _faults(plan.kills - kills, "restart", plan.restarts, chance),
        ),
    ]


def _faults(kills: int, other: Fault, others: int, chance: random.Random) -> list[Fault]:
    """Return the faults of one fleet, in random order."""
    faults = [other] * others
    faults.extend("kill" for _ in range(kills))
    chance.shuffle(faults)
    return faults


@dataclass(frozen=True)
class Evidence:
    """The raw data of the measurements."""

    plan: Plan
    acknowledged: int
    damage: invariants.Damage
    broken: str
    """The first invariant that does not hold, in words."""
    left: Mapping[str, int]
    """How many jobs had not ended, by their name and state."""
    crashers_failed: int
    others_failed: int
    interrupted: int
    """How many jobs were claimed more than once."""
    overspent: int
    """How many jobs spent more attempts of their stages than they had interruptions: one was charged to two stages."""
    injected: Mapping[str, int]
    effects: int
    replayed_answers: int
    seconds: float

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(number for what, number in self.injected.items() if what not in ("flush", "restart"))


def measurements(seen: Evidence, deaths: Sequence[str]) -> Measurements:
    """Compare the evidence with the bounds."""
    measured, injected = Measurements(), Counter(seen.injected)
    measured.exactly("jobs submitted", seen.acknowledged, seen.plan.jobs)
    measured.exactly("jobs lost", seen.damage.lost, 0)
    measured.exactly("jobs completed twice", seen.damage.double_completions, 0)
    measured.exactly("keyed effects that took place twice", seen.damage.keyed_duplicates, 0)
    measured.exactly("jobs that did not end in time", sum(seen.left.values()), 0)
    measured.exactly("jobs that crash their process, and failed", seen.crashers_failed, 2)
    measured.exactly("other jobs that failed", seen.others_failed, 0)
    measured.exactly("interruptions that cost two stages an attempt", seen.overspent, 0)
    measured.record("effects in the log of the service", seen.effects)
    measured.record("calls answered from an earlier effect", seen.replayed_answers)
    measured.at_least("jobs that were claimed again", seen.interrupted, 1)
    measured.at_least("processes killed", seen.kills, seen.plan.kills)
    for what in sorted(set(injected) - {"flush", "restart"}):
        measured.record(f"  {what}", injected[what])
    measured.exactly("times that Redis lost everything", injected["flush"], seen.plan.flushes)
    measured.exactly("restarts of RabbitMQ", injected["restart"], seen.plan.restarts)
    measured.exactly("workers that ended without being killed", len(deaths), 0)
    measured.record("seconds", seen.seconds)
    measured.record("jobs completed a second", (seen.acknowledged - seen.damage.lost) / seen.seconds)
    return measured


def main() -> int:
    """Run it; exit with 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=get_args(StoreName), default="postgres")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help="how many jobs")
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="how many processes are killed")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="after which it fails")
    parser.add_argument("--seed", type=int, default=1, help="decides what is killed, and in which order")
    options = parser.parse_args()
    plan = Plan(options.jobs, options.kills, limit=options.limit, seed=options.seed)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fleet-chaos-"))
    with (
        open_database(options.store, folder) as database,
        PrivateRedis() as redis_server,
        PrivateRabbitMQ() as rabbitmq,
        fleet_harness(plan, database, folder, redis_server=redis_server, rabbitmq=rabbitmq) as harness,
    ):
        seen, deaths = harness.run(), harness.unexpected_deaths()
    measured = measurements(seen, deaths)
    measured.show(f"{plan.jobs:,} jobs run on arq and Celery workers, on {options.store}")
    for what, number in seen.left.items():
        sys.stdout.write(f"Left: {number:,} of {what}\n")
    for line in filter(None, (seen.broken, *deaths)):
        sys.stdout.write(f"Broken: {line}\n")
    if measured.exit_code or seen.broken:
        sys.stdout.write(f"The logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
