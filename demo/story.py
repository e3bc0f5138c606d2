"""The story: what the demo does to the shop, and what it writes down about it for the checks."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from demo.app import ASSISTANT, BUDGET, COOLDOWN, Shop, open_shop
from demo.books import Database, Figures
from demo.checks import Evidence, Finding, Kill, Outage, findings, generation_of, place_of
from demo.orders import UNSERVED, Order, orders
from demo.processes import LEASE, SLOTS, Child, DemoError, Provider, start_worker
from demo.screen import Bar, Screen
from demo.trouble import ASSISTANT_BACK, ASSISTANT_DOWN, FLAKY, REPAIRED, RETRY_AFTER
from holdfast import Job, JobFilter, Status
from holdfast_simulator import Entry

KILL_AT = (0.2, 0.45, 0.7)
"""The parts of the jobs that have ended when a worker is killed."""

ADVICE = 40
RECEIPTS = 40
"""How many jobs call the provider that breaks, and how many run beside them."""

TICK = 0.15
TRIALS_TO_FAIL = 2
GIVE_UP_AFTER = 110.0
SILENCE = 2.0
"""Seconds in which a worker that had anything to do would have begun it ten times over."""


class OverdueError(Exception):
    """The jobs did not come to their end in time. The checks say what is missing."""


@dataclass
class Deeds:
    """What the demo did, as it goes along."""

    submitted: dict[str, Order] = field(default_factory=dict)
    besides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    calls_before: int = 0
    kills: list[Kill] = field(default_factory=list)
    retried: frozenset[str] = frozenset()
    outage: Outage | None = None


class Story:
    """One run of the demo. Its processes end with the block that it is entered in."""

    def __init__(self, screen: Screen, folder: Path, *, jobs: int) -> None:
        self._screen = screen
        self._folder = folder
        self._orders = orders(jobs)
        self._database = Database(folder / "orders.db")
        self._url = f"sqlite:///{folder / 'orders.db'}"
        self._deeds = Deeds()
        self._stack = ExitStack()
        self._workers: list[Child] = []
        self._dead: dict[Child, float] = {}
        self._give_up_at = time.monotonic() + GIVE_UP_AFTER

    async def run(self) -> list[Finding]:
        """Tell all of it, and return what came of it. Raises `DemoError` if a process cannot go on."""
        with self._stack:
            self._screen.act(1, f"{len(self._orders):,} orders, and a provider that fails")
            provider = self._stack.enter_context(Provider.start(FLAKY, folder=self._folder))
            shop = open_shop(self._url, provider.url)
            async with shop.hold:
                try:
                    await self._acts(shop, provider)
                except OverdueError as overdue:
                    self._screen.tell(str(overdue), style="red")
            found = findings(self._evidence(provider))
            calls = len(provider.calls())
        self._screen.act(6, "What was promised, and what happened")
        self._screen.tell(
            f"Checked against the provider's own log of {calls:,} calls, and against the database."
        )
        self._screen.verdict(found)
        return found

    async def _acts(self, shop: Shop, provider: Provider) -> None:
        await self._open(shop, provider)
        with self._screen.bar(len(self._orders)) as bar:
            now = await self._kill_workers(provider, bar)
        self._screen.tell(
            f"All have come to an end: {now.completed:,} completed, {now.failed} failed, after "
            f"{now.retries} retries. The provider {_faults(provider.calls())}."
        )
        await self._repair(shop, provider)
        await self._break_assistant(shop, provider)
        await self._submit_again(shop, provider)

    async def _open(self, shop: Shop, provider: Provider) -> None:
        self._screen.tell(
            "A provider listens on the loopback interface. Some of its answers are 503, some are 429 with "
            f"[cyan]Retry-After: {RETRY_AFTER.seconds}[/], some come late, and some connections are reset "
            "when the effect has taken place already."
        )
        handles = await self._submit(shop)
        self._deeds.submitted = dict(zip(handles, self._orders, strict=True))
        self._screen.tell(
            f"{len(handles):,} orders are submitted and on disk. Each has two or three stages, "
            "and every stage is a call to the provider."
        )
        self._start_worker(provider)
        self._screen.tell(f"Worker 1 starts, with {SLOTS} slots and leases of {LEASE}.")

    async def _submit(self, shop: Shop) -> list[str]:
        """Submit all orders, each under its key, and return the ids of their jobs."""
        handles = await asyncio.gather(
            *(
                shop.order.options(key=order.key).submit(order.number, order.destination)
                for order in self._orders
            )
        )
        return [handle.id for handle in handles]

    async def _kill_workers(self, provider: Provider, bar: Bar) -> Figures:
        self._screen.act(2, "kill -9")
        for part in KILL_AT:
            await self._watch(bar, self._is_at(part))
            self._kill_one(provider)
        return await self._watch(bar, lambda now: now.live == 0)

    def _is_at(self, part: float) -> Callable[[Figures], bool]:
        """Ask whether that part of the jobs has ended while the worker has others in its hands, or all have."""
        due = part * len(self._orders)
        return lambda now: now.live == 0 or (now.completed + now.failed >= due and now.running > 0)

    def _kill_one(self, provider: Provider) -> None:
        victim = self._workers[-1]
        victim.kill()
        held = self._database.held_by(victim.pid)
        self._deeds.kills.append(Kill(victim.pid, held))
        self._dead[victim] = time.monotonic()
        successor = self._start_worker(provider)
        self._screen.tell(
            f"[red]kill -9[/] {victim.name}, with {_count(held, 'job')} in its hands. "
            f"{successor.name.capitalize()} takes its place."
        )

    def _start_worker(self, provider: Provider) -> Child:
        worker = start_worker(
            len(self._workers) + 1, database_url=self._url, provider_url=provider.url, folder=self._folder
        )
        self._workers.append(self._stack.enter_context(worker))
        return worker

    async def _repair(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(3, "Failed for good, repaired, brought back")
        failed = await shop.hold.find(JobFilter(status=Status.FAILED, limit=len(self._orders)))
        self._screen.tell(f"{_count(failed, 'job')} failed for good: a 400 gets no better by itself.")
        self._show(failed)
        provider.follow(REPAIRED)
        self._deeds.retried = frozenset(job.id for job in failed)
        for job in failed:
            await shop.hold.retry(job.id)
        self._screen.tell(
            f"The provider learns the way to {UNSERVED}, and [cyan]hold.retry(job_id)[/] brings each back."
        )
        await self._watch(None, lambda now: now.live == 0)
        later = [place_of(entry.key) for entry in provider.calls() if generation_of(entry.key) > 1]
        charged = {place.job_id for place in later if place.stage == "charge"}
        self._screen.tell(
            f"They went on from the stage that had failed. Charged again: {_count(charged, 'order')}."
        )

    def _show(self, failed: Sequence[Job]) -> None:
        rows = [
            (
                self._deeds.submitted[job.id].key,
                job.stage or "",
                job.failure.error_class if job.failure else "",
                str(job.failure.upstream_status or "") if job.failure else "",
            )
            for job in failed[:3]
        ]
        if len(failed) > len(rows):
            rows.append((f"and {len(failed) - len(rows)} more", "", "", ""))
        self._screen.table(("order", "failed in stage", "class", "answer"), rows)

    async def _break_assistant(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(4, "A provider goes down, and comes back")
        calling = await self._call_in_vain(shop, provider)
        beside = await self._go_on_beside(shop, provider)
        provider.follow(ASSISTANT_BACK)
        healed_at = datetime.now(UTC)
        self._deeds.outage = Outage(ASSISTANT, COOLDOWN, calling, beside, healed_at)
        self._screen.tell("The assistant is well again. The next trials will find out.")
        await self._watch(None, lambda now: now.live == 0)
        after = datetime.now(UTC) - healed_at
        self._screen.tell(f"All {ADVICE} have their advice, {after.total_seconds():.1f} s after it got well.")

    async def _call_in_vain(self, shop: Shop, provider: Provider) -> frozenset[str]:
        """Break the assistant, and want something of it."""
        provider.follow(ASSISTANT_DOWN)
        advice = await shop.advice.submit_many((number,) for number in range(ADVICE))
        self._deeds.besides |= {job.id: ("advise",) for job in advice}
        self._screen.tell(f"An assistant answers 503 to everybody. {ADVICE} jobs want its advice.")
        await self._until_open(shop)
        self._screen.tell(
            f"After {_count(range(_asked(provider)), 'call')} its breaker is open: the jobs are held, "
            "and wait for it without a worker."
        )
        return frozenset(job.id for job in advice)

    async def _go_on_beside(self, shop: Shop, provider: Provider) -> frozenset[str]:
        """Have something else done, and see the assistant tried in vain."""
        asked = _asked(provider)
        receipts = await shop.receipt.submit_many((number,) for number in range(RECEIPTS))
        self._deeds.besides |= {job.id: ("print",) for job in receipts}
        await self._while_it_is_down(shop)
        trials = _count(range(_asked(provider) - asked), "trial call")
        self._screen.tell(
            f"{RECEIPTS} receipts came after them, and are printed. {ADVICE} jobs are held. Since then the "
            f"assistant has heard {trials}, up to three after each cooldown of {COOLDOWN.seconds} s."
        )
        return frozenset(job.id for job in receipts)

    async def _until_open(self, shop: Shop) -> None:
        """Wait until the assistant's breaker is open."""
        while (await shop.hold.providers.show(ASSISTANT)).state != "open":
            await self._watch(None, lambda _: True)
            await asyncio.sleep(TICK)

    async def _while_it_is_down(self, shop: Shop) -> None:
        """Wait until everybody is held who is not done, and two trials have failed."""
        while True:
            await self._watch(None, lambda now: now.live == now.parked)
            held = (await shop.hold.providers.show(ASSISTANT)).held
            events = await shop.hold.providers.events(ASSISTANT)
            if held == ADVICE and sum(event.kind == "opened" for event in events) > TRIALS_TO_FAIL:
                return
            await asyncio.sleep(TICK)

    async def _submit_again(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(5, "The same orders, submitted again")
        self._deeds.calls_before = len(provider.calls())
        job_ids = await self._submit(shop)
        self._deeds.again = {order.key: job_id for order, job_id in zip(self._orders, job_ids, strict=True)}
        new = set(job_ids) - self._deeds.submitted.keys()
        self._screen.tell(f"{len(job_ids):,} submissions under the same keys made {_count(new, 'new job')}.")
        quiet_at = time.monotonic() + SILENCE
        await self._watch(None, lambda now: now.live == 0 and time.monotonic() >= quiet_at)
        calls = len(provider.calls()) - self._deeds.calls_before
        self._screen.tell(
            f"{SILENCE:g} seconds later the provider has heard {_count(range(calls), 'new call')}."
        )
        if code := self._workers[-1].stop():
            raise DemoError(f"{self._workers[-1].name} was asked to stop, and ended with {code}")

    async def _watch(self, bar: Bar | None, enough: Callable[[Figures], bool]) -> Figures:
        """Follow the figures until they are *enough*. Raises `OverdueError`, or `DemoError` if the worker died."""
        while True:
            worker = self._workers[-1]
            now = self._database.figures(living=worker.pid)
            if bar is not None:
                bar.show(now)
            self._tell_of_reclaimed()
            if enough(now):
                return now
            worker.ensure_alive()
            if time.monotonic() > self._give_up_at:
                raise OverdueError(f"{now.live} jobs have not ended after {GIVE_UP_AFTER:g} s.")
            await asyncio.sleep(TICK)

    def _tell_of_reclaimed(self) -> None:
        """Say so when the last lease of a dead worker has run out."""
        for worker in [dead for dead in self._dead if not self._database.held_by(dead.pid)]:
            after = time.monotonic() - self._dead.pop(worker)
            self._screen.tell(f"The leases of {worker.name} have run out, {after:.1f} s after its death.")

    def _evidence(self, provider: Provider) -> Evidence:
        submitted = self._deeds.submitted
        return Evidence(
            submitted={job_id: order.stages for job_id, order in submitted.items()} | self._deeds.besides,
            keys={order.key: job_id for job_id, order in submitted.items()},
            again=self._deeds.again,
            calls_before=self._deeds.calls_before,
            calls=provider.calls(),
            books=self._database.books(),
            kills=self._deeds.kills,
            kills_planned=len(KILL_AT),
            retried=self._deeds.retried,
            budget=BUDGET,
            retry_after=RETRY_AFTER,
            outage=self._deeds.outage,
        )


def _asked(provider: Provider) -> int:
    """How often the assistant was called."""
    return sum(entry.route == "POST /effects/advise" for entry in provider.calls())


def _faults(calls: Sequence[Entry]) -> str:
    statuses = Counter(entry.status for entry in calls)
    resets = sum(entry.fault == "reset" for entry in calls)
    return f"answered {statuses[503]} times with 503 and {statuses[429]} with 429, and hung up {resets} times"


def _count(things: Collection[object], what: str) -> str:
    return f"{len(things):,} {what}{'' if len(things) == 1 else 's'}"
