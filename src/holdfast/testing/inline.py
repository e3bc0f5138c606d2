"""Jobs that run where they are submitted, for tests of what a job does."""

import asyncio
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.job import Claim, Job, Receipt, Submission
from holdfast.core.messages.broker_message import IncomingMessage
from holdfast.core.messages.inbox import Received, ReceivedAs
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.attempt_failures import FailureTexts
from holdfast.engine.execution.attempt_runtime import AttemptRuntime
from holdfast.engine.execution.execution_state import Ended
from holdfast.engine.messages.announcer import Announcer
from holdfast.engine.registry import ConsumerSpec, JobSpec, Registry
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.engine.worker.scheduler import Scheduler
from holdfast.engine.worker.settler import Settler
from holdfast.engine.worker.unrunnable import Unrunnable
from holdfast.engine.worker.worker import Worker
from holdfast.testing.callers_thread import PlainFunctionExecutor
from holdfast.testing.captured_messages import CapturedMessages, PublishedMessage
from holdfast.testing.database import TemporaryFileExecutor, TemporaryStore
from holdfast.testing.delegation import Twin, delegated_to
from holdfast.testing.memory_archive import MemoryArchive, isolated_letter_options
from holdfast.testing.seeded_system import SeededRandom
from holdfast.wiring.system import SystemClock

NAME = "inline"
LEASE = timedelta(days=365)
MANY = 1_000
DEEPEST = 100

_DEPTH: ContextVar[int] = ContextVar("holdfast_inline_depth", default=0)


@contextmanager
def inline(hold: Holdfast, *, start: datetime | None = None) -> "Iterator[InlineJobs]":
    """Run each job of *hold* where it is submitted, while the block runs.

    `submit` returns when the job has ended, after all its retries, without waiting between them or for a delay.
    Recurring jobs that are due in the skipped time run, too. The block gets a list, to which each job is added as it
    ends; its attribute `published` lists the messages that were published, none of which is sent. Jobs are stored in a
    temporary database. *start* is the time at the beginning, by default the current time.
    Raises `ConfigError` while *hold* is in another block or simulation.
    """
    if start is not None and start.tzinfo is None:
        raise ConfigError("start must have a time zone; use an aware datetime")
    file, functions, clock = TemporaryFileExecutor(), PlainFunctionExecutor(), _SkippingClock(start)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        runtime = replace(
            hold.runtime,
            store=TemporaryStore(str(Path(folder) / "jobs.db"), clock=clock, writing=file, reading=file),
            clock=clock,
            random=SeededRandom(random.Random(0)),
            executor=functions,
            watchdog=None,
            development=False,
            open_broker=None,
            letters=isolated_letter_options(hold.runtime.letters, MemoryArchive()),
        )
        inliner = _Inliner(runtime, clock, functions)
        twin = _InlineTwin(hold, runtime, inliner)
        try:
            with delegated_to(hold, lambda: twin):
                yield inliner.ended
        finally:
            file.close_connections()
            functions.close()


