"""What workers and submitters count, once per batch."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from holdfast import Backoff, Breaker, Holdfast, JobFailed, Retention, Status, current
from holdfast.core.jobs.job import EventKind
from holdfast.core.jobs.transitions import (
    Finish,
    Requeue,
    Transition,
    cancel,
    complete,
    park,
    release,
    time_out,
)
from holdfast.core.jobs.transitions import hold as hold_back
from holdfast.core.providers.holder import Holder
from holdfast.engine.options import WorkerOptions
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.submitter import Submitter
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.settler import Settler
from holdfast.errors import JobCancelled
from holdfast.ports import Store
from holdfast.telemetry.logs import StructuredLogger
from holdfast.telemetry.metric_catalog import COUNTERS, HISTOGRAMS, OUTCOMES, PROVIDER
from holdfast.telemetry.metric_registry import Key, MetricRegistry
from holdfast.types import Announcement
from holdfast.wiring.system import SystemClock, SystemRandom
from tests.builders import a_failure, a_job
from tests.contract import letters
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.steps import TIMEOUT
from tests.runtimes import a_runtime


def answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://gateway.test/v1")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


class Counting(MetricRegistry):
    """Metrics that signal when they change, and count how often they were called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.changed = asyncio.Event()

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        super().count(name, amount, **labels)
        self.calls += 1
        self.changed.set()

    async def reach(self, amount: int, name: str, **labels: str) -> None:
        """Wait until a counter has reached *amount*; a settled job is counted a moment later."""
        async with asyncio.timeout(TIMEOUT):
            while self.value(name, **labels) < amount:
                self.changed.clear()
                await self.changed.wait()

    def lengths(self, outcome: str) -> int:
        spread = self.histograms().get(("attempt_seconds", (("outcome", outcome),)))
        return 0 if spread is None else sum(spread.buckets)

    def all(self) -> set[Key]:
        """Name everything that was counted or measured, with its labels."""
        return {*self.counts(), *self.histograms()}


METRICS = {**COUNTERS, **HISTOGRAMS}
OF_PROVIDERS = {name for name, metric in METRICS.items() if PROVIDER in metric.labels}
OF_LETTERS = {
    "jobs_purged",
    "keys_purged",
    "letter_steps",
    "letters_archived",
    "letters_replayed",
    "letters_restored",
    "tickets",
}
OF_MESSAGES = {name for name in METRICS if name.startswith(("message", "announcement"))}
OF_FLEETS = {name for name in METRICS if name.startswith("dispatch")}
SERIES: set[Key] = {
    (name, labels) for name, metric in METRICS.items() for labels in metric.series(["llm", "main", "spare"])
}
"""Every series that the engine's metrics may have, as they are listed for dashboards."""


@pytest.fixture
def metrics() -> Iterator[Counting]:
    counting = Counting()
    yield counting
    assert counting.all() <= SERIES, "the engine counts what is listed, and nothing else"


@pytest.fixture
def hold(database: Database, metrics: Counting) -> Holdfast:
    return Holdfast(database.url, attempts=3, backoff=Backoff.none(), metrics=metrics)


@pytest.mark.clause("OBS-2")
async def test_jobs_are_counted_when_they_are_created_and_when_they_complete(
    hold: Holdfast, metrics: Counting
) -> None:
    @hold.job("quick")
    async def quick(number: int) -> int:
        return number

    async with hold, hold.worker(poll=0.05):
        for job in await quick.submit_many([(number,) for number in range(20)]):
            await job.result(timeout=TIMEOUT)
        await metrics.reach(20, "jobs_completed")

    assert metrics.value("jobs_created") == 20
    assert metrics.lengths("completed") == 20


@pytest.mark.clause("OBS-2")
async def test_failures_and_retries_are_counted_by_code(hold: Holdfast, metrics: Counting) -> None:
    @hold.job("flaky", attempts=3)
    async def flaky() -> None:
        raise answered(503)

    @hold.job("hopeless")
    async def hopeless() -> None:
        raise answered(404)

    async with hold, hold.worker(poll=0.05):
        for job in (await flaky.submit(), await hopeless.submit()):
            with pytest.raises(JobFailed):
                await job.result(timeout=TIMEOUT)
        await metrics.reach(1, "jobs_failed", code="GW_5XX")
        await metrics.reach(1, "jobs_failed", code="GW_4XX")

    assert metrics.value("retries_scheduled", code="GW_5XX") == 2
    assert metrics.value("retries_scheduled", code="GW_4XX") == 0
    assert (metrics.lengths("retry"), metrics.lengths("failed")) == (2, 2)


