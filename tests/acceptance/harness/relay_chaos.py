"""Thousands of messages are relayed to a real RabbitMQ, while relays are killed, connections reset and the broker restarted.

    python -m tests.acceptance.harness.relay_chaos --messages 20000

stores messages of many aggregates in rounds. In each round it resets all connections, kills a relay and replaces it; in
some it kills the worker that consumes the messages, or restarts RabbitMQ, once with SIGKILL, and stores messages while it is
down. Then it waits until the outbox is empty and every message has made its job, reads a queue that got every message, too,
and prints a table: what arrived, in which order, and how often each message took effect. It exits with 1 if a bound is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
import asyncpg

from holdfast.core.messages.outbox import BATCH
from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.ledger import EXCHANGE, POSTED, POSTING, QUEUE, an_entry, build
from tests.acceptance.harness.measurements import Measurements
from tests.acceptance.harness.polling import throttled, until
from tests.acceptance.harness.processes import HARNESS, Process, WorkerHost, WorkerPool
from tests.acceptance.harness.proxy import Proxy
from tests.brokers import PrivateRabbitMQ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast import Holdfast
    from holdfast.ports.messages.outbox import OutboxStats
    from tests.acceptance.harness.databases import Database

MESSAGES = 20_000
AGGREGATES = 2_000
KILLS = 20
WORKER_KILLS = 4
RESTARTS = 5
RELAYS = 2

PATIENCE = 300.0
"""Seconds until every message has to be published, and to take effect: leases and a blocked route take up to a minute."""


@dataclass
class CommandPool(WorkerPool):
    """Processes of one command, `holdfast relay` or `holdfast worker`; the url of a host is that of the broker."""

    command: str = "relay"

    def _worker(self, host: WorkerHost) -> Process:
        return Process.launch(
            *("holdfast", self.command, f"{HARNESS}.ledger_app:hold", "--log-format", "json"),
            log=self.folder / f"{self.command}-{len(self.former)}-{os.urandom(3).hex()}.log",
            environment={"DATABASE_URL": self.url, "BROKER_URL": host.url},
        )

    def at_work(self) -> list[Process]:
        """The members that have started."""
        return [member for member in self.members if member.alive and member.lines(f"{self.command} started")]


@dataclass(frozen=True)
class Plan:
    """How many messages are relayed, and how much goes wrong meanwhile."""

    messages: int = MESSAGES
    aggregates: int = AGGREGATES
    kills: int = KILLS
    restarts: int = RESTARTS
    worker_kills: int = WORKER_KILLS

    @property
    def each(self) -> int:
        """How many messages an aggregate has."""
        return self.messages // self.aggregates

    @property
    def entries(self) -> frozenset[str]:
        """The ids of all messages."""
        return frozenset(
            f"{account}:{number}" for account in range(self.aggregates) for number in range(self.each)
        )


@dataclass
class RelayHarness:
    """Controls a run: it stores messages, injects faults, and reads what has arrived."""

    plan: Plan
    database: Database
    rabbitmq: PrivateRabbitMQ
    relays: CommandPool
    workers: CommandPool
    hold: Holdfast
    runner: asyncio.Runner
    resets: int = 0
    kills: int = 0
    worker_kills: int = 0
    restarts: list[str] = field(default_factory=list)
    stored: int = 0

    def run(self) -> Evidence:
        """Relay all messages, and return the evidence."""
        began = time.monotonic()
        rounds = max(self.plan.kills, 1)
        restart_in = _spread(self.plan.restarts, rounds)
        kill_worker_in = _spread(self.plan.worker_kills, rounds)
        for number in range(rounds):
            self._store_and_see_progress(self.plan.messages * (number + 1) // (rounds + 1))
            self._reset_connections()
            if self.kills < self.plan.kills:
                self._kill_one(self.relays)
                self.kills += 1
            if number in kill_worker_in:
                self._kill_one(self.workers)
                self.worker_kills += 1
            if number in restart_in:
                self._restart()
            self.relays.replace_dead()
            self.workers.replace_dead()
        self._store(self.plan.messages)
        until(throttled(lambda: not self._stats().pending), within=PATIENCE, what="an empty outbox")
        until(throttled(self._all_took_effect), within=PATIENCE, what="every message to take effect")
        return Evidence(
            self.plan,
            self.runner.run(arrivals(self.rabbitmq.url)),
            self.runner.run(effects(self.database.url)),
            self._stats(),
            self.kills,
            self.worker_kills,
            self.resets,
            self.restarts,
            time.monotonic() - began,
        )

    def _all_took_effect(self) -> bool:
        """Whether the queue of the consumer is empty, no job is left, and each message was posted."""
        if self.runner.run(waiting(self.rabbitmq.url)):
            return False
        found = self.runner.run(effects(self.database.url))
        return not found.live and len(set(found.posted)) >= self.plan.messages

    def _store_and_see_progress(self, up_to: int) -> None:
        """Store messages, and return when a relay has published one of those that waited."""
        before = self._published()
        self._store(up_to)
        until(throttled(lambda: self._published() > before), within=PATIENCE, what="a relay to publish")

    def _store(self, up_to: int) -> None:
        """Store messages, those of all aggregates in turn, until there are *up_to*."""
        numbers = range(self.stored, up_to)
        entries = [an_entry(each % self.plan.aggregates, each // self.plan.aggregates) for each in numbers]
        for first in range(0, len(entries), BATCH):
            self.runner.run(self.hold.runtime.store.outbox.add(entries[first : first + BATCH]))
        self.stored = max(self.stored, up_to)

    def _stats(self) -> OutboxStats:
        return self.runner.run(self.hold.runtime.store.outbox.stats())

    def _published(self) -> int:
        return self.stored - self._stats().pending

    def _reset_connections(self) -> None:
        hosts = (*self.relays.hosts, *self.workers.hosts)
        self.resets += sum(host.route.reset() for host in hosts if host.route is not None)

    def _kill_one(self, pool: CommandPool) -> None:
        random.choice(until(pool.at_work, within=120, what=f"a {pool.command} to start")).kill()

    def _restart(self) -> None:
        """Stop RabbitMQ, the last time with SIGKILL, store messages meanwhile, and start it again."""
        killed = len(self.restarts) == self.plan.restarts - 1
        self.rabbitmq.kill() if killed else self.rabbitmq.stop()
        self._store(min(self.stored + BATCH, self.plan.messages))
        self.rabbitmq.start()
        self.restarts.append("killed" if killed else "stopped")


def _spread(count: int, rounds: int) -> set[int]:
    """Return the rounds in which one of *count* faults is injected."""
    return {round(number * rounds / (count + 1)) for number in range(1, count + 1)}


@contextmanager
def relay_harness(
    plan: Plan, database: Database, rabbitmq: PrivateRabbitMQ, folder: Path, *, relays: int = RELAYS
) -> Iterator[RelayHarness]:
    """Start the relays and a worker, each with its own way to the broker, and wait until they work."""
    hold = build(database.url)
    with asyncio.Runner() as runner, Proxy("127.0.0.1", rabbitmq.port) as proxy:
        runner.run(declare(rabbitmq.url))
        runner.run(create_table(database.url))
        runner.run(hold.open())
        routes = [proxy.route() for _ in range(relays + 1)]
        worker, *others = (WorkerHost(rabbitmq.at_port(route.port), route) for route in routes)
        try:
            with (
                CommandPool(database.url, folder, hosts=tuple(others)) as relaying,
                CommandPool(database.url, folder, hosts=(worker,), command="worker") as working,
            ):
                relaying.wait_until_at_work()
                working.wait_until_at_work()
                yield RelayHarness(plan, database, rabbitmq, relaying, working, hold, runner)
        finally:
            runner.run(hold.close())


async def declare(url: str) -> None:
    """Declare the exchange, and two empty queues that are bound to it."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, durable=True)
        for name in (QUEUE, POSTING):
            queue = await channel.declare_queue(name, durable=True)
            await queue.purge()
            await queue.bind(exchange, QUEUE)