class InlineJobs(list[Job]):
    """The jobs that have ended in an `inline` block, in order, with the messages that were published."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.captured = CapturedMessages(registry)

    @property
    def published(self) -> list[PublishedMessage]:
        """The messages that were published in the block, in order."""
        return self.captured.published


class _SkippingClock(SystemClock):
    """The system clock, plus the time that was skipped."""

    def __init__(self, start: datetime | None) -> None:
        self._skipped = timedelta(0) if start is None else start - super().now()

    def now(self) -> datetime:
        return super().now() + self._skipped

    def skip(self, length: timedelta) -> None:
        """Move the clock forward by *length*."""
        self._skipped += length


class _InlineTwin(Twin):
    """Runs every job to its end before a submission returns."""

    def __init__(self, original: Holdfast, runtime: Runtime, inliner: "_Inliner") -> None:
        super().__init__(original, runtime, inliner.ended.captured)
        self._inliner = inliner
        self._users = _SingleLoopGuard()

    async def _submit(self, batch: Sequence[Submission], within: Any = None) -> list[Receipt]:
        with self._users.enter():
            receipts = await super()._submit(batch)
            for receipt, submission in zip(receipts, batch, strict=True):
                if not receipt.existing:
                    await self._inliner.finish(receipt.id, submission.queue)
        return receipts

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        with self._users.enter():
            job = await super().retry(job_id, owner=owner)
            await self._inliner.finish(job.id, job.queue)
        return await self.read(job.id)

    async def _receive(self, spec: ConsumerSpec, message: IncomingMessage) -> Received:
        with self._users.enter():
            received = await super()._receive(spec, message)
            if received.outcome is ReceivedAs.NEW and received.job_id is not None:
                job = await self.read(received.job_id)
                await self._inliner.finish(job.id, job.queue)
        return received

    @asynccontextmanager
    async def worker(self, **_: Any) -> AsyncIterator[Worker]:
        """Return an idle worker: all jobs have already run."""
        idle = Worker(NAME, self.runtime, self.settings.worker_options)
        idle.ready.set()
        yield idle


class _Inliner:
    """Runs jobs in the caller, with the engine's own attempts and on the real store."""

    def __init__(self, runtime: Runtime, clock: _SkippingClock, functions: PlainFunctionExecutor) -> None:
        self.ended = InlineJobs(runtime.registry)
        self._runtime = runtime
        self._store = runtime.store
        self._clock = clock
        self._functions = functions
        self._scheduler = Scheduler(runtime)
        self._announcer = Announcer(runtime)
        self._underway: dict[str, asyncio.Task[None]] = {}
        self._claiming: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def finish(self, job_id: str, queue: str) -> None:
        """Run attempts until the job has ended; a concurrent caller may already be running it."""
        if _DEPTH.get() >= DEEPEST:
            raise ConfigError(
                f"jobs submit each other, {DEEPEST} deep, and inline() would never end; use a simulation"
            )
        while not (await self._store.get(job_id)).status.ended:
            if job_id in self._underway:
                await asyncio.wait([self._underway[job_id]])
            elif not (
                await self._run_next(queue) or await self._run_recurring() or await self._skip_to_next()
            ):
                return

    async def _run_recurring(self) -> bool:
        """Run the next job in the queues of recurring jobs; return whether there was one."""
        for queue in sorted({recurring.job.queue for recurring in self._runtime.registry.recurring}):
            if await self._run_next(queue):
                return True
        return False

    async def _run_next(self, queue: str) -> bool:
        """Run the next job that is ready; return whether there was one."""
        async with self._claiming.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            claims = await self._store.claim(NAME, queue, limit=1, lease=LEASE)
            for claim in claims:
                self._underway[claim.id] = asyncio.create_task(self._attempt(claim))
        for claim in claims:
            try:
                await self._underway[claim.id]
            finally:
                del self._underway[claim.id]
        return bool(claims)

    async def _skip_to_next(self) -> bool:
        """Skip to the time of the next parked job, or of an earlier tick; return whether there was one."""
        await self._store.wake(limit=MANY)
        promotion = await self._store.promote(limit=MANY)
        if promotion.promoted or promotion.next_due is None:
            return promotion.promoted > 0
        tick = await self._until_tick()
        if tick is not None and tick <= promotion.next_due:
            self._clock.skip(tick)
            await self._scheduler.run_once()
            return True
        self._clock.skip(promotion.next_due)
        return (await self._store.promote(limit=MANY)).promoted > 0

    async def _until_tick(self) -> timedelta | None:
        """Return the time until a recurring job is due; None without recurring jobs."""
        schedules = [recurring.schedule for recurring in self._runtime.registry.recurring]
        if not schedules:
            return None
        names = [schedule.name for schedule in schedules]
        await self._store.schedules.begin(names)
        now, last_ticks = await self._store.schedules.last_ticks(names)
        return max(min(next(each.ticks(last_ticks[each.name])) for each in schedules) - now, timedelta(0))

    async def _attempt(self, claim: Claim) -> None:
        """Run one attempt and write its outcome, as a worker does."""
        _DEPTH.set(_DEPTH.get() + 1)
        spec, settler, began = (
            self._runtime.registry.get(claim.name),
            Settler(NAME, self._runtime),
            self._clock.monotonic(),
        )
        rows = await self._store.stages([claim.id]) if claim.stages else []
        signals = await self._store.signals([claim.id]) if claim.signals else []
        attempt = Attempt(claim, spec, self._attempt_runtime(spec, settler))
        attempt.load({row.key: row for row in rows}, signals)
        change = await attempt.run()
        seconds = self._clock.monotonic() - began
        if isinstance(change, Ended):
            settler.report(AttemptOutcome.of(claim, change.end)._replace(seconds=seconds), change.settled)
        elif change is not None:
            settler.post(AttemptOutcome.of(claim, change)._replace(seconds=seconds))
            await settler.drain()
        await self._announce()
        job = await self._store.get(claim.id)
        if job.status.ended:
            self.ended.append(job)
        if _cancelled():
            raise asyncio.CancelledError  # the attempt has absorbed it, but the submitter was cancelled

    async def _announce(self) -> None:
        """Render the announcements of what the attempt led to."""
        if any(spec.announce for spec in self._runtime.registry):
            while await self._announcer.run_once() == 0.0:
                pass  # of each job, only the oldest announcement was rendered

    def _attempt_runtime(self, spec: JobSpec | None, settler: Settler) -> AttemptRuntime:
        loop = asyncio.get_running_loop()
        thread = None if spec is None or spec.is_async else self._functions.thread_of_job(loop)
        return AttemptRuntime(
            settler=settler,
            unrunnable=Unrunnable(NAME, self._clock, self._runtime.logger),
            failures=FailureTexts(self._runtime.classifier),
            random=self._runtime.random,
            executor=thread or self._functions,
            logger=self._runtime.logger,
            store=self._store,
            store_retry=self._runtime.store_retry,
            loop=thread or loop,  # type: ignore[arg-type]  # as much of a loop as a thread needs
            closing=_cancelled,
            code_version=self._runtime.letters.code_version,
            allowed=self._runtime.redactor.context,
            bind_job=self._runtime.bind_job,
        )


class _SingleLoopGuard:
    """Allows concurrent users on one event loop; another loop may be used after all have left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Count a user while the block runs."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._count and self._loop is not loop:
                raise ConfigError(
                    "jobs are being run inline on another event loop at this moment; submit them one after the other"
                )
            self._loop, self._count = loop, self._count + 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
