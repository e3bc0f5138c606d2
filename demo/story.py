"""The course of the demo: what it does to the shop, and what it records for the checks."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.markup import escape

from demo.app import API_KEY, ASSISTANT, BUDGET, COOLDOWN, Shop, open_shop
from demo.books import Database, JobCounts
from demo.checks import findings
from demo.evidence import Evidence, Finding, Kill, Outage, generation_of, place_of
from demo.orders import MEANT, MISSPELT, SLIP, UNSERVED, Order, orders
from demo.processes import LEASE, SLOTS, Child, DemoError, Provider, start_worker
from demo.screen import Bar, Screen
from demo.trouble import ASSISTANT_BACK, ASSISTANT_DOWN, FLAKY, REPAIRED, RETRY_AFTER
from holdfast.operations import Letter, LetterFilter, LetterState
from holdfast.telemetry.logs import StructuredLogger
from holdfast_simulator import Entry

KILL_AT = (0.2, 0.45, 0.7)
"""The fractions of ended jobs at which a worker is killed."""

ADVICE = 40
RECEIPTS = 40
"""The number of jobs that call the provider that fails, and of jobs that run meanwhile."""

OPERATOR = "ann"
ALL = LetterFilter(limit=1_000)
PACE = 50.0
"""Dead letters a second that follow the canary."""

VERIFIED = LetterState.VERIFIED
SECRETS = (API_KEY, "@example.org", "%40example.org")
"""What is in every call, and must not be in a dead letter or a log: a key, and the customers' addresses."""

TICK = 0.15
TRIALS_TO_FAIL = 2
GIVE_UP_AFTER = 110.0
SILENCE = 2.0
"""Seconds after which a worker with a ready job would certainly have started it."""


class OverdueError(Exception):
    """The jobs did not end in time. The checks report what is missing."""


@dataclass
class Deeds:
    """What the demo has done so far."""

    submitted: dict[str, Order] = field(default_factory=dict)
    besides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    calls_before: int = 0
    kills: list[Kill] = field(default_factory=list)
    replayed: frozenset[str] = frozenset()
    corrected: frozenset[str] = frozenset()
    outage: Outage | None = None