async def create_table(url: str) -> None:
    """Create the table of posted entries, in which an entry could be twice."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE TABLE {POSTED} (entry text NOT NULL)")
    await connection.close()


async def arrivals(url: str) -> list[str]:
    """Take all messages out of the queue; return their ids, in the order of their arrival."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1_000)
        queue = await channel.declare_queue(QUEUE, passive=True)
        count, found = queue.declaration_result.message_count or 0, []
        if count:
            async with queue.iterator() as messages:
                async for message in messages:
                    found.append(message.message_id or "")
                    await message.ack()
                    if len(found) == count:
                        break
    return found


async def waiting(url: str) -> int:
    """Count the messages that the consumer has not received yet."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(POSTING, passive=True)
        return queue.declaration_result.message_count or 0


@dataclass(frozen=True)
class Effects:
    """What the consumer has made of the messages."""

    posted: Sequence[str]
    """The entries that were posted, in no order."""
    jobs: int
    """How many jobs were made of messages."""
    live: int
    """How many of them have not ended."""
    received: int
    """How many messages the inbox has recorded."""
    repetitions: int
    """How many deliveries repeated one of them."""


async def effects(url: str) -> Effects:
    """Read what the jobs have posted."""
    connection = await asyncpg.connect(url)
    try:
        posted = await connection.fetch(f"SELECT entry FROM {POSTED}")
        [counts] = await connection.fetch("""
            SELECT (SELECT count(*) FROM holdfast.finished WHERE name = 'post') AS ended,
                   (SELECT count(*) FROM holdfast.jobs WHERE name = 'post') AS live,
                   (SELECT count(*) FROM holdfast.inbox_messages) AS received,
                   (SELECT coalesce(sum(repetitions), 0) FROM holdfast.inbox_messages) AS repetitions
        """)
    finally:
        await connection.close()
    return Effects(
        [row["entry"] for row in posted],
        counts["ended"] + counts["live"],
        counts["live"],
        counts["received"],
        counts["repetitions"],
    )


@dataclass(frozen=True)
class Evidence:
    """The raw data of the measurements."""

    plan: Plan
    arrived: Sequence[str]
    """The ids of the messages in the broker's queue, in order."""
    effects: Effects
    stats: OutboxStats
    kills: int
    worker_kills: int
    resets: int
    restarts: Sequence[str]
    seconds: float

    @property
    def missing(self) -> int:
        """How many messages did not arrive."""
        return len(self.plan.entries - set(self.arrived))

    @property
    def lost_effects(self) -> int:
        """How many messages did not take effect."""
        return len(self.plan.entries - set(self.effects.posted))

    @property
    def repeated_effects(self) -> int:
        """How many effects repeat that of the same message."""
        return len(self.effects.posted) - len(set(self.effects.posted))

    @property
    def duplicates(self) -> int:
        """How many arrivals repeat an earlier one."""
        return len(self.arrived) - len(set(self.arrived))

    @property
    def first_arrivals(self) -> Mapping[str, list[int]]:
        """The numbers of each account's entries, in the order in which they arrived first."""
        found: defaultdict[str, dict[int, None]] = defaultdict(dict)
        for message_id in self.arrived:
            account, _, number = message_id.partition(":")
            found[account].setdefault(int(number))
        return {account: list(numbers) for account, numbers in found.items()}

    @property
    def disordered(self) -> list[str]:
        """The accounts whose entries did not arrive in their order."""
        return [account for account, numbers in self.first_arrivals.items() if numbers != sorted(numbers)]