@pytest.mark.clause("OBS-2")
async def test_a_cancelled_job_is_counted(hold: Holdfast, metrics: Counting) -> None:
    begun = asyncio.Event()

    @hold.job("long")
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with hold, hold.worker(poll=0.05):
        job = await long.submit()
        await begun.wait()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)
        await metrics.reach(1, "jobs_cancelled")

    assert metrics.lengths("cancelled") == 1


@pytest.mark.clause("OBS-2")
async def test_a_job_that_times_out_while_it_runs_is_counted_once(hold: Holdfast, metrics: Counting) -> None:
    @hold.job("long", deadline=1.0)
    async def long() -> None:
        await asyncio.Event().wait()

    async with hold, hold.worker(poll=0.05):
        job = await long.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)
        await metrics.reach(1, "jobs_timed_out")

    assert metrics.value("jobs_timed_out") == 1
    assert metrics.value("jobs_failed", code="EXPIRED") == 0


@pytest.mark.clause("OBS-2")
async def test_a_late_result_is_counted_and_its_job_timed_out_once(hold: Holdfast, metrics: Counting) -> None:
    over = asyncio.Event()

    @hold.job("late", deadline=1.0, on_deadline="finish")
    async def late() -> int:
        await over.wait()
        return 1

    async with hold, hold.worker(poll=0.05):
        job = await late.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)
        over.set()
        await metrics.reach(1, "results_late")

    assert metrics.value("jobs_timed_out") == 1
    assert metrics.value("jobs_completed") == 0
    assert metrics.lengths("late") == 1


async def test_waiting_jobs_are_counted_as_parked(hold: Holdfast, metrics: Counting) -> None:
    @hold.job("sleepy")
    async def sleepy() -> None:
        await hold.sleep(timedelta(milliseconds=50))

    async with hold, hold.worker(poll=0.05):
        await (await sleepy.submit()).result(timeout=TIMEOUT)
        await metrics.reach(1, "jobs_completed")

    assert metrics.value("jobs_parked") == 1
    assert metrics.lengths("parked") == 1


async def test_the_sink_is_called_per_batch_and_not_per_job(hold: Holdfast, metrics: Counting) -> None:
    @hold.job("quick")
    async def quick(number: int) -> int:
        return number

    async with hold:
        await quick.submit_many([(number,) for number in range(500)])
        async with hold.worker(poll=0.05):
            await metrics.reach(500, "jobs_completed")

    assert metrics.calls < 100


@pytest.mark.clause("OBS-2")
async def test_everything_that_is_listed_is_counted(
    hold: Holdfast, store: Store, clock: DatabaseClock, metrics: Counting
) -> None:
    """A metric that is listed and documented but never counted would stay zero without notice."""
    jobs = [a_job() for _ in range(9)] + [a_job(deadline=HOUR) for _ in range(3)]
    await Submitter(store, store_retry(), logger=QUIET, metrics=metrics).submit_many(jobs)
    claims = await store.claim("worker", "default", limit=len(jobs), lease=2 * HOUR)
    async with hold:
        await hold.signal(jobs[0].id, "go")

    done, failed, again, cancelled, parked, held, released, lost, lost_too, *due = claims
    await settle(
        store,
        metrics,
        complete(done, "1"),
        Finish(failed.id, failed.token, Status.FAILED, failure=a_failure()),
        Requeue(again.id, again.token, EventKind.RETRY, delay=HOUR, failure=a_failure()),
        cancel(cancelled),
        park(parked, "asleep", delay=2 * HOUR, seen=0, awaits=False),
        hold_back(held, "llm is open", held_by=Holder("llm")),
        release(released, "worker shut down"),
        complete(lost._replace(token=lost.token - 1), "1"),
    )
    await clock.advance(HOUR)
    timed_out, late, _ = due
    await settle(
        store,
        metrics,
        time_out(timed_out),
        complete(late, "1"),
    )
    await maintenance(store, metrics).run_once()  # it ends one that is overdue, ...
    await clock.advance(2 * HOUR)
    await maintenance(store, metrics).run_once()  # ... and takes back two whose leases are over

    assert metrics.value("jobs_timed_out") == len(due)
    assert metrics.value("jobs_reclaimed") == len([lost, lost_too])
    others = OF_PROVIDERS | OF_LETTERS | OF_MESSAGES | OF_FLEETS
    assert {name for name, _ in metrics.all()} == {*METRICS} - others | {"jobs_held"}
    assert {outcome for outcome in OUTCOMES if metrics.lengths(outcome)} == set(OUTCOMES)


class Counted(BaseModel):
    """A message about a job."""

    number: int


