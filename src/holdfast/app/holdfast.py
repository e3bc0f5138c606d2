"""`Holdfast`: the one object that an application creates."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.aio.coroutines import run_here
from holdfast.app.current import ensure_going_on
from holdfast.app.current_job import job_that_can_wait, require_job
from holdfast.app.database import Database
from holdfast.app.declarations import Declarations
from holdfast.app.job_function import JobFunction
from holdfast.app.job_handle import JobHandle
from holdfast.app.messages.messaging import Messaging
from holdfast.app.portal import Portal
from holdfast.app.running import running
from holdfast.config import load_settings
from holdfast.core.dead_letters.retention import Retention
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError, StateRefused
from holdfast.core.failures.backoff import Backoff
from holdfast.core.failures.rules import Rule
from holdfast.core.jobs.job import End, Event, Job, JobFilter, Receipt, Submission
from holdfast.core.jobs.states import Status
from holdfast.core.names import ensure_name
from holdfast.core.redaction import Redactor
from holdfast.core.strict_json import encode, ensure_storable
from holdfast.core.within import ensure_blocking
from holdfast.engine.dead_letters.dead_letter_service import DeadLetterService
from holdfast.engine.messages.outbox_service import OutboxService
from holdfast.engine.messages.publisher import Publisher
from holdfast.engine.naming import name_and_queue
from holdfast.engine.operations.job_service import JobService
from holdfast.engine.operations.queue_service import QueueService
from holdfast.engine.operations.schedule_service import ScheduleService
from holdfast.engine.operations.store_access import StoreAccess, in_sync
from holdfast.engine.providers.provider_service import ProviderService
from holdfast.engine.registry import JobSpec
from holdfast.engine.result_waiter import ResultWaiter
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.submitter import Submitter
from holdfast.ports import Codec, Logger, Metrics, SchemaState
from holdfast.ports.schema import APPLY_LIMIT, LockWait
from holdfast.wiring.assemble import assemble

if TYPE_CHECKING:
    from holdfast.engine.worker.worker import Worker

T = TypeVar("T")


class Holdfast(Messaging, Declarations):
    """Declares jobs, stores their calls, and runs them.

    *url* is `sqlite:///file.db` or `postgresql://…`; without it `DATABASE_URL` decides. An option that is not given as an
    argument is read from the environment, then from the defaults of `Settings`. Applications that share a PostgreSQL
    database have a *schema* each, and do not see each other's jobs. A *codec* transforms arguments and results before
    they are stored, for example to encrypt them. A *redactor* removes secrets from messages, logs and dead letters. Dead
    letters are moved to the *archive*, a folder or `s3://bucket/prefix`, when their *retention* is over; a replay compares
    the *code_version* with that of the failure.

    Operators use its services: `jobs`, `dead_letters`, `providers`, `queues`, `schedules`, `outbox` and `database`. Each
    async method, here and there, has a twin for code without an event loop, whose name ends in `_sync`.

    >>> hold = Holdfast("sqlite:///holdfast.db")
    >>> @hold.job("greet")
    ... async def greet(name: str) -> str:
    ...     return f"hello {name}"
    >>> greet.name
    'greet'
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        strict_keys: bool = False,
        rules: Iterable[Rule] = (),
        redactor: Redactor | None = None,
        archive: str | None = None,
        retention: Retention | None = None,
        code_version: str | None = None,
        codec: Codec | None = None,
        logger: Logger | None = None,
        metrics: Metrics | None = None,
        assemble: Callable[..., Runtime] = assemble,
    ) -> None:
        settings = load_settings(
            database_url=url,
            database_schema=schema,
            retry_max_attempts=attempts,
            archive_url=archive,
            code_version=code_version,
        )
        super().__init__(settings, backoff=backoff)
        self.strict_keys = strict_keys
        self._assemble = partial(
            assemble,
            settings,
            registry=self._registry,
            rules=tuple(rules),
            redactor=redactor,
            retention=retention,
            hooks=self._hooks,
            logger=logger,
            metrics=metrics,
            **({} if codec is None else {"codec": codec}),
        )
        self._portal = Portal(self)
        self._use(self._assemble())

    def _use(self, runtime: Runtime) -> None:
        """Use *runtime* from now on: the real one, or that of a simulated world."""
        self.runtime = runtime
        self._submitter = Submitter(
            runtime.store,
            StoreRetry(runtime.clock, runtime.random),
            logger=runtime.logger,
            metrics=runtime.metrics,
        )
        self._publisher = Publisher(runtime.store, runtime.store_retry, metrics=runtime.metrics)
        self._waiter = self._new_waiter()
        self._opened = False
        self._opening = asyncio.Lock()
        self._make_services(runtime)

    def _make_services(self, runtime: Runtime) -> None:
        """Make the services for operators, on the store of *runtime*."""
        self.jobs = JobService(runtime, self._access("jobs"))
        self.dead_letters = DeadLetterService(runtime, self._access("dead_letters"))
        self.providers = ProviderService(runtime, self._access("providers"))
        self.queues = QueueService(runtime, self._access("queues"))
        self.schedules = ScheduleService(runtime, self._access("schedules"))
        self.outbox = OutboxService(runtime, self._access("outbox"))
        self.database = Database(runtime, self._access("database"), lambda: self._url)

    def _access(self, service: str) -> StoreAccess:
        def run_sync(method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
            return self._portal.run(method, lambda hold: call(getattr(hold, service)))

        return StoreAccess(self.open, self._open_for_change, run_sync)

    def _twin(self) -> "Holdfast":
        """Return a Holdfast with the same declarations and its own connections, for another event loop."""
        twin = copy(self)
        twin._use(replace(self._assemble(), logger=self.runtime.logger, metrics=self.runtime.metrics))
        return twin

    def _run_sync(self, method: str, call: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        return self._portal.run(method, call)

    @property
    def _url(self) -> str:
        """The address of the database with the jobs."""
        return self.settings.database_url

    def _new_waiter(self) -> ResultWaiter:
        return ResultWaiter(self.runtime.store, self.runtime.random, poll=self.settings.worker_options.poll)

    def _job_function(self, spec: JobSpec) -> JobFunction[..., Any]:
        return JobFunction(self, spec)

    async def open(self) -> None:
        """Connect to the store. Every method that needs the store does this first."""
        if self._opened:
            return
        async with self._opening:  # concurrent first calls open it once
            if not self._opened:
                await self.runtime.store.open()
                self.runtime.redactor.rekey(await self.runtime.store.redaction_key())
                self._opened = True

    async def _open_for_change(self) -> None:
        """Connect for a change; inside a job that is being parked, nothing may take effect any more."""
        ensure_going_on()
        await self.open()

    async def close(self) -> None:
        """Disconnect from the store, after everything that was submitted is stored."""
        await self._submitter.drain()
        await self._publisher.drain()
        await self._waiter.close()
        # The next event loop may be another one.
        self._waiter, self._opening = self._new_waiter(), asyncio.Lock()
        await self.runtime.store.close()
        self.runtime.executor.close()
        self._opened = False

    async def __aenter__(self) -> "Holdfast":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def apply_schema(
        self, *, wait: Duration = APPLY_LIMIT, blocked: Callable[[LockWait], object] | None = None
    ) -> SchemaState:
        """Create or upgrade the schema of the database, and return its state before.

        While another session holds a lock on the tables, such as a backup, it is retried for *wait*; each time *blocked*
        is called, or a line is logged, with the sessions that hold it. Workers continue meanwhile. Raises
        `StoreUnavailable` after *wait*: nothing was changed.
        """
        return await self.runtime.store.apply_schema(
            limit=duration(wait), blocked=self._log_lock_wait if blocked is None else blocked
        )

    def _log_lock_wait(self, wait: LockWait) -> None:
        self.runtime.logger.warning(
            "schema apply blocked",
            waited_sec=round(wait.waited.total_seconds(), 1),
            sessions=[str(holder) for holder in wait.holders],
        )

    @asynccontextmanager
    async def worker(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        poll: Duration | None = None,
    ) -> "AsyncIterator[Worker]":
        """Run a worker while the block runs; at its end the worker finishes its running jobs, within *grace*."""
        from holdfast.engine.worker.worker import Worker  # noqa: PLC0415 - what only submits jobs loads no worker

        self.settings.ensure_usable()
        self._registry.ensure_backups()
        await self.open()
        options = _given(
            self.settings.worker_options, slots=slots, queues=queues, lease=lease, grace=grace, poll=poll
        )
        async with running(Worker(self.runtime.ids.worker_id(), self.runtime, options)) as worker:
            yield worker

    async def _submit(self, batch: Sequence[Submission], within: Any = None) -> list[Receipt]:
        """Store calls of jobs; `JobFunction.submit` makes them."""
        await self._open_for_change()
        job = job_that_can_wait(self.runtime.store)
        if job is None:
            return await self._submitted(batch, within)
        with job.submitting():
            receipts = await self._submitted(batch, within)
        job.submitted(batch, receipts)
        return receipts

    async def _submitted(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        if within is not None:
            return await self._submitter.submit_within(within, batch)
        if len(batch) == 1:
            return [await self._submitter.submit(batch[0])]
        return await self._submitter.submit_many(batch)

    def _submit_here(self, batch: Sequence[Submission], within: Any) -> list[Receipt]:
        """Store calls in this thread: a plain connection may not be used in another."""
        ensure_going_on()
        ensure_blocking(within, "submit")
        return run_here(self._submitter.submit_within(within, batch))

    def handle(self, job_id: str, name: str = "") -> JobHandle[Any]:
        """Return a handle to a job that was submitted before, perhaps by another process."""
        return JobHandle(self, Receipt(job_id, existing=True), name=name)

    async def wait(self, job_id: str, *, timeout: Duration | None = None, owner: str | None = None) -> Job:
        """Wait until the job has ended, and return it. Raises `ResultTimeout`, `JobNotFound`."""
        job = await self.read(job_id, owner=owner)
        if not job.status.ended:
            limit = None if timeout is None else duration(timeout)
            # By the id as it is stored: the store reports ended jobs in that spelling only.
            await self._waiter.wait(job.id, timeout=limit)
            job = await self.runtime.store.get(job.id)
        return job

    async def _end_of(self, job_id: str, timeout: Duration | None) -> Job | End:
        """Wait for a job's end; inside a job, that job is parked meanwhile."""
        waiting = job_that_can_wait(self.runtime.store)
        if waiting is None:
            return await self.wait(job_id, timeout=timeout)
        return await waiting.suspension.end_of(job_id, None if timeout is None else duration(timeout))

    async def sleep(self, length: Duration) -> None:
        """Park the job that calls this for *length*: it occupies no worker, and restarts do not matter."""
        await require_job(self.runtime.store, "sleep()").suspension.sleep(duration(length))

    async def wait_for(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Park the job that calls this until the signal is sent, and return the data of the signal.

        The job occupies no worker meanwhile. Raises `SignalTimeout` after *timeout*.
        """
        limit = None if timeout is None else duration(timeout)
        job = require_job(self.runtime.store, "wait_for()")
        return await job.suspension.signal(ensure_name(signal, "signal"), limit)

    async def signal(
        self, job_id: str, signal: str, data: Any = None, *, owner: str | None = None, actor: str = ""
    ) -> None:
        """Send a signal to a job, which waits for it now or will later. Raises `StateRefused` if it has ended.

        The history of the job records the signal, its data, the time, and the *actor* if one is given.
        """
        ensure_storable(owner=owner, actor=actor)
        await self._open_for_change()
        text = encode(data, what=f"data of signal {signal!r}")
        await self.runtime.store.signal(job_id, ensure_name(signal, "signal"), text, owner=owner, actor=actor)
        self.runtime.metrics.count("signals_sent")
        its = await name_and_queue(self.runtime.store, job_id)
        self.runtime.logger.info("signal sent", job_id=job_id, **its, signal=signal, actor=actor)

    async def read(self, job_id: str, *, owner: str | None = None) -> Job:
        """Return a job. Raises `JobNotFound` if it is absent or not *owner*'s."""
        ensure_storable(owner=owner)
        await self.open()
        return await self.runtime.store.get(job_id, owner=owner)

    async def find(self, job_filter: JobFilter = JobFilter()) -> list[Job]:  # noqa: B008 - a frozen value
        """Return jobs, the newest first; with `at_risk`, by deadline."""
        await self.open()
        return await self.runtime.store.find(job_filter)

    async def events(self, job_id: str, *, owner: str | None = None) -> list[Event]:
        """Return the history of a job, in order. Raises `JobNotFound` if it is absent or not *owner*'s."""
        await self.read(job_id, owner=owner)
        return await self.runtime.store.events(job_id)

    async def cancel(self, job_id: str, *, owner: str | None = None) -> Status:
        """Cancel a job that waits, or request the worker of a running job to stop it; return its status."""
        ensure_storable(owner=owner)
        await self._open_for_change()
        return await self.runtime.store.cancel(job_id, owner=owner)

    async def retry(self, job_id: str, *, owner: str | None = None) -> Job:
        """Queue a failed job again, with all of its attempts; finished stages are kept."""
        ensure_storable(owner=owner)
        await self._open_for_change()
        return await self.runtime.store.retry(job_id, owner=owner)

    async def accept_late(
        self, job_id: str, *, actor: str, reason: str = "", owner: str | None = None
    ) -> Job:
        """Complete a job with the result that arrived after its deadline.

        The job that is declared with `when_late_is_accepted` is submitted in the same transaction, so *job_id* must be a
        call of a job that is declared here. Raises `StateRefused` if there is no late result.
        """
        ensure_storable(actor=actor, reason=reason, owner=owner)
        await self._open_for_change()
        job = await self.read(job_id, owner=owner)
        spec = self._registry.get(job.name)
        if spec is None:
            raise ConfigError(
                f"no job named {job.name!r} is declared here, so it is unknown which job follows an acceptance; "
                "import the module that declares it"
            )
        if job.late_result is None:
            raise StateRefused(f"job {job_id} is {job.status} and has no late result to accept")
        then = None
        if spec.on_accept:
            follower: JobFunction[..., Any] = spec.on_accept[0]
            then = follower._follows(job.id, spec.signature.load_result(job.late_result))
        meta = json.dumps({"actor": actor, **({"reason": reason} if reason else {})})
        # Only the result that was read is accepted: the job that follows was made of it, and a later result may differ.
        accepted = await self.runtime.store.accept_late(
            job.id, owner=owner, meta=meta, then=then, late_at=job.late_at
        )
        self.runtime.logger.info(
            "late result accepted", job_id=job.id, name=job.name, queue=job.queue, actor=actor
        )
        return accepted

    open_sync = in_sync(open)  # noqa: A003 - the method above is meant
    apply_schema_sync = in_sync(apply_schema)
    read_sync = in_sync(read)
    wait_sync = in_sync(wait)
    find_sync = in_sync(find)
    events_sync = in_sync(events)
    cancel_sync = in_sync(cancel)
    retry_sync = in_sync(retry)
    signal_sync = in_sync(signal)
    accept_late_sync = in_sync(accept_late)
    sleep_sync = in_sync(sleep)
    wait_for_sync = in_sync(wait_for)

    def close_sync(self) -> None:
        """Close the connections of the `_sync` methods, after everything that was submitted is stored."""
        self._portal.close()

    def load_result(self, job: Job) -> Any:
        """Return the result of a job, with the type that its function declares here."""
        return self._loaded(job.name, job.result)

    def _loaded(self, name: str, result: str | None) -> Any:
        spec = self._registry.get(name)
        if spec is None:
            raise ConfigError(f"no job named {name!r} is declared here; import the module that declares it")
        return spec.signature.load_result(result or "null")

    def _new_id(self) -> str:
        """Return a new id for a job."""
        return self.runtime.ids.job_id()


def _given(options: Any, **changes: Any) -> Any:
    given = {name: value for name, value in changes.items() if value is not None}
    if isinstance(given.get("queues"), str):
        raise ConfigError(f"queues={given['queues']!r} is one string; give a list of names")
    return replace(options, **given)