def measurements(seen: Evidence) -> Measurements:
    """Compare the evidence with the bounds."""
    measured, restarts = Measurements(), Counter(seen.restarts)
    measured.exactly("messages that arrived", len(set(seen.arrived)), seen.plan.messages)
    measured.exactly("messages that did not", seen.missing, 0)
    measured.exactly("aggregates whose first arrivals are not in order", len(seen.disordered), 0)
    measured.exactly("messages that failed", seen.stats.failed, 0)
    measured.exactly("messages left in the outbox", seen.stats.pending, 0)
    measured.record("arrivals repeated under the same id", seen.duplicates)
    measured.exactly("jobs that messages have made", seen.effects.jobs, seen.plan.messages)
    measured.exactly("messages without an effect", seen.lost_effects, 0)
    measured.exactly("effects that a message had again", seen.repeated_effects, 0)
    measured.record("deliveries that the inbox knew already", seen.effects.repetitions)
    measured.at_least("relays killed meanwhile", seen.kills, seen.plan.kills)
    measured.at_least("consuming workers killed meanwhile", seen.worker_kills, seen.plan.worker_kills)
    measured.at_least("connections reset meanwhile", seen.resets, 1)
    measured.exactly("restarts of RabbitMQ", restarts["stopped"] + restarts["killed"], seen.plan.restarts)
    measured.exactly("of them with SIGKILL", restarts["killed"], min(seen.plan.restarts, 1))
    measured.record("seconds", seen.seconds)
    return measured


def main() -> int:
    """Run it on PostgreSQL; exit with 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="how many messages")
    parser.add_argument(
        "--aggregates", type=int, default=AGGREGATES, metavar="N", help="of how many aggregates"
    )
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="how many relays are killed")
    parser.add_argument(
        "--restarts", type=int, default=RESTARTS, metavar="N", help="how often RabbitMQ restarts"
    )
    parser.add_argument(
        "--worker-kills", type=int, default=WORKER_KILLS, metavar="N", help="how many consuming workers are"
    )
    options = parser.parse_args()
    plan = Plan(options.messages, options.aggregates, options.kills, options.restarts, options.worker_kills)
    with tempfile.TemporaryDirectory(prefix="holdfast-relay-chaos-") as name:
        folder = Path(name)
        with (
            open_database("postgres", folder) as database,
            PrivateRabbitMQ() as rabbitmq,
            relay_harness(plan, database, rabbitmq, folder) as harness,
        ):
            measured = measurements(harness.run())
            deaths = harness.relays.unexpected_deaths() + harness.workers.unexpected_deaths()
    measured.exactly("relays and workers that ended without being killed", len(deaths), 0)
    measured.show(f"{plan.messages:,} messages of {plan.aggregates:,} aggregates are relayed to RabbitMQ")
    return measured.exit_code


if __name__ == "__main__":
    sys.exit(main())