@pytest.mark.clause("OBS-2")
async def test_announcements_are_counted(database: Database, logger: Logger, metrics: Counting) -> None:
    def render(announcement: Announcement) -> Counted:
        if announcement.args["number"]:
            raise RuntimeError("it cannot be rendered")
        return Counted(number=0)

    async with letters.opened(database, logger, metrics=metrics) as hold:
        hold.broker("local", lambda _: None)
        hold.message("counted")(Counted)

        @hold.job("count", announce={"completed": render})
        async def count(number: int) -> None: ...

        await count.submit_many([(0,), (1,)])
        async with asyncio.timeout(TIMEOUT), hold.worker(poll=0.05):
            while not (metrics.value("announcements_rendered") and metrics.value("announcements_failed")):
                await asyncio.sleep(0.01)

    assert metrics.value("announcements_rendered") == 1


@pytest.mark.clause("OBS-2")
async def test_everything_about_dead_letters_is_counted(
    database: Database, logger: Logger, clock: DatabaseClock, metrics: Counting, tmp_path: Path
) -> None:
    kept = Retention(finished=HOUR, keys=HOUR)
    options: dict[str, Any] = {"metrics": metrics, "retention": kept, "archive": str(tmp_path / "archive")}
    async with letters.opened(database, logger, **options) as hold:
        broken = [True]

        @hold.job("grade", attempts=1)
        async def grade() -> None:
            if broken[0]:
                raise TimeoutError("no answer")

        job_id = await letters.failed(hold, grade)
        await letters.notify_tickets(hold)
        await hold.dead_letters.archive(beyond=0)
        await hold.dead_letters.restore(job_id)
        broken[0] = False
        async with hold.worker(poll=0.05):
            await (await grade.options(key="k").submit()).result(timeout=TIMEOUT)
            await letters.replayed(hold, clock, await letters.planned(hold, job_id))
        await clock.advance(2 * HOUR)
        await letters.run_archiver(hold, clock)

    assert {name for name, _ in metrics.all()} >= OF_LETTERS


@pytest.mark.clause("OBS-2")
async def test_everything_about_providers_is_counted(hold: Holdfast, metrics: Counting) -> None:
    breaker = Breaker(window=2, minimum=2, cooldown=0.05, trials=1)
    llm = hold.provider("llm", breaker=breaker, concurrency=1)
    spare = hold.provider("spare")
    main = hold.provider("main", backup=spare)
    healed = asyncio.Event()

    @hold.stage(provider=llm, attempts=20)
    async def ask(number: int) -> int:
        if not healed.is_set():
            raise ConnectionRefusedError
        return number

    @hold.stage(provider=main)
    async def ask_main() -> str | None:
        return current().provider

    @hold.job("asking")
    async def asking(number: int) -> int:
        return await ask(number)

    @hold.job("asking main")
    async def asking_main() -> str | None:
        return await ask_main()

    async with hold, hold.worker(poll=0.05):
        await hold.providers.open("main", actor="ada")
        jobs = await asking.submit_many([(number,) for number in range(4)])
        await metrics.reach(1, "provider_openings", provider="llm")
        await metrics.reach(1, "jobs_held", provider="llm")
        await metrics.reach(1, "provider_trials", provider="llm")
        healed.set()
        for job in jobs:
            await job.result(timeout=TIMEOUT)
        assert await (await asking_main.submit()).result(timeout=TIMEOUT) == "spare"

    assert {name for name, _ in metrics.all()} >= OF_PROVIDERS
    assert metrics.value("provider_calls", provider="llm", outcome="success") == len(jobs)
    assert metrics.value("provider_calls", provider="llm", outcome="failure") >= breaker.minimum
    assert metrics.value("provider_backups", provider="main") == 1
    assert metrics.value("provider_calls", provider="spare", outcome="success") == 1
    assert metrics.value("provider_calls", provider="main", outcome="success") == 0
    assert metrics.value("jobs_failed", code="IO_ERROR") == 0


HOUR = timedelta(hours=1)
QUIET = StructuredLogger(level="CRITICAL")


def store_retry() -> StoreRetry:
    return StoreRetry(SystemClock(), SystemRandom())


def maintenance(store: Store, metrics: Counting) -> Maintenance:
    runtime = a_runtime(
        store=store, clock=SystemClock(), random=SystemRandom(), logger=QUIET, metrics=metrics
    )
    return Maintenance(runtime, WorkerOptions(), lambda: None)


async def settle(store: Store, metrics: Counting, *changes: Transition) -> None:
    """Have *changes* written and counted as by a worker."""
    runtime = a_runtime(
        store=store,
        store_retry=store_retry(),
        describe=str,
        logger=QUIET,
        metrics=metrics,
        development=False,
    )
    settler = Settler("worker", runtime)
    for change in changes:
        settler.post(AttemptOutcome(change, 1, 0.1))
    await settler.drain()