class Story:
    """One run of the demo. Its processes end with the block that it is entered in."""

    def __init__(self, screen: Screen, folder: Path, *, jobs: int) -> None:
        self._screen = screen
        self._folder = folder
        self._orders = orders(jobs)
        self._database = Database(folder / "orders.db")
        self._url = f"sqlite:///{folder / 'orders.db'}"
        self._operator_log = folder / "operator.log"
        self._deeds = Deeds()
        self._stack = ExitStack()
        self._workers: list[Child] = []
        self._dead: dict[Child, float] = {}
        self._give_up_at = time.monotonic() + GIVE_UP_AFTER

    async def run(self) -> list[Finding]:
        """Run all parts, and return the findings. Raises `DemoError` if a process cannot continue."""
        with self._stack:
            self._screen.act(1, f"{len(self._orders):,} orders, and a provider that fails")
            provider = self._stack.enter_context(Provider.start(FLAKY, folder=self._folder))
            logger = StructuredLogger(stream=self._stack.enter_context(self._operator_log.open("w")))
            shop = open_shop(self._url, provider.url, logger=logger)
            async with shop.hold:
                try:
                    await self._acts(shop, provider)
                except OverdueError as overdue:
                    self._screen.report(str(overdue), style="red")
            found = findings(self._evidence(provider))
            calls = len(provider.calls())
        self._screen.act(6, "What was promised, and what happened")
        self._screen.report(
            f"Checked against the provider's own log of {calls:,} calls, and against the database."
        )
        self._screen.verdict(found)
        return found

    async def _acts(self, shop: Shop, provider: Provider) -> None:
        await self._open(shop, provider)
        with self._screen.bar(len(self._orders)) as bar:
            now = await self._kill_workers(provider, bar)
        self._screen.report(
            f"All have ended: {now.completed:,} completed, {now.failed} failed, after "
            f"{now.retries} retries. The provider {_faults(provider.calls())}."
        )
        await self._repair(shop, provider)
        await self._break_assistant(shop, provider)
        await self._submit_again(shop, provider)

    async def _open(self, shop: Shop, provider: Provider) -> None:
        self._screen.report(
            "A provider listens on the loopback interface. Some of its answers are 503, some are 429 with "
            f"[cyan]Retry-After: {RETRY_AFTER.seconds}[/], some come late, and some connections are reset "
            "after the effect has taken place."
        )
        handles = await self._submit(shop)
        self._deeds.submitted = dict(zip(handles, self._orders, strict=True))
        self._screen.report(
            f"{len(handles):,} orders are submitted and on disk. Each has two or three stages, "
            "and every stage is a call to the provider."
        )
        self._start_worker(provider)
        self._screen.report(f"Worker 1 starts, with {SLOTS} slots and leases of {LEASE}.")

    async def _submit(self, shop: Shop) -> list[str]:
        """Submit all orders, each under its key, and return the ids of their jobs."""
        handles = await asyncio.gather(
            *(
                shop.order.options(key=order.key).submit(order.number, order.destination)
                for order in self._orders
            )
        )
        return [handle.id for handle in handles]

    async def _kill_workers(self, provider: Provider, bar: Bar) -> JobCounts:
        self._screen.act(2, "kill -9")
        for part in KILL_AT:
            await self._watch(bar, self._is_at(part))
            self._kill_one(provider)
        return await self._watch(bar, lambda now: now.live == 0)

    def _is_at(self, part: float) -> Callable[[JobCounts], bool]:
        """Return a condition: that fraction of the jobs has ended while the worker runs others, or all have ended."""
        due = part * len(self._orders)
        return lambda now: now.live == 0 or (now.completed + now.failed >= due and now.running > 0)

    def _kill_one(self, provider: Provider) -> None:
        victim = self._workers[-1]
        victim.kill()
        held = self._database.held_by(victim.pid)
        self._deeds.kills.append(Kill(victim.pid, held))
        self._dead[victim] = time.monotonic()
        successor = self._start_worker(provider)
        self._screen.report(
            f"[red]kill -9[/] {victim.name}, while it runs {_count(held, 'job')}. "
            f"{successor.name.capitalize()} takes its place."
        )

    def _start_worker(self, provider: Provider) -> Child:
        worker = start_worker(
            len(self._workers) + 1, database_url=self._url, provider_url=provider.url, folder=self._folder
        )
        self._workers.append(self._stack.enter_context(worker))
        return worker

    async def _repair(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(3, "Dead letters, and their repair")
        letters = await shop.hold.dead_letters.list(ALL)
        self._deeds.replayed = frozenset(letter.job_id for letter in letters)
        self._screen.report(
            f"{_count(letters, 'job')} failed for good, and left a dead letter each: a retry does not help against a 400."
        )
        self._show(letters)
        token = await self._plan(shop, provider)
        await shop.hold.dead_letters.replay(token, actor=OPERATOR)
        await self._until_verified(shop, token)
        later = [place_of(entry.key) for entry in provider.calls() if generation_of(entry.key) > 1]
        charged = {place.job_id for place in later if place.stage == "charge"}
        closed = await shop.hold.dead_letters.close(ALL, "shipped after all", actor=OPERATOR)
        self._screen.report(
            f"{_count(closed.done, 'letter')} verified, and closed with a note. They continued at the stage that had "
            f"failed. Charged again: {_count(charged, 'order')}."
        )

    def _show(self, letters: Sequence[Letter]) -> None:
        oldest = list(reversed(letters))[:3]
        rows = [
            (
                self._deeds.submitted[letter.job_id].key,
                self._deeds.submitted[letter.job_id].destination or "",
                letter.stage or "",
                letter.error_class.value,
                str(letter.failure.upstream_status or ""),
            )
            for letter in oldest
        ]
        if len(letters) > len(rows):
            rows.append((f"and {len(letters) - len(rows)} more", "", "", "", ""))
        self._screen.table(("order", "destination", "failed in stage", "class", "answer"), rows)
        for letter in oldest[:1]:
            said, *_ = letter.failure.message.partition(" For more information")
            self._screen.report(f"The first says, without the key that was in it: [dim]{escape(said)}[/]")

    async def _plan(self, shop: Shop, provider: Provider) -> str:
        """Take the steps of an operator up to a plan, and return its token."""
        dead, by_number = (
            shop.hold.dead_letters,
            {order.number: job for job, order in self._deeds.submitted.items()},
        )
        slip = by_number[SLIP]
        await dead.triage(ALL, "configuration", actor=OPERATOR, reason=f"there is no route to {UNSERVED}")
        await dead.triage(slip, "data", actor=OPERATOR, reason="misspelt")
        provider.follow(REPAIRED)
        await dead.remediate(ALL, f"the provider has a route to {UNSERVED}", actor=OPERATOR)
        correct = {"destination": MEANT}
        await dead.remediate(slip, "the customer was asked", actor=OPERATOR, correct=correct)
        self._deeds.corrected = frozenset({slip})
        self._screen.report(
            f"[cyan]triage[/], [cyan]remediate[/]: the provider gets a route to {UNSERVED}, and order-{SLIP} gets "
            f"other input, {MEANT} instead of {MISSPELT}. Cause and evidence are on record."
        )
        planned = await dead.plan(ALL, safe="every call has a key", actor=OPERATOR, canary=1, pace=PACE)
        if planned.token is None:
            raise DemoError(f"there is nothing to replay: {planned.refused}")
        self._screen.report(
            f"[cyan]plan[/], [cyan]replay[/]: a dry run finds {len(planned.ready)} of {len(planned.checks)} ready, and "
            "that what is charged stays charged. One goes first, as a canary."
        )
        return planned.token

    async def _until_verified(self, shop: Shop, token: str) -> None:
        """Wait until the jobs of all letters have completed, and report when the canary has."""
        alone = True
        while True:
            plan, standing = await shop.hold.dead_letters.progress(token)
            if alone and standing.count(VERIFIED):
                alone = False
                self._screen.report("The canary has completed; the others follow.")
            if standing.count(VERIFIED) == plan.letters or plan.phase == "stopped":
                return
            await self._pause()

    async def _break_assistant(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(4, "A provider goes down, and comes back")
        calling = await self._call_in_vain(shop, provider)
        beside = await self._go_on_beside(shop, provider)
        provider.follow(ASSISTANT_BACK)
        healed_at = datetime.now(UTC)
        self._deeds.outage = Outage(ASSISTANT, COOLDOWN, calling, beside, healed_at)
        self._screen.report("The assistant works again. The next trials will find out.")
        await self._watch(None, lambda now: now.live == 0)
        after = datetime.now(UTC) - healed_at
        self._screen.report(
            f"All {ADVICE} have their advice, {after.total_seconds():.1f} s after it recovered."
        )

    async def _call_in_vain(self, shop: Shop, provider: Provider) -> frozenset[str]:
        """Break the assistant, and submit jobs that call it."""
        provider.follow(ASSISTANT_DOWN)
        advice = await shop.advice.submit_many((number,) for number in range(ADVICE))
        self._deeds.besides |= {job.id: ("advise",) for job in advice}
        self._screen.report(f"An assistant answers every call with 503. {ADVICE} jobs need its advice.")
        while (await shop.hold.providers.show(ASSISTANT)).state != "open":
            await self._pause()
        self._screen.report(
            f"After {_count(range(_asked(provider)), 'call')} its breaker is open: the jobs are held, "
            "and wait for it without a worker."
        )
        return frozenset(job.id for job in advice)

    async def _go_on_beside(self, shop: Shop, provider: Provider) -> frozenset[str]:
        """Run other jobs while trial calls to the assistant fail."""
        asked = _asked(provider)
        receipts = await shop.receipt.submit_many((number,) for number in range(RECEIPTS))
        self._deeds.besides |= {job.id: ("print",) for job in receipts}
        await self._while_it_is_down(shop)
        trials = _count(range(_asked(provider) - asked), "trial call")
        self._screen.report(
            f"{RECEIPTS} receipts came after them, and are printed. {ADVICE} jobs are held. Since then the "
            f"assistant has received {trials}, up to three after each cooldown of {COOLDOWN.seconds} s."
        )
        return frozenset(job.id for job in receipts)

    async def _while_it_is_down(self, shop: Shop) -> None:
        """Wait until every job that has not ended is held, and two trials have failed."""
        while True:
            await self._watch(None, lambda now: now.live == now.parked)
            held = (await shop.hold.providers.show(ASSISTANT)).held
            events = await shop.hold.providers.events(ASSISTANT)
            if held == ADVICE and sum(event.kind == "opened" for event in events) > TRIALS_TO_FAIL:
                return
            await self._pause()

    async def _submit_again(self, shop: Shop, provider: Provider) -> None:
        self._screen.act(5, "The same orders, submitted again")
        self._deeds.calls_before = len(provider.calls())
        job_ids = await self._submit(shop)
        self._deeds.again = {order.key: job_id for order, job_id in zip(self._orders, job_ids, strict=True)}
        new = set(job_ids) - self._deeds.submitted.keys()
        self._screen.report(
            f"{len(job_ids):,} submissions under the same keys made {_count(new, 'new job')}."
        )
        quiet_at = time.monotonic() + SILENCE
        await self._watch(None, lambda now: now.live == 0 and time.monotonic() >= quiet_at)
        calls = len(provider.calls()) - self._deeds.calls_before
        self._screen.report(
            f"{SILENCE:g} seconds later the provider has received {_count(range(calls), 'new call')}."
        )
        if code := self._workers[-1].stop():
            raise DemoError(f"{self._workers[-1].name} was asked to stop, and ended with {code}")

    async def _watch(self, bar: Bar | None, enough: Callable[[JobCounts], bool]) -> JobCounts:
        """Read the counts until they are *enough*. Raises `OverdueError`, or `DemoError` if the worker died."""
        while True:
            worker = self._workers[-1]
            now = self._database.job_counts(living=worker.pid)
            if bar is not None:
                bar.show(now)
            self._report_reclaimed()
            if enough(now):
                return now
            worker.ensure_alive()
            if time.monotonic() > self._give_up_at:
                raise OverdueError(f"{now.live} jobs have not ended after {GIVE_UP_AFTER:g} s.")
            await asyncio.sleep(TICK)

    async def _pause(self) -> None:
        """Wait a moment. Raises what `_watch` raises, so that no wait is endless."""
        enough = iter((False, True))
        await self._watch(None, lambda _: next(enough))

    def _report_reclaimed(self) -> None:
        """Report when the last lease of a dead worker has expired."""
        for worker in [dead for dead in self._dead if not self._database.held_by(dead.pid)]:
            after = time.monotonic() - self._dead.pop(worker)
            self._screen.report(f"The leases of {worker.name} have expired, {after:.1f} s after its death.")

    def _evidence(self, provider: Provider) -> Evidence:
        submitted = self._deeds.submitted
        logs = [self._operator_log, *(worker.output for worker in self._workers)]
        return Evidence(
            submitted={job_id: order.stages for job_id, order in submitted.items()} | self._deeds.besides,
            keys={order.key: job_id for job_id, order in submitted.items()},
            again=self._deeds.again,
            calls_before=self._deeds.calls_before,
            calls=provider.calls(),
            books=self._database.books(),
            kills=self._deeds.kills,
            kills_planned=len(KILL_AT),
            replayed=self._deeds.replayed,
            budget=BUDGET,
            retry_after=RETRY_AFTER,
            outage=self._deeds.outage,
            corrected=self._deeds.corrected,
            secrets=SECRETS,
            logs=[line for log in logs for line in log.read_text(errors="replace").splitlines()],
        )


def _asked(provider: Provider) -> int:
    """Return how often the assistant was called."""
    return sum(entry.route == "POST /effects/advise" for entry in provider.calls())


def _faults(calls: Sequence[Entry]) -> str:
    statuses = Counter(entry.status for entry in calls)
    resets = sum(entry.fault == "reset" for entry in calls)
    return f"answered {statuses[503]} times with 503 and {statuses[429]} with 429, and reset {resets} connections"


def _count(things: Collection[object], what: str) -> str:
    return f"{len(things):,} {what}{'' if len(things) == 1 else 's'}"
